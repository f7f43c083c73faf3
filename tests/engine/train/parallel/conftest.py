"""Ranks of the tests' runs."""

import gc
import threading

import pytest

from burnish_engine.train.parallel import launch

from support.runs.ranks import SharedEngine


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """No test leaves a thread for which the process would wait at its end."""
    before = threading.enumerate()
    yield
    assert not [one for one in threading.enumerate() if one not in before and not one.daemon]


@pytest.fixture
def forks(fork_server, monkeypatch):
    """Let ranks be forked; the processes of those that the test starts."""
    fork_server.ranks.clear()
    monkeypatch.setattr(launch, "_start", fork_server.start_rank)
    yield fork_server.ranks
    assert all(process.poll() is not None for process in fork_server.ranks), "no rank outlives its run"


@pytest.fixture
def shared():
    """Make a shared engine from the arguments of `SharedEngine`; all are closed at the end."""
    made = []

    def make(*arguments, **options):
        made.append(SharedEngine(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
    made.clear()
    gc.collect()
