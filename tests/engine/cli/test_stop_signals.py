"""Ctrl-C, a termination and a closed terminal end a command in words, with exit code 20, from its first moment on."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from burnish_engine.cli import stop_signals as module
from burnish_engine.cli.main import main
from burnish_engine.cli.stop_signals import SIGNALS, set_on_stop, stop_signals
from burnish_engine.contract.errors import ExitCode


@pytest.fixture(autouse=True)
def nothing_ignored():
    """Under nohup, and in the background of a shell, a process and those it starts ignore signals."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


DURING_IMPORT = """
import importlib.abc, os, sys
from burnish_engine.cli.main import main
heavy = {"typer", "rich", "pydantic", "torch", "numpy"} & set(sys.modules)
assert not heavy, heavy

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "typer":
            try:
                os.kill(os.getpid(), NUMBER)
            except BaseException:
                pass

sys.meta_path.insert(0, Interrupting())
sys.exit(main(["runs", "list"]))
"""


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="sends signals")
def test_a_signal_during_the_imports_ends_the_process_at_once():
    """An import may swallow an exception, so none is raised there. And the entry point itself imports nothing heavy."""
    code = DURING_IMPORT.replace("NUMBER", str(int(signal.SIGINT)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (20, "", "burnish: Stopped.\n")


AT_ONCE = """
import os, signal, sys
from burnish_engine.cli import main as entry
assert "burnish_engine.cli.stop_signals" not in sys.modules  # a signal during its import would end in a traceback
entry.main = lambda: os.kill(os.getpid(), NUMBER)
entry.run()
"""


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_before_the_first_import_ends_the_process_in_words(number):
    code = AT_ONCE.replace("NUMBER", str(int(number)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (20, "", "burnish: Stopped.\n")


SWALLOWED = """
import ctypes, os, signal, sys, time
from burnish_engine.cli import main as entry
from burnish_engine.cli.stop_signals import stop_signals
def interrupted():
    os.kill(os.getpid(), NUMBER)
class Finalized:
    __del__ = lambda self: interrupted()
def work(callback=ctypes.CFUNCTYPE(None)(interrupted)):
    WAY
    time.sleep(9)
try:
    with stop_signals() as stop:
        work()
except KeyboardInterrupt:
    sys.exit(20 if stop.asked else 1)
"""


@pytest.mark.quick_cases(1)
@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize(("way", "number"), [("Finalized()", signal.SIGINT), ("callback()", signal.SIGTERM)])
def test_a_signal_that_a_finalizer_or_a_callback_swallows_stops_all_the_same(way, number):
    code = SWALLOWED.replace("NUMBER", str(int(number))).replace("WAY", way)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (20, "", "")


AT_THE_END = """
import atexit, os, signal, sys
from burnish_engine.cli import main as entry
def interrupted():
    print("done", end="")
    if WAITING:
        atexit.register(os.kill, os.getpid(), signal.SIGINT)
    return 0
class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)
last = Last()
entry.main = interrupted
entry.run()
"""


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize(("waiting", "code", "said"), [(False, 0, ""), (True, 20, "burnish: Stopped.\n")])
def test_a_signal_while_the_interpreter_ends_is_no_signals_exit_code(waiting, code, said):
    """Everything is done and told, so it counts only where something is still waited for."""
    script = AT_THE_END.replace("WAITING", str(waiting))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


INSIDE_EXEC = """
from burnish_engine.cli import main as entry
def interrupted():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        print("saved", end="")
        return 20
entry.main = interrupted
entry.run()
"""


@pytest.mark.full
def test_an_interrupt_inside_a_librarys_exec_ends_with_20_too(tmp_path):
    """With -m, Python remembers such an interrupt, and ends itself with SIGINT although it was handled."""
    (tmp_path / "interrupted.py").write_text(INSIDE_EXEC)
    command = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (20, "saved", "")


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("turned", [False, True], ids=["passed on", "turned into another error"])
def test_a_signal_during_a_command_is_no_bug(monkeypatch, capsys, number, turned):
    def interrupted():
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            if not turned:
                raise
        raise ValueError("a library's own words")

    monkeypatch.setattr("burnish_engine.runs.store.runs_dir", interrupted)
    before = [signal.getsignal(each) for each in SIGNALS]
    assert main(["runs", "list"]) == 20
    assert capsys.readouterr().err == "burnish: Stopped.\n"
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_a_stream_that_ends_too_early_is_no_stop(monkeypatch, capsys):
    def read():
        raise EOFError("compressed file ended")

    monkeypatch.setattr("burnish_engine.runs.store.runs_dir", read)
    assert main(["runs", "list"]) == ExitCode.BUG
    said = capsys.readouterr().err
    assert "compressed file ended" in said
    assert "Stopped" not in said


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no hangup")
def test_nohup_is_respected():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_work_that_ends_cleanly_only_notices(number):
    asked = threading.Event()
    with stop_signals(), set_on_stop(asked):
        signal.raise_signal(number)
    assert asked.is_set()


def test_a_closed_console_waits_for_the_work_to_end(monkeypatch):
    """Windows calls the handler in a thread of its own and ends the process once it returns."""
    handlers, interrupted = {}, threading.Event()

    def set_handler(handler, add):
        (handlers.__setitem__ if add else handlers.pop)(*((handler, True) if add else (handler,)))
        return 1

    monkeypatch.setattr(module, "_kernel32", lambda: module._Console(lambda handler: handler, set_handler))
    monkeypatch.setattr(module._thread, "interrupt_main", lambda _number: interrupted.set())
    with stop_signals():
        (handler,) = handlers
        assert handler(0) == 0  # Ctrl-C is somebody else's
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(handler(2)), daemon=True)
        waiting.start()
        assert interrupted.wait(30)
        assert not answers
    waiting.join(30)
    assert (answers, handlers) == ([1], {})
