"""Processes batches of rows in several processes and returns the results in the order of the batches.

Processes are spawned on every system, because a fork of a process with threads or a CUDA context is not safe. They load
no torch.
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
from burnish_engine.data.pipeline.row_pipeline import PipelineSpec, RowBatch, RowPipeline
from burnish_engine.data.tokens.shard import Shard

MOST_WORKERS = 8
"""Most processes by default, one per core; each takes about 100 MB."""
_BATCHES_IN_FLIGHT = 2  # batches in flight for each process

_worker: list[RowPipeline] = []  # of a spawned process


def default_workers() -> int:
    """Return how many processes suit this machine: one per usable core, at most `MOST_WORKERS`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_WORKERS)


def can_spawn() -> bool:
    """Whether this process may start children; daemonic workers of other pools may not."""
    return not multiprocessing.current_process().daemon


@dataclass(frozen=True)
class BatchResult:
    """The documents of one batch of rows.

    Attributes:
        source: index of the batch's part.
        position: index of the batch's first row among the part's rows, from 0.
        rows: number of rows in the batch.
        chars: number of characters in the batch.
        shard: documents of the rows.
    """

    source: int
    position: int
    rows: int
    chars: int
    shard: Shard


def process_batches(
    batches: Iterable[RowBatch], spec: PipelineSpec, workers: int
) -> Generator[BatchResult, None, None]:
    """Process each batch and yield the results in order. The processes end when the generator is closed or fails.

    Args:
        batches: batches of rows, taken a few ahead.
        spec: settings that decide what becomes of a row.
        workers: number of processes; 1 or fewer processes the rows in this one.

    Raises:
        DataError: A row is broken and the recipe does not drop such rows, or the template is hostile.
        SetupError: A process died.
    """
    if workers <= 1 or not can_spawn():
        here = RowPipeline(spec)
        for batch in batches:
            yield _result(batch, here.process(batch))
        return
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(spec,),
    )
    running = deque[tuple[RowBatch, Future[Shard]]]()

    def first() -> BatchResult:
        batch, future = running.popleft()
        return _result(batch, future.result())

    try:
        for batch in batches:
            running.append((batch, pool.submit(_process_batch, batch)))
            if len(running) >= _BATCHES_IN_FLIGHT * workers:
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


def _result(batch: RowBatch, shard: Shard) -> BatchResult:
    chars = sum(len(text) + 1 for _, text, _ in batch.rows)
    return BatchResult(batch.source, batch.position, len(batch.rows), chars, shard)


def _start_worker(spec: PipelineSpec) -> None:
    """Build the row pipeline of a new process, and end that process together with its parent."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes share the cores already
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent.sentinel,), daemon=True).start()
    _worker.append(RowPipeline(spec))


def _exit_with_parent(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _process_batch(batch: RowBatch) -> Shard:
    return _worker[0].process(batch)
