"""Signals between and within steps."""

import hashlib
import signal
import threading
import time

import pytest

from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.runs.control import ControlReader
from burnish_engine.runs.recorder import Recorder
from burnish_engine.runs.store import create_run
from burnish_engine.train.lifecycle.commands import CommandInbox


@pytest.fixture
def told():
    """When `stopping` was called."""
    return []


@pytest.fixture
def inbox(tmp_path, told):
    """The inbox of a run that nobody carries out."""
    paths: RunPaths = create_run(Recipe(), tmp_path / "run")
    return CommandInbox(
        ControlReader(paths.control), Recorder(paths), checkpoint=lambda: None, sample=lambda: None, smaller_plan=str,
        stopping=lambda: told.append(time.monotonic()),
    )  # fmt: skip


def _one_long_instruction():
    """Like a backward pass: Python runs no signal handler before it returns."""
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000)
    return time.monotonic()


def test_an_interrupt_is_told_while_a_step_is_at_work_and_taken_after_it(inbox, told):
    with inbox.signals():
        assert inbox.poll() is None
        threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
        ended = _one_long_instruction()
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
