"""Programs that nobody has read: what they print, what ends them, and what they cannot reach."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.data.sandbox.code_cell import NOT_ISOLATED
from burnish_engine.data.sandbox.code_runner import CodeLimits, run_programs

LIMITED = CodeLimits(seconds=2.0, memory_bytes=512 * 2**20, isolated=False)
posix = pytest.mark.skipif(sys.platform == "win32", reason="these limits are POSIX's")


def test_a_program_has_finished_where_its_last_line_was_reached():
    programs = ["print(1 + 1)", "1 / 0", "def f(:", "import os; os._exit(0)", "import sys; sys.exit(0)"]
    found = run_programs(programs, LIMITED)
    assert [one.finished for one in found] == [True, False, False, False, False]
    assert found[0].output == "2\n"


@posix
def test_limits_end_a_program():
    found = run_programs(["bytearray(2**30)", "while True: pass", "print('x' * 10**6)"], LIMITED)
    assert not any(one.finished for one in found)
    assert all(len(one.output) < 10**6 for one in found)


def test_a_program_does_not_see_the_environment(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    (found,) = run_programs(["import os; print(os.environ.get('HF_TOKEN'))"], LIMITED)
    assert found.output == "None\n"


@posix
def test_a_program_set_apart_reaches_neither_files_nor_network_nor_processes(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("mine")
    programs = [
        f"print(open({str(file)!r}).read())",
        f"open({str(tmp_path / 'new')!r}, 'w')",
        f"open({str(Path(sys.base_prefix, 'new'))!r}, 'w')",
        "import socket; socket.create_connection(('127.0.0.1', 22), 1)",
        f"import os; os.kill({os.getpid()}, 0)",
        "open('own', 'w').write('ok'); print(open('own').read())",
    ]
    try:
        found = run_programs(programs, CodeLimits(seconds=2.0))
    except SetupError as error:
        assert "isolation" in error.remedy
        pytest.skip("this system lets nobody make namespaces")
    assert [one.finished for one in found] == [False, False, False, False, False, True]
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]


def test_where_nothing_can_be_set_apart_that_is_said(monkeypatch):
    def start(_empty, output):
        return subprocess.Popen(
            [sys.executable, "-c", f"raise SystemExit({NOT_ISOLATED})"], stdin=subprocess.PIPE, stdout=output
        )

    monkeypatch.setattr("burnish_engine.data.sandbox.code_runner._start", start)
    with pytest.raises(SetupError) as refused:
        run_programs(["1 / 0"], CodeLimits(seconds=2.0))
    assert "isolation" in refused.value.remedy
