"""What the leader makes of the answers of other ranks, whenever they come."""

import socket
import subprocess
import threading

import pytest
import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.train.parallel import ranks as ranks_module
from burnish_engine.train.parallel.link import Link
from burnish_engine.train.parallel.rank_server import RankServer
from burnish_engine.train.parallel.ranks import OtherRankMemoryError, Rank, RankLostError, Ranks

from support.runs.ranks import CPU, together


class NoCollectives:
    def close(self, *, abort=False):
        pass


@pytest.fixture
def ends():
    """The two ends of the link to each of two other ranks."""
    pairs = [tuple(map(Link, socket.socketpair())) for _ in range(2)]
    yield pairs
    for link in (link for pair in pairs for link in pair):
        link.close()


@pytest.fixture
def ranks(ends, monkeypatch):
    monkeypatch.setattr(ranks_module, "_CHECK_EVERY_S", 0.0)
    return Ranks([Rank(number, ours) for number, (ours, _) in enumerate(ends, start=1)], NoCollectives)


def told(link):
    return link.receive()[0]["do"]


@pytest.mark.parametrize("answer", [{"ready": True}, {"failed": "memory", "message": "out of memory"}])
def test_a_rank_may_answer_before_the_leader_has_queued_its_own_passes(ends, ranks, answer):
    """The leader looks for dead ranks while its device is busy; an answer that has come by then is not lost."""
    (_, first), (_, second) = ends
    ranks.begin_step()
    assert told(first) == told(second) == "step"
    first.send(answer)
    ranks.check()
    second.send({"ready": True})
    ranks.check()
    if "failed" in answer:
        with pytest.raises(OtherRankMemoryError):
            ranks.agree()
        assert told(first) == told(second) == "abandon"
    else:
        ranks.agree()
        assert told(first) == told(second) == "exchange"
    ranks.begin_step()
    with pytest.raises(RankLostError):
        first.close()
        ranks.agree()


@pytest.mark.parametrize("stepping", [False, True])
def test_a_failure_that_nobody_waits_for_ends_the_run(ends, ranks, stepping):
    if stepping:
        ranks.begin_step()
    ends[1][1].send({"failed": "error", "message": "the disk is gone"})
    with pytest.raises(RankLostError, match="the disk is gone"):
        ranks.check()


def test_a_rank_that_ends_while_all_are_connected_ends_the_wait(ends):
    never = threading.Event()
    ends[1][1].close()
    with pytest.raises(RankLostError, match="rank 2"):
        Ranks([Rank(number, ours) for number, (ours, _) in enumerate(ends, start=1)], never.wait)
    never.set()


def test_a_connection_that_never_comes_about_is_given_up(ends, monkeypatch):
    monkeypatch.setattr(ranks_module, "_CONNECT_S", 0.1)
    never = threading.Event()
    with pytest.raises(SetupError):
        Ranks([Rank(1, ends[0][0])], never.wait)
    never.set()


def test_a_rank_ends_with_its_leader_also_while_it_is_being_connected():
    """It ends whatever it waits for; here that is ranks that never come."""
    (ours, theirs), never = map(Link, socket.socketpair()), threading.Event()
    orphaned = threading.Event()

    def connect():
        never.wait()
        return NoCollectives()

    server = RankServer(theirs, 1, 2, CPU, connect, orphaned.set)
    thread = threading.Thread(target=server.serve, args=(NoMemory(),))
    thread.start()
    ours.close()
    assert orphaned.wait(20)
    never.set()
    thread.join()


class Stuck:
    """A process that hangs in its driver: no signal ends it."""

    killed = 0

    def poll(self):
        return None

    def kill(self):
        self.killed += 1

    def wait(self, timeout=None):
        assert timeout is not None, "it never ends"
        raise subprocess.TimeoutExpired("rank", timeout)


@pytest.mark.parametrize("kill", [False, True])
def test_a_process_that_cannot_be_killed_does_not_hold_the_leader(ends, kill):
    process = Stuck()
    Rank(1, ends[0][0], process).end(kill=kill)
    assert process.killed == 1


class NoMemory:
    """A replica on a rank that has no memory left for a measurement."""

    def close(self):
        pass


def test_a_rank_without_memory_for_the_measurement_is_not_waited_for(monkeypatch):
    pair = [Link(one) for one in socket.socketpair()]
    real = torch.zeros

    def zeros(*size, **options):
        if threading.current_thread().name == "poor":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")
        return real(*size, **options)

    monkeypatch.setattr(torch, "zeros", zeros)

    def run(rank, collectives):
        if rank:
            threading.current_thread().name = "poor"
            return RankServer(pair[1], 1, 2, CPU, lambda: collectives).serve(NoMemory())
        ranks = Ranks([Rank(1, pair[0])], lambda: collectives)
        with pytest.raises(OtherRankMemoryError):
            ranks.time_exchange(64, CPU, 1)
        next(one for one in threading.enumerate() if one.name == "poor").name = "rich"
        assert ranks.time_exchange(64, CPU, 1) > 0
        return ranks.close()

    together(2, run)
