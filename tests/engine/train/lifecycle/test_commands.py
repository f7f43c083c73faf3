"""Signals between and within steps, and a pause between them."""

import hashlib
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.runs.control import ControlReader, send
from burnish_engine.runs.recorder import Recorder
from burnish_engine.runs.store import create_run, read_state
from burnish_engine.train.lifecycle import commands
from burnish_engine.train.lifecycle.commands import CommandInbox


@pytest.fixture
def told():
    """When `stopping` was called."""
    return []


@pytest.fixture
def paths(tmp_path):
    return create_run(Recipe(), tmp_path / "run")


@pytest.fixture
def inbox(paths, told):
    """The inbox of a run that nobody carries out."""
    return CommandInbox(
        ControlReader(paths.control), Recorder(paths), checkpoint=lambda: None, sample=lambda: None, smaller_plan=str,
        stopping=lambda: told.append(time.monotonic()),
    )  # fmt: skip


def _one_long_instruction():
    """Like a backward pass: Python runs no signal handler before it returns."""
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000)
    return time.monotonic()


@pytest.mark.full
def test_an_interrupt_is_told_while_a_step_is_at_work_and_taken_after_it(inbox, told):
    with inbox.signals():
        assert inbox.poll() is None
        timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
        timer.start()
        ended = _one_long_instruction()
        timer.join()  # a signal that comes late is not for the next test
        assert inbox.poll() == "stop"
    assert len(told) == 1
    assert told[0] < ended - 0.05


def test_a_second_interrupt_ends_at_once_and_is_not_told_again(inbox, told):
    with pytest.raises(KeyboardInterrupt), inbox.signals():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert len(told) == 1


def test_handlers_and_wake_up_are_as_before_afterwards(inbox, told):
    before = signal.getsignal(signal.SIGINT)
    with inbox.signals():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.set_wakeup_fd(-1) == -1
    assert told == []


def test_a_pause_holds_until_resume_however_long_that_takes(inbox, paths, monkeypatch):
    waited = []

    def wait(_seconds):
        waited.append(read_state(paths).status)
        if len(waited) == 3:
            send(paths, "resume")

    monkeypatch.setattr(commands, "time", SimpleNamespace(sleep=wait))
    send(paths, "pause")
    assert inbox.poll() is None
    assert waited == ["paused"] * 3
    assert read_state(paths).status == "running"
    assert inbox.poll() is None
    assert len(waited) == 3
