"""Batches of rows worked on by several processes, their results in the order of the batches.

Processes are spawned, on every system alike: a fork of a process with threads, or with a CUDA context, is not safe.
They load no torch.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait

from burnish_engine.contract.errors import SetupError
from burnish_engine.data.shard import Shard
from burnish_engine.data.work import Batch, Instructions, Worker

MOST_WORKERS = 8
"""Processes by default, where there are as many cores; each takes about 100 MB."""
_WAITING = 2  # batches in flight for each process

_worker: list[Worker] = []  # of a spawned process


def default_workers() -> int:
    """How many processes suit this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_WORKERS)


def can_spawn() -> bool:
    """Whether this process may have children; workers of some pools may not."""
    return not multiprocessing.current_process().daemon


@dataclass(frozen=True)
class Done:
    """What became of a batch.

    Attributes:
        source: Index of its part.
        position: Place of its first row among the part's rows.
        rows: How many rows it had.
        chars: And how many characters.
        shard: Their documents.
    """

    source: int
    position: int
    rows: int
    chars: int
    shard: Shard


def worked(batches: Iterable[Batch], instructions: Instructions, workers: int) -> Generator[Done, None, None]:
    """Each batch's result, in order. Ends its processes when it is closed or fails.

    Args:
        batches: Taken as they are needed, a few ahead.
        instructions: What to do.
        workers: Processes; 1 or fewer works in this one.

    Raises:
        DataError: As `Worker.work`.
        SetupError: A process died.
    """
    if workers <= 1 or not can_spawn():
        here = Worker(instructions)
        for batch in batches:
            yield _done(batch, here.work(batch))
        return
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(instructions,),
    )
    running = deque[tuple[Batch, Future[Shard]]]()

    def first() -> Done:
        batch, future = running.popleft()
        return _done(batch, future.result())

    try:
        for batch in batches:
            running.append((batch, pool.submit(_work, batch)))
            if len(running) >= _WAITING * workers:
                yield first()
        while running:
            yield first()
    except BrokenProcessPool as error:
        raise SetupError(
            "A process that tokenizes rows was ended from outside, perhaps by the system for lack of memory.",
            "Close other programs, or set data.workers = 1.",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _done(batch: Batch, shard: Shard) -> Done:
    chars = sum(len(text) + 1 for _, text, _ in batch.rows)
    return Done(batch.source, batch.position, len(batch.rows), chars, shard)


def _begin(instructions: Instructions) -> None:
    """In a new process: make the worker, and see to it that the process does not outlive the one that started it."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes share the cores already
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _worker.append(Worker(instructions))


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _work(batch: Batch) -> Shard:
    return _worker[0].work(batch)
