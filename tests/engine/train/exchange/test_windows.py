"""Memory that ranks read from each other."""

import gc
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed import _symmetric_memory

from burnish_engine.contract.errors import SetupError
from burnish_engine.train.exchange import collectives, windows
from burnish_engine.train.exchange.collectives import Collectives
from burnish_engine.train.exchange.rank_memory import RankWindows
from burnish_engine.train.exchange.windows import GpuWindow

from support.runs.ranks import together


def test_every_rank_reads_what_the_others_wrote(tmp_path, monkeypatch):
    monkeypatch.setattr(windows.tempfile, "tempdir", str(tmp_path))
    arrivals = []

    def share(rank, collectives):
        memory = RankWindows(rank, 3, collectives, lambda: collectives.all_reduce(torch.ones(1)))
        found = memory.allocate(1000)
        found[rank].fill_(rank + 1)
        arrivals.append(rank)
        memory.wait_until_filled()
        assert len(arrivals) == 3, "nobody reads before all have written"
        return [set(one.tolist()) for one in found]

    assert together(3, share) == [[{1}, {2}, {3}]] * 3
    gc.collect()
    assert not list(Path(tmp_path).iterdir()), "nothing is left behind"


@pytest.mark.parametrize("lacks", ["this rank", "another"])
def test_where_a_rank_has_no_room_nothing_is_opened(lacks):
    """Opening takes all ranks at once: one that continued alone would wait for ever."""
    done = []

    class Told:
        def window(self, count):
            done.append("window")
            if lacks == "this rank":
                raise MemoryError(count)
            return self

        def open_all(self):
            done.append("opened")

    def agree():
        done.append("agreed")
        if lacks == "another" and done.count("agreed") == 2:
            raise MemoryError("on rank 1")

    with pytest.raises(MemoryError):
        RankWindows(0, 2, Told(), agree).allocate(100)
    assert done[:2] == ["agreed", "window"], "others have let go of theirs first"
    assert "opened" not in done


@pytest.mark.parametrize(("words", "error"), [
    ("CUDA driver error: invalid device ordinal", SetupError), ("CUDA driver error: out of memory", RuntimeError),
])  # fmt: skip
def test_gpus_that_cannot_read_each_other_are_named_and_lack_of_memory_is_not_mistaken(monkeypatch, words, error):
    def refuse(*_arguments, **_options):
        raise RuntimeError(words)

    monkeypatch.setattr(_symmetric_memory, "empty", refuse)
    with pytest.raises(error, match=words.split(": ")[1]) as raised:
        gpu_window(beside(0))
    assert ("memory.weights" in str(raised.value)) == (error is SetupError)


class NumberedRendezvous:
    """Stands for torch's rendezvous, which are numbered from the start of a process, whatever the group."""

    def __init__(self, monkeypatch):
        self.number, self.at, self.allocated = 0, [], []
        monkeypatch.setattr(windows, "_rendezvous", type(windows._rendezvous)())
        monkeypatch.setattr(_symmetric_memory, "empty", self._empty)
        monkeypatch.setattr(_symmetric_memory, "rendezvous", self._rendezvous)

    def _empty(self, count, **options):
        self.allocated.append(count)
        return torch.empty(count, **options)

    def _rendezvous(self, own, group):
        if isinstance(group, str):
            assert _resolve_process_group(group).size() == 1, "a rank catches up alone"
        else:
            self.at.append(self.number)
        self.number += 1
        return self

    def get_buffer(self, rank, shape, dtype):
        return torch.zeros(shape, dtype=dtype)


def gpu_window(gather_numbers):
    return GpuWindow(8, 2, torch.device("cpu"), gather_numbers)


def beside(others):
    """An exchange with another rank, which has made so many rendezvous so far."""
    return lambda own: [others, own]


@pytest.fixture
def numbered(monkeypatch):
    return NumberedRendezvous(monkeypatch)


def test_ranks_number_their_rendezvous_alike_also_in_the_next_run_of_a_process(numbered):
    """The leader of a run that continues after a kill may be the old process, whose rendezvous torch numbers on."""
    for others in (0, 3, 0, 8):  # the last two runs find no group of one: torch forgot it with the default group
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        try:
            most = max(others, numbered.number)
            assert len(gpu_window(beside(others)).open_all()) == 2
            assert numbered.at[-1] == most
        finally:
            torch.distributed.destroy_process_group()
    assert numbered.at == [0, 3, 4, 8]


def test_a_rank_catches_up_before_it_allocates_and_so_before_others_wait_for_it(numbered):
    """Where its GPU had no room left for that, all others would be in the rendezvous already."""
    gpu_window(beside(2))
    assert numbered.allocated == [1, 1, 8]
    assert not numbered.at


def connected(store, rank):
    """The collectives of one of two ranks, of which only the store is there."""
    made = Collectives.__new__(Collectives)
    made._device, made._store, made._rank, made._size, made._windows = torch.device("cuda"), store, rank, 2, 0
    return made


def test_ranks_tell_each_other_their_numbers_and_do_not_wait_for_ever(monkeypatch):
    """Through the store: NCCL would wait for a rank that has failed before it came there."""
    monkeypatch.setattr(collectives, "GpuWindow", lambda _count, _size, _device, gather_numbers: gather_numbers)
    store = torch.distributed.HashStore()
    store.set_timeout(timedelta(seconds=0.2))
    ranks = [connected(store, rank) for rank in range(2)]
    with ThreadPoolExecutor(2) as threads:
        for turn in range(2):
            told = list(threads.map(lambda one, turn=turn: one.window(8)(10 * turn + one._rank), ranks))
            assert told == [[10 * turn, 10 * turn + 1]] * 2
    with pytest.raises(SetupError, match="does not answer"):
        ranks[0].window(8)(5)
