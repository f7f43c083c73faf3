"""The fast engine's optimizer step: uploads, passes, update, and results read back without waiting for the device.

The host queues work and is at most `AHEAD` steps ahead of the device. What a step found (loss, gradient norm, whether
it was taken) is copied to page-locked memory behind it and read when it has arrived, a step or two later. Optimizers of
libraries are the exception: their update is never captured and waits for the device once (`library_step`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextlib import nullcontext as _nothing
from types import SimpleNamespace
from typing import TypeAlias, cast

import torch

from burnish_engine.contract.recipe_train import TrainSection
from burnish_engine.models.device import is_out_of_memory
from burnish_engine.models.keep import Keep
from burnish_engine.models.offload import Offload
from burnish_engine.train.engine import StepResult, whole_update
from burnish_engine.train.fast_model import TrainableDecoder
from burnish_engine.train.fast_pass import LossOptions, PassProgram
from burnish_engine.train.packed_batch import PackedLayout
from burnish_engine.train.prefetch import HostBatch, Prefetcher, StepFacts
from burnish_kernels.adamw.op import GRADIENT_NORM, LOSS_SCALE, TAKEN

AHEAD = 3  # steps queued on the device: enough that it never runs dry, few enough that stopping is prompt
_POLL_S = 0.0002
_LOSS = 4  # place of the loss after the optimizer's status
_Mark: TypeAlias = "float | torch.cuda.Event"  # a moment


class FastTrainer:
    """Runs optimizer steps of the fast engine.

    Args:
        model: What is trained.
        section: The recipe's training section.
        layouts: The buckets.
        keep: Per layer, what forward passes keep.
        options: Variants of the loss.
        graphs: Capture CUDA graphs after the first step.
        lockable: Bytes of host memory that may be page-locked; None: as the system allows.

    Attributes:
        offload: Host memory of what layers keep there; None where none does.
        stream: What everything is queued on; None on the CPU.
        problem: Why graphs could not be captured, as a sentence; empty where they were, or were not wanted.
    """

    def __init__(
        self,
        model: TrainableDecoder,
        section: TrainSection,
        layouts: Sequence[PackedLayout],
        keep: Sequence[Keep],
        *,
        options: LossOptions | None = None,
        graphs: bool = True,
        lockable: int | None = None,
    ) -> None:
        device = model.device
        self.model, self._section = model, section
        size = max(layout.size for layout in layouts)
        self._inputs = torch.zeros(size, dtype=torch.int32, device=device)
        self._loss_sum = torch.zeros(1, dtype=torch.float32, device=device)
        parks = any(policy.host for policy in keep)
        self.offload = Offload(device, max(layout.rows for layout in layouts), lockable) if parks else None
        self._programs = {
            layout: PassProgram(model, layout, self._inputs, keep, self._loss_sum, options, self.offload)
            for layout in layouts
        }
        self._wants_graphs = graphs and device.type == "cuda"
        self._pool: tuple[int, int] | None = None
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self.stream:
            torch.cuda.empty_cache()  # what loading left unused is another stream's, and no pass could take it
        self._update_graph: torch.cuda.CUDAGraph | None = None
        self._updated = False  # its kernels are loaded: what is loaded within a capture breaks it
        self._results = _Readback(device)
        self._ran: set[PackedLayout] = set()
        self.problem = ""

    def step(self, prefetcher: Prefetcher) -> StepFacts:
        """Queue one optimizer step. Waits only where the device is `AHEAD` steps behind.

        Args:
            prefetcher: At the beginning of a step.

        Raises:
            IndexError: There is none left.
        """
        self._results.wait_until_fewer_than(AHEAD)
        if self.stream:  # what was loaded or evaluated on the usual stream comes first
            self.stream.wait_stream(torch.cuda.current_stream(self.model.device))
        with self.on_stream():
            if self.stream and not self._ran:
                _take_workspace(self.model.device)
            self._results.begin()
            while True:
                batch = prefetcher.next()
                facts, last = batch.step, batch.is_last
                self._pass(prefetcher, batch)
                if last:
                    break
            self._update(facts)
        return facts

    def on_stream(self) -> AbstractContextManager[object]:
        """What is done within comes after all steps queued so far, and before those to come."""
        return torch.cuda.stream(self.stream) if self.stream else _nothing()

    def results(self, *, wait: bool = False) -> Iterator[StepResult]:
        """Results that have arrived since, in order; with `wait`, those of all queued steps."""
        return self._results.collect(wait=wait)

    def begin_anew(self) -> None:
        """Wait for what is queued, and drop its results and what an unfinished step left."""
        for _ in self.results(wait=True):
            pass
        if self.stream:
            torch.cuda.synchronize(self.model.device)  # also for what another trainer of this model queued
        with self.on_stream():
            self.model.optimizer.grad.zero_()
            self._loss_sum.zero_()

    def _pass(self, prefetcher: Prefetcher, batch: HostBatch) -> None:
        program = self._programs[batch.layout]
        prefetcher.upload(batch, self._inputs)
        if self._wants_graphs and not program.captured and batch.layout in self._ran:
            if self.offload is not None and self.offload.problem:
                self._wants_graphs, self.problem = False, self.offload.problem
            else:
                self._capture(program)
        if self.model.loaded.plan.dropout:
            index = (batch.step.number - 1) * self._section.accumulation + batch.index
            self.model.dropout_seed.fill_(dropout_seed(self._section.seed, index))
        with self._memory_of(program):
            program.run(batch.counts)
        if batch.counts.head_chunks:
            self._ran.add(batch.layout)

    def _update(self, facts: StepFacts) -> None:
        optimizer = self.model.optimizer
        optimizer.set_control(self.model.control(self._section, facts.scalars.learning_rate))
        if facts.supervised:  # else nothing was learned, and no moment decays
            if self._update_graph is None:
                self._capture_update()
            if self._update_graph:
                self._update_graph.replay()
            else:
                with whole_update():
                    optimizer.step()
                self._updated = True
        self._results.push(facts, optimizer.status, self._loss_sum)
        self._loss_sum.zero_()

    def _memory_of(self, program: PassProgram) -> AbstractContextManager[object]:
        """Where an eager pass allocates: once a bucket was captured, in the graphs' pool, which is idle between passes.

        Outside it, the first pass of each further bucket would need as much memory again.
        """
        return _nothing() if program.captured else self.idle_memory()

    def idle_memory(self) -> AbstractContextManager[object]:
        """What is allocated within takes the captured passes' memory, which is idle between steps.

        Everything has to be freed again before the next step, and the work has to be on `stream`.
        """
        if self._pool is None or not any(program.captured for program in self._programs.values()):
            return _nothing()
        torch.cuda.empty_cache()  # what lies unused outside cannot be taken from within
        pool = cast("torch.cuda.MemPool", SimpleNamespace(id=self._pool))  # of a pool that graphs own, nothing else
        return torch.cuda.use_mem_pool(pool, self.model.device)

    def _capture(self, program: PassProgram) -> None:
        """Capture a bucket; on failure go on eagerly, which computes the same."""
        assert self.stream is not None
        with self._or_go_on_without():
            if self._pool is None:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()  # what the eager passes used is now the graphs' to have
                self._pool = torch.cuda.graph_pool_handle()
            program.capture(self._pool, self.stream)

    def _capture_update(self) -> None:
        """Capture the optimizer's step, which has run once; on failure go on eagerly."""
        if not (self._updated and self._wants_graphs and self._pool and self.model.optimizer.capturable):
            return
        with self._or_go_on_without():
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self.stream):
                self.model.optimizer.step()
            self._update_graph = graph

    @contextmanager
    def _or_go_on_without(self) -> Iterator[None]:
        """Within, something is captured; what cannot be is told, and nothing is captured from then on."""
        try:
            yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            self._wants_graphs = False
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self.problem = (
                f"CUDA graphs could not be captured ({lines[0]}); training goes on without them, more slowly."
            )


