"""Prepare the coming passes on the CPU while the device works, in page-locked memory that it can copy from by itself.

One thread lays micro-batches out in a ring of slots, strictly in order: what it delivers depends on the stream alone.
It makes no CUDA call, because while a graph is captured, one from another thread would spoil the capture. So whether
the device has read a slot is asked (`event.query`, which never waits) by the consumer, in `next`. A consumer that is
`depth` passes ahead of the device waits there.

How much one optimizer step learns from has to be known before its first pass, so all its micro-batches are read first;
the ring does not have to hold them all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import torch

from burnish_engine.data.pack import MicroBatch
from burnish_engine.train.packed_batch import (
    Counts,
    Int32s,
    PackedLayout,
    StepScalars,
    fill_buffer,
    layout_for,
    write_scalars,
)

_POLL_S = 0.0005  # while the device still has to read a slot: well under the time of any pass
_WAKE_S = 0.5  # otherwise; only so that Ctrl+C gets through on Windows


class Source(Protocol):
    """What `BatchStream` is to this module."""

    def __getitem__(self, index: int) -> MicroBatch:
        """Micro-batch by its number from the start of the run."""
        ...


class Event(Protocol):
    """What `torch.cuda.Event` is to this module."""

    def query(self) -> bool:
        """Whether the device has passed it."""
        ...


@dataclass(frozen=True)
class StepFacts:
    """One optimizer step.

    Attributes:
        number: From 1.
        micro_batches: Passes of the step.
        tokens: Real tokens of all its passes.
        supervised: Tokens of all its passes that the loss counts.
        scalars: Already in every pass's buffer.
    """

    number: int
    micro_batches: int
    tokens: int
    supervised: int
    scalars: StepScalars


@dataclass(frozen=True, eq=False)
class HostBatch:
    """One pass, ready to be uploaded.

    Attributes:
        step: The step it belongs to.
        index: Its place in the step, from 0.
        layout: Of its bucket.
        counts: Tokens, supervised rows, chunks of the head.
        buffer: [layout.size] int32, in the slot.
        slot: Which slot of the ring; `Prefetcher.release` gives it back.
    """

    step: StepFacts
    index: int
    layout: PackedLayout
    counts: Counts
    buffer: torch.Tensor
    slot: int

    @property
    def is_last(self) -> bool:
        """Whether the optimizer's update comes after this pass."""
        return self.index == self.step.micro_batches - 1


class Prefetcher:
    """Micro-batches `first` to `total` of a stream, laid out. Use as a context manager, from one thread.

    Args:
        source: The micro-batches. It is read from the prefetcher's thread; meanwhile others may only ask it about
            micro-batches that were already delivered.
        layouts: One for each bucket; the smallest that fits is used.
        first: Number of the first micro-batch; a multiple of `accumulation`.
        total: One past the last.
        accumulation: Micro-batches of an optimizer step; the last step may have fewer.
        learning_rate: Of a step, by its number from 1.
        depth: Slots of the ring.
        pinned: Page-locked memory, for copies beside the device's work. Needs CUDA.
    """

    def __init__(
        self,
        source: Source,
        layouts: Sequence[PackedLayout],
        *,
        first: int,
        total: int,
        accumulation: int,
        learning_rate: Callable[[int], float],
        depth: int = 4,
        pinned: bool = False,
    ) -> None:
        if depth < 1 or accumulation < 1 or not layouts or first % accumulation:
            raise ValueError("a prefetcher needs a slot, a layout, and to begin where an optimizer step does")
        self._source, self._layouts = source, tuple(layouts)
        self._first, self._total, self._accumulation = first, total, accumulation
        self._learning_rate = learning_rate
        size = max(layout.size for layout in layouts)
        # Allocated here because page-locking is a CUDA call.
        self._slots = [torch.zeros(size, dtype=torch.int32, pin_memory=pinned) for _ in range(depth)]
        self._free = deque(range(depth))
        self._held: set[HostBatch] = set()
        self._copying: deque[tuple[int, Event]] = deque()
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
        """The next pass; its slot is the caller's until `release`. Passes prepared before an error still come.

        Raises:
            IndexError: There is none left.
            RuntimeError: The prefetcher is closed, or all slots are the caller's.
            Exception: What reading or laying out raised, as it was raised in the thread.
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

    def release(self, batch: HostBatch, event: Event | None = None) -> None:
        """Give the slot back, to be overwritten once the event has come.

        Args:
            batch: What `next` returned; its buffer must not be used any more.
            event: Recorded after the copy; None: nothing reads the slot any more.
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
        """Copy a pass to the device on the current stream, without waiting, and release it.

        Args:
            batch: What `next` returned.
            device_buffer: int32, at least `batch.layout.size` elements. All buckets may share one.
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
        """Lay one optimizer step's passes out; False when the prefetcher was closed meanwhile."""
        batches = []
        for index in range(first, min(first + self._accumulation, self._total)):
            if self._closed:
                return False
            batches.append(self._source[index])
        supervised = sum(batch.supervised_tokens for batch in batches)
        number = first // self._accumulation + 1
        scalars = StepScalars(1 / max(supervised, 1), self._learning_rate(number))
        step = StepFacts(number, len(batches), sum(batch.tokens for batch in batches), supervised, scalars)
        for index, batch in enumerate(batches):
            slot = self._take_slot()
            if slot is None:
                return False
            layout = layout_for(batch.tokens, self._layouts)
            buffer = self._slots[slot][: layout.size]
            array: Int32s = buffer.numpy()
            counts = fill_buffer(batch, layout, array)
            write_scalars(scalars, layout, array)
            with self._changed:
                self._ready.append(HostBatch(step, index, layout, counts, buffer, slot))
                self._changed.notify_all()
        return True

    def _take_slot(self) -> int | None:
        """A free slot, waited for; None when the prefetcher is closed."""
        with self._changed:
            while not self._free and not self._closed:
                self._starved = True
                self._changed.notify_all()
                self._changed.wait()
            self._starved = False
            return None if self._closed else self._free.popleft()
