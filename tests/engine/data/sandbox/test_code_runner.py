"""Programs that nobody has read: what they print, what ends them, and what they cannot reach."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.data.sandbox.code_runner import CodeLimits, run_programs

SLOW = """
import signal, time
if hasattr(signal, "SIGPROF"):
    signal.signal(signal.SIGPROF, signal.SIG_IGN)
while time.process_time() < 3:
    pass
print("ran on")
"""
STARTS = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
"""
# A folder in which another one is mounted that can be written, shown to a process that is set apart.
WRITES_IN_MOUNT = """
import ctypes, os, sys
from pathlib import Path
from burnish_engine.data.sandbox import namespaces
shown, empty = Path(sys.argv[1]), Path(sys.argv[2])
libc, user, group = ctypes.CDLL(None), os.getuid(), os.getgid()
if libc.unshare(0x10020000):  # CLONE_NEWUSER, CLONE_NEWNS
    raise SystemExit("no namespaces")
for name, text in {"setgroups": "deny", "uid_map": f"0 {user} 1", "gid_map": f"0 {group} 1"}.items():
    Path("/proc/self", name).write_text(text)
if libc.mount(b"tmpfs", os.fsencode(shown / "inner"), b"tmpfs", 0, None):
    raise SystemExit("no mount")
namespaces._SYSTEM = (*namespaces._SYSTEM, str(shown))
namespaces.enter_namespaces(empty)
try:
    (shown / "inner" / "new").write_text("mine")
except OSError as error:
    print("refused:", error.strerror, flush=True)
else:
    print("written", flush=True)
"""
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
    first = "open('/proc/self/environ').read()" if sys.platform == "linux" else "''"
    (found,) = run_programs([f"import os; print(os.environ.get('HF_TOKEN'), 'secret' in {first}, 'ä→')"], LIMITED)
    assert found.output == "None False ä→\n"


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


@posix
@pytest.mark.parametrize("isolated", [True, False])
def test_a_program_that_ignores_signals_is_ended_by_its_processor_time(isolated):
    try:
        (found,) = run_programs([SLOW], CodeLimits(seconds=0.5, isolated=isolated))
    except SetupError:
        pytest.skip("this system lets nobody make namespaces")
    assert not found.finished
    assert found.output == ""


@posix
def test_what_a_program_started_ends_with_it():
    (found,) = run_programs([STARTS], LIMITED)
    pids = [int(line) for line in found.output.split()]  # none where the system lets it start nothing
    until = time.monotonic() + 60  # a busy system takes a while to end what was killed
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_what_is_mounted_in_a_shown_folder_cannot_be_written(tmp_path):
    (tmp_path / "shown" / "inner").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    command = [sys.executable, "-c", WRITES_IN_MOUNT, str(tmp_path / "shown"), str(tmp_path / "empty")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        pytest.skip(f"this system makes no such mount: {done.stderr.strip().splitlines()[-1]}")
    assert done.stdout.startswith("refused")


def test_a_program_cannot_claim_that_it_was_not_set_apart():
    exits = [f"import os; os.write(1, b'secret'); os._exit({status})" for status in (1, 96)]
    found = run_programs(exits, LIMITED)
    assert [one.output for one in found] == ["secret", "secret"]
    assert not any(one.finished for one in found)


def test_where_nothing_can_be_set_apart_that_is_said(monkeypatch):
    says = "import json, sys; print(json.load(sys.stdin)['refused'] + 'no namespaces')"

    def start(_empty, output):
        return subprocess.Popen([sys.executable, "-c", says], stdin=subprocess.PIPE, stdout=output)

    monkeypatch.setattr("burnish_engine.data.sandbox.code_runner._start", start)
    with pytest.raises(SetupError) as refused:
        run_programs(["1 / 0"], CodeLimits(seconds=2.0))
    assert "isolation" in refused.value.remedy
    assert "no namespaces" in refused.value.what
