"""The entry point of `burnish` and that of its workers: what a process is set to before it does anything."""

import os
import subprocess
import sys

import pytest

from burnish_engine.cli.main import main

COMMAND = "from burnish_engine.cli import main\nmain.main = lambda: print(gc.get_threshold()[0]) or 0\nmain.run()"
WORKER = (
    "from burnish_engine.channel import worker\n"
    "worker.take_stdio = lambda: print(gc.get_threshold()[0], flush=True) or (0, 1)\n"
    "worker.work({})"
)


@pytest.mark.full
@pytest.mark.parametrize("code", [COMMAND, WORKER], ids=["command", "worker"])
def test_a_process_collects_no_garbage_at_every_turn_while_it_imports(code):
    command = [sys.executable, "-c", f"import gc\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    assert int(done.stdout) > 100_000


@pytest.mark.full
def test_the_command_line_loads_no_http_library():
    code = "import sys, burnish_engine.cli.command_line; print({'httpx2', 'huggingface_hub'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_threads_of_openmp_spin_briefly_unless_the_person_says_otherwise(monkeypatch, capsys):
    """With its default two busy programs slow each other ten times more than they should."""
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    main(["--version"])
    assert os.environ["GOMP_SPINCOUNT"] == "7"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    main(["--version"])
    assert 0 < int(os.environ["GOMP_SPINCOUNT"]) <= 10_000
    assert capsys.readouterr().out
