"""Prepare the coming micro-batches on the CPU while the device works, in page-locked memory for asynchronous copies.

One thread lays micro-batches out in a ring of slots, strictly in order: the result depends on the stream alone. The
thread makes no CUDA call, because a call from another thread spoils the capture of a graph. The consumer therefore
checks in `next` whether the device has read a slot (`event.query`, which never waits). A consumer that is `depth`
micro-batches ahead of the device waits there.

The number of supervised tokens of an optimizer step has to be known before its first micro-batch, so all of the step's
micro-batches are read first; the ring does not have to hold them all. Mismatched documents of all of them come before
the first one, because its gradient depends on the divergence that they estimate.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch

from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.fast.packed_batch import (
    BatchCounts,
    BucketLayout,
    Int32s,
    StepScalars,
    fill_buffer,
    layout_for,
    write_scalars,
)

_POLL_S = 0.0005  # while the device still has to read a slot: well under the time of any pass
_WAKE_S = 0.5  # otherwise; only so that Ctrl+C gets through on Windows


@dataclass(frozen=True)
class StepFacts:
    """Sizes and scalars of one optimizer step, known before its first micro-batch runs.

    Attributes:
        number: number of the step, from 1.
        micro_batches: number of micro-batches in the step.
        tokens: real tokens of all micro-batches.
        supervised: tokens of all micro-batches that the loss counts.
        scalars: normalizers and learning rate, already written into every micro-batch's buffer.
    """

    number: int
    micro_batches: int
    tokens: int
    supervised: int
    scalars: StepScalars


@dataclass(frozen=True, eq=False)
class HostBatch:
    """One micro-batch in host memory, ready to be uploaded.

    Attributes:
        step: step that the micro-batch belongs to.
        index: place within the step, from 0; -1 for mismatched documents, and where the step has none for us.
        layout: layout of the bucket.
        counts: numbers of tokens, supervised tokens, documents and head chunks.
        estimates_kl: whether the documents are mismatched ones, which are only read, to estimate a divergence.
        buffer: [layout.size] int32, in the slot.
        slot: number of the ring's slot; `Prefetcher.release` gives it back.
        is_last: whether the optimizer's update follows this micro-batch.
    """

    step: StepFacts
    index: int
    layout: BucketLayout
    counts: BatchCounts
    estimates_kl: bool
    buffer: torch.Tensor
    slot: int
    is_last: bool


@dataclass(frozen=True)
class NumberedBatches:
    """The micro-batches of one step, by their numbers among those of all steps.

    Attributes:
        batches: micro-batches of the step.
        first: number of the first one.
    """

    batches: Sequence[MicroBatch]
    first: int

    def __getitem__(self, index: int) -> MicroBatch:
        return self.batches[index - self.first]


class Prefetcher:
    """Lays out micro-batches `first` to `total` of a stream ahead of use; a context manager for one consumer thread.

    Args:
        source: micro-batches by number. The prefetcher's thread reads it; meanwhile other threads may only ask for
            micro-batches that were already delivered.
        layouts: one layout for each bucket; the smallest that fits is used.
        first: number of the first micro-batch; a multiple of `accumulation`.
        total: one past the number of the last micro-batch.
        accumulation: micro-batches of an optimizer step; the last step may have fewer.
        learning_rate: function from a step's number (from 1) to its learning rate.
        depth: number of slots in the ring.
        pinned: whether the slots are page-locked, for copies beside the device's work; needs CUDA.
        deal: function from a step's micro-batches to the indices of those to lay out, ascending; the others are another
            process's. Where there is none, one without tokens is delivered. None: all are ours.
    """

    def __init__(
        self,
        source: BatchStream | NumberedBatches | Sequence[MicroBatch],
        layouts: Sequence[BucketLayout],
        *,
        first: int,
        total: int,
        accumulation: int,
        learning_rate: Callable[[int], float],
        depth: int = 4,
        pinned: bool = False,
        deal: Callable[[Sequence[MicroBatch]], Sequence[int]] | None = None,
    ) -> None:
        if depth < 1 or accumulation < 1 or not layouts or first % accumulation:
            raise ValueError("a prefetcher needs a slot, a layout, and to begin where an optimizer step does")
        self._source, self._layouts = source, tuple(layouts)
        self._first, self._total, self._accumulation = first, total, accumulation
        self._learning_rate, self._deal = learning_rate, deal
        size = max(layout.size for layout in layouts)
        # Allocated here because page-locking is a CUDA call.
        self._slots = [torch.zeros(size, dtype=torch.int32, pin_memory=pinned) for _ in range(depth)]
        self._free = deque(range(depth))
        self._held: set[HostBatch] = set()
        self._copying: deque[tuple[int, torch.cuda.Event]] = deque()
        self._ready: deque[HostBatch] = deque()
        self._error: BaseException | None = None
        self._starved = self._done = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def next(self) -> HostBatch:
        """Return the next micro-batch; its slot belongs to the caller until `release`.

        Micro-batches prepared before an error are still delivered.

        Raises:
            IndexError: No micro-batch is left.
            RuntimeError: The prefetcher is closed, or the caller holds all slots.
            Exception: Reading or laying out failed in the thread; its own exception is raised.
        """
        with self._changed:
            while not self._closed:
                self._reclaim()
                if self._ready:
                    batch = self._ready.popleft()
                    self._held.add(batch)
                    return batch
                if self._error:
                    raise self._error
                if self._done:
                    raise IndexError("there are no micro-batches left")
                if self._starved and not self._free and not self._copying:
                    raise RuntimeError(f"all {len(self._slots)} slots are held; release one before the next pass")
                self._changed.wait(_POLL_S if self._copying else _WAKE_S)
        raise RuntimeError("the prefetcher is closed")

    def release(self, batch: HostBatch, event: torch.cuda.Event | None = None) -> None:
        """Give a slot back, to be overwritten once the event has come.

        Args:
            batch: micro-batch from `next`; its buffer must not be used any more.
            event: event recorded after the copy; None: nothing reads the slot any more.
        """
        with self._changed:
            if batch not in self._held:
                raise ValueError("this pass's slot was already released")
            self._held.remove(batch)
            if event is None:
                self._free.append(batch.slot)
                self._changed.notify_all()
            else:
                self._copying.append((batch.slot, event))

    def upload(self, batch: HostBatch, device_buffer: torch.Tensor) -> None:
        """Copy a micro-batch to the device on the current stream, without waiting, and release it.

        Args:
            batch: micro-batch from `next`.
            device_buffer: int32 tensor of at least `batch.layout.size` elements; all buckets may share one.
        """
        device_buffer[: batch.layout.size].copy_(batch.buffer, non_blocking=True)
        if not device_buffer.is_cuda:
            return self.release(batch)
        event = torch.cuda.Event()
        event.record()
        return self.release(batch, event)

    def close(self) -> None:
        """End the thread and wait for it. May be called again."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _reclaim(self) -> None:
        """Free the slots that the device has read."""
        while self._copying and self._copying[0][1].query():
            self._free.append(self._copying.popleft()[0])
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            for first in range(self._first, self._total, self._accumulation):
                if not self._prepare_step(first):
                    return
        except BaseException as error:  # noqa: BLE001  raised where it can be handled: in `next`
            self._error = error
        finally:
            with self._changed:
                self._done = True
                self._changed.notify_all()

    def _prepare_step(self, first: int) -> bool:
        """Lay out one optimizer step's micro-batches; return False when the prefetcher was closed meanwhile."""
        batches = []
        for index in range(first, min(first + self._accumulation, self._total)):
            if self._closed:
                return False
            batches.append(self._source[index])
        supervised = sum(batch.supervised_tokens for batch in batches)
        number = first // self._accumulation + 1
        scalars = self._scalars(batches, supervised, self._learning_rate(number))
        step = StepFacts(number, len(batches), sum(batch.tokens for batch in batches), supervised, scalars)
        # Every process reads all mismatched documents: the estimate that they make comes before any gradient.
        parts: list[tuple[int, MicroBatch | None]] = [(-1, part) for batch in batches for part in batch.mismatched]
        ours = self._deal(batches) if self._deal else range(len(batches))
        parts += [(index, batches[index]) for index in ours] or [(-1, None)]
        for place, (index, part) in enumerate(parts, start=1):
            slot = self._take_slot()
            if slot is None:
                return False
            batch = self._lay_out(step, index, part, slot, is_last=place == len(parts))
            with self._changed:
                self._ready.append(batch)
                self._changed.notify_all()
        return True

    def _lay_out(self, step: StepFacts, index: int, batch: MicroBatch | None, slot: int, *, is_last: bool) -> HostBatch:
        """Write a micro-batch into a slot; None: one without tokens, for a step of which no pass is ours."""
        layout = layout_for(batch.tokens if batch else 0, self._layouts)
        buffer = self._slots[slot][: layout.size]
        array: Int32s = buffer.numpy()
        counts = fill_buffer(batch, layout, array) if batch else BatchCounts(0, 0, 0, 0)
        write_scalars(step.scalars, layout, array)
        estimates_kl = batch is not None and index < 0
        return HostBatch(step, index, layout, counts, estimates_kl, buffer, slot, is_last)

    def _scalars(self, batches: Sequence[MicroBatch], supervised: int, learning_rate: float) -> StepScalars:
        content = self._layouts[0].content
        if content in ("rows", "own"):
            return StepScalars(1 / max(supervised, 1), learning_rate)
        rows = sum(len(batch.rows) for batch in batches)
        if content == "labels":
            good = sum(int(batch.desirable.sum()) for batch in batches if batch.desirable is not None)
            scales = (rows / count if count else math.nan for count in (good, rows - good))
            return StepScalars(1 / max(rows, 1), learning_rate, 0.0, *scales)
        chosen = sum(int(batch.sequence_tokens[::2].sum()) for batch in batches)
        return StepScalars(1 / max(rows, 1), learning_rate, 1 / max(chosen, 1))

    def _take_slot(self) -> int | None:
        """Wait for a free slot and take it; return None when the prefetcher is closed."""
        with self._changed:
            while not self._free and not self._closed:
                self._starved = True
                self._changed.notify_all()
                self._changed.wait()
            self._starved = False
            return None if self._closed else self._free.popleft()