def _take_workspace(device: torch.device) -> None:
    """Have cuBLAS take the memory that it keeps for the current stream.

    In the middle of the first pass it would come to lie in a hole that the largest tensors need: of 139,264 tokens of
    an 8B, 32 MiB there cost 1.6 GiB.
    """
    one = torch.zeros(16, 16, device=device)
    torch.mm(one, one)


def dropout_seed(run_seed: int, index: int) -> int:
    """Seed of a micro-batch's dropout: of its number alone, so that a resumed run draws what the whole one would have.

    Args:
        run_seed: 0 to 2^32 - 1.
        index: Micro-batch from the start of the run.
    """
    bits = (run_seed << 32) | (index & 0xFFFFFFFF)
    return bits - (1 << 64) if bits >> 63 else bits  # as a signed number


class _Readback:
    """Status of queued steps on its way to the host."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        count = 4 * AHEAD
        self._slots = torch.zeros(count, 5, dtype=torch.float32, pin_memory=self._cuda)
        self._next = 0
        self._pending: deque[tuple[StepFacts, int, _Mark, _Mark]] = deque()
        self._arrived: deque[StepResult] = deque()
        self._began = self._mark()

    def _mark(self) -> _Mark:
        """Now, on the device where there is one."""
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        """A step begins: it takes from here, or from the end of the step before it where that is still queued."""
        if not self._pending:
            self._began = self._mark()

    def push(self, facts: StepFacts, status: torch.Tensor, loss: torch.Tensor) -> None:
        slot = self._slots[self._next]
        slot[:_LOSS].copy_(status, non_blocking=True)
        slot[_LOSS:].copy_(loss, non_blocking=True)
        end = self._mark()
        self._pending.append((facts, self._next, self._began, end))
        self._began = end
        self._next = (self._next + 1) % len(self._slots)

    def wait_until_fewer_than(self, count: int) -> None:
        while self._poll() >= count:
            time.sleep(_POLL_S)

    def collect(self, *, wait: bool) -> Iterator[StepResult]:
        if wait:
            self.wait_until_fewer_than(1)
        else:
            self._poll()
        while self._arrived:
            yield self._arrived.popleft()

    def _poll(self) -> int:
        """Take in what has arrived; returns how many steps are still on their way."""
        while self._pending:
            facts, slot, began, end = self._pending[0]
            if not isinstance(end, float) and not end.query():
                break
            self._pending.popleft()
            values = self._slots[slot].tolist()
            self._arrived.append(
                StepResult(
                    step=facts.number,
                    micro_batches=facts.micro_batches,
                    tokens=facts.tokens,
                    supervised=facts.supervised,
                    loss=values[_LOSS],
                    grad_norm=values[GRADIENT_NORM] if facts.supervised else 0.0,
                    learning_rate=facts.scalars.learning_rate,
                    taken=bool(values[TAKEN]) or not facts.supervised,
                    loss_scale=values[LOSS_SCALE],
                    seconds=_seconds(began, end),
                )
            )
        return len(self._pending)


def _seconds(began: _Mark, end: _Mark) -> float:
    if isinstance(began, float):
        return end - began
    return float(began.elapsed_time(end)) / 1000
