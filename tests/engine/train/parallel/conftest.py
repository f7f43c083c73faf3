"""Ranks of the tests' runs."""

import pytest

from burnish_engine.train.parallel import launch


@pytest.fixture
def forks(fork_server, monkeypatch):
    """Let ranks be forked; the processes of those that the test starts."""
    fork_server.ranks.clear()
    monkeypatch.setattr(launch, "_start", fork_server.start_rank)
    yield fork_server.ranks
    assert all(process.poll() is not None for process in fork_server.ranks), "no rank outlives its run"
