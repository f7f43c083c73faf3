"""Ranks of a run as threads of one process, with real gloo between them."""

import socket
import threading
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist

from burnish_engine.data.prepare import prepare
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.decoder.lora_adapter import LoraAdapter
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.engine_loader import make_engine
from burnish_engine.train.exchange.windows import FileWindow
from burnish_engine.train.parallel.link import Link
from burnish_engine.train.parallel.rank_server import RankServer
from burnish_engine.train.parallel.ranks import Rank, Ranks
from burnish_engine.train.parallel.replica import RunReplica

CPU = torch.device("cpu")
_DRAWING, _initialize = threading.Lock(), LoraAdapter.initialize


def _initialize_alone(adapter, seed):
    """Draw a new adapter's weights while no other thread does: they have one generator, as processes do not."""
    with _DRAWING:
        _initialize(adapter, seed)


LoraAdapter.initialize = _initialize_alone


class ThreadCollectives:
    """Gloo among the threads of one process."""

    def __init__(self, store, rank, size):
        self.group = dist.ProcessGroupGloo(dist.PrefixStore("ranks", store), rank, size, timedelta(seconds=60))

    def all_reduce(self, values):
        self.group.allreduce([values]).wait()

    def broadcast(self, values, root):
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        self.group.broadcast([values], options).wait()

    def all_to_all(self, received, sent):
        self.group.alltoall_base(received, sent, [], []).wait()

    def all_gather(self, gathered, own):
        self.group._allgather_base(gathered, own).wait()

    def window(self, count):
        return FileWindow(count, self.group.size(), self.all_gather)

    def close(self, *, abort=False):
        pass


def together(size, action):
    """Results of `action(rank, collectives)` run on so many ranks at once, in order; a failure is raised here."""
    store, found, errors = dist.HashStore(), [None] * size, []

    def run(rank):
        try:
            found[rank] = action(rank, ThreadCollectives(store, rank, size))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


class _Replica(RunReplica):
    """A replica over data that is in memory already."""

    def __init__(self, server, made, failing):
        super().__init__(server, CPU)
        self._made, self._failing = made, failing

    def _read(self, _order):
        spec = self._made.spec
        return replace(spec, stream=self._made.stream())

    def step(self):
        self._failing(self._engine)
        super().step()


class SharedEngine:
    """An engine whose steps so many ranks share, all but the first as threads.

    Args:
        recipe: recipe of the run.
        size: number of ranks; 1: an engine as ever.
        failing: function called on every other rank before each step: (engine).
        change: function that changes the documents: (documents) -> documents.
        adapter: folder of the adapter to continue from; None: a new one.
        gpus: models of GPUs that the ranks are taken to have.
    """

    def __init__(
        self,
        recipe,
        size,
        *,
        failing=lambda engine: None,
        references=None,
        change=lambda rows: rows,
        adapter=None,
        gpus=(),
    ):
        source = open_model(recipe.model.path)
        tokenizer = load_tokenizer(source)
        self.recipe, self.references = recipe, references
        self.data = prepare(recipe, tokenizer)
        self.rows = change(self.data.train)
        self.spec = EngineSpec(source, recipe, self.stream(), tokenizer, "fp32", CPU, adapter=adapter)
        self.budget = self.spec.stream.budget()
        self.ranks, self.threads = None, []
        if size > 1:
            store = dist.HashStore()
            pairs = [socket.socketpair() for _ in range(size - 1)]
            for rank, (_, theirs) in enumerate(pairs, start=1):
                thread = threading.Thread(target=self._serve, args=(store, rank, size, Link(theirs), failing))
                thread.start()
                self.threads.append(thread)
            others = [Rank(rank, Link(ours)) for rank, (ours, _) in enumerate(pairs, start=1)]
            self.ranks = Ranks(others, lambda: ThreadCollectives(store, 0, size), gpus=gpus)
        try:
            self.engine = make_engine(self.spec, self.ranks, {})
        except BaseException:
            self._end_ranks(kill=True)
            raise

    def stream(self):
        """The run's micro-batches, read anew."""
        stream = BatchStream(self.rows, self.recipe.train, alike=self.recipe.devices.shares)
        stream.references = self.references
        return stream

    def _serve(self, store, rank, size, link, failing):
        server = RankServer(link, rank, size, CPU, lambda: ThreadCollectives(store, rank, size), lambda: None)
        server.serve(_Replica(server, self, failing))

    def steps(self, count, first=0):
        """Results of so many steps, and the masters after them."""
        self.engine.start(first, self.budget.steps, self.budget.micro_batches)
        for _ in range(count):
            self.engine.queue_step()
        return list(self.engine.results(wait=True)), self.engine.model.optimizer.param.clone()

    def close(self):
        """End all ranks."""
        self.engine.close()
        self._end_ranks()

    def _end_ranks(self, *, kill=False):
        if self.ranks:
            self.ranks.close(kill=kill)
        for thread in self.threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in self.threads)
