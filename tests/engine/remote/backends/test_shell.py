"""Scripts of a POSIX shell: what they print and how long they are silent is limited, and a command for a run that has
not begun is refused."""

import sys
import tempfile
import threading
import time

import psutil
import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.run.commands import Command
from burnish_engine.remote.backends.backend import DroppedError
from burnish_engine.remote.backends.on_host import HostFolder
from burnish_engine.remote.backends.shell import LocalShell, run, run_into, stream

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="other machines have a POSIX shell")


def test_a_script_that_prints_without_end_is_ended(tmp_path):
    """Commands that it started end too: the one that prints is not the shell itself."""
    printer = f"sh -c 'echo $$ > {tmp_path}/pid; exec yes'; true"
    with tempfile.TemporaryFile() as out, pytest.raises(SetupError, match="sent more than"):
        run_into(LocalShell(), printer, out, most_bytes=2**16)
    end = time.monotonic() + 20
    while psutil.pid_exists(int((tmp_path / "pid").read_text())):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_short_script_that_printed_too_much_is_refused_as_well():
    with tempfile.TemporaryFile() as out, pytest.raises(SetupError, match="sent more than"):
        run_into(LocalShell(), "printf 12345", out, most_bytes=4)
    assert run(LocalShell(), "printf 12345") == "12345"


def test_a_script_that_reads_nothing_ends_with_its_own_words():
    def feed(pipe):
        pipe.write(bytes(2**20))

    with pytest.raises(SetupError, match="no room"):
        run(LocalShell(), "echo no room >&2; exit 3", feed=feed)


def test_a_program_that_is_missing_is_said_to_be():
    with pytest.raises(SetupError, match=r"missing.*no-such-program"):
        run(LocalShell(), "no-such-program")


def test_a_command_waits_until_the_run_has_begun(tmp_path):
    (tmp_path / "run").mkdir()
    control, command = tmp_path / "run" / "control.jsonl", Command(name="stop", t=time.time())
    with pytest.raises(SetupError, match="has not begun"):
        HostFolder(LocalShell(), str(tmp_path)).send(command)
    assert not control.exists()
    control.touch()
    HostFolder(LocalShell(), str(tmp_path)).send(command)
    assert Command.model_validate_json(control.read_text()) == command


def test_a_script_that_falls_silent_is_ended_and_told():
    lines = stream(LocalShell(), "echo one; sleep 600", silence_s=0.5)
    assert next(lines) == "one"
    with pytest.raises(DroppedError, match="nothing came from this machine"):
        next(lines)


def test_only_the_wait_for_a_line_counts_as_silence():
    lines = stream(LocalShell(), "echo one; echo two", silence_s=0.5)
    assert next(lines) == "one"
    threading.Event().wait(0.8)
    assert list(lines) == ["two"]


def test_a_script_that_never_reads_what_it_is_sent_is_ended_and_told():
    def feed(pipe):
        pipe.write(bytes(2**20))  # more than a pipe holds

    with pytest.raises(DroppedError, match="nothing came from this machine"):
        run(LocalShell(), "sleep 600", feed=feed, wait_s=0.5)
