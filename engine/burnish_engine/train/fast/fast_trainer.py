"""The fast engine's optimizer step, queued on the device without waiting for it.

One step (`FastTrainer.step`), and the file of each part:

    wait while AHEAD steps are queued on the device             # here, else the host runs far ahead
    for each pass over mismatched documents, forward only:      # of kto alone: base/preference.py
        estimate += log-probabilities less the reference's      # reply_weights.py
    for each micro-batch of the step:                           # prefetch.py: a thread lays it out ahead
        copy its one buffer to the inputs, asynchronously       # prefetch.py; packed_batch.py: where each field lies
        hidden = decoder.forward(ids)                           # models/decoder/; layer_tensors.py there: what stays
        for each chunk of supervised tokens:                    # micro_batch_step.py: logits of one chunk at a time
            loss_sum += cross_entropy(head(hidden[chunk])) / n  # kernel cross_entropy; n: the step's supervised tokens
            hidden_gradient[chunk] = head gradient              # models/decoder/decoder.py
        scale gradients of preferences and own replies          # reply_weights.py: base/preference.py, base/policy.py
        decoder.backward(hidden_gradient)                       # models/decoder/decoder.py: adds to fp32 gradients
    add up gradients and losses of all ranks, if several        # base/exchange.py; train/parallel/
    optimizer.step()                                            # train/optimizers/; how far to clip: kernel adamw
    copy status and loss_sum to page-locked memory              # here (`_Readback`), asynchronous
    a step or two later: results() yields the step's numbers    # train/session.py takes them

Forward, head chunk, backward and update are replayed as CUDA graphs once they ran eagerly. A step without supervised
tokens makes no update. Optimizers of libraries are the exception: their update is never captured and waits for the
device once (`library_step`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import torch

from burnish_engine.contract.garbage import collection_paused
from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.contract.recipe.recipe_reinforce import ReinforceSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.models.decoder.layer_tensors import OFFLOADING
from burnish_engine.models.device.device import is_out_of_memory
from burnish_engine.models.host_memory.offloader import Offloader
from burnish_engine.train.base.engine import StepResult, whole_update
from burnish_engine.train.base.exchange import GradientExchange
from burnish_engine.train.base.policy import figures_from
from burnish_engine.train.base.preference import figures_of
from burnish_engine.train.fast.fast_model import TrainableDecoder
from burnish_engine.train.fast.micro_batch_step import CaptureMode, MicroBatchStep
from burnish_engine.train.fast.packed_batch import BucketLayout, LearnedObjective
from burnish_engine.train.fast.prefetch import HostBatch, Prefetcher, StepFacts
from burnish_engine.train.fast.reply_weights import SUMS, KlEstimate
from burnish_kernels.adamw.op import GRADIENT_NORM, LOSS_SCALE, TAKEN

AHEAD = 3  # steps queued on the device: enough that it never runs dry, few enough that stopping is prompt
_POLL_S = 0.0002
_LOSS = 4  # place of the loss after the optimizer's status
_Moment: TypeAlias = "float | torch.cuda.Event"  # a moment in time


class FastTrainer:
    """Runs optimizer steps of the fast engine.

    Args:
        model: decoder, adapter and optimizer.
        section: the recipe's training section.
        layouts: one layout for each bucket.
        levels: save level of each layer.
        graphs: whether to capture CUDA graphs after the first step.
        lockable: bytes of host memory that may be page-locked; None: as the system allows.
        objective: recipe section of the objective, where the layouts are not of rows as they stand.

    Attributes:
        offloader: host memory of offloaded activations; None where no layer offloads.
        stream: CUDA stream of all work; None on the CPU.
        problem: sentence on why graphs could not be captured; empty where they were, or were not wanted.
        exchange: exchange with the ranks that share the steps; None: all passes are made here.
    """

    exchange: GradientExchange | None = None

    def __init__(
        self,
        model: TrainableDecoder,
        section: TrainSection,
        layouts: Sequence[BucketLayout],
        levels: Sequence[SaveLevel],
        *,
        graphs: bool = True,
        lockable: int | None = None,
        objective: LearnedObjective | None = None,
    ) -> None:
        device = model.device
        self.model, self._section = model, section
        size = max(layout.size for layout in layouts)
        self._inputs = torch.zeros(size, dtype=torch.int32, device=device)
        self._loss_sum = torch.zeros(SUMS if objective else 1, dtype=torch.float32, device=device)
        offloads = bool(OFFLOADING.intersection(levels))
        self.offloader = Offloader(device, max(layout.capacity for layout in layouts), lockable) if offloads else None
        self._kl = KlEstimate(device)
        self.steps = {
            layout: MicroBatchStep(
                model, layout, self._inputs, levels, self._loss_sum, self.offloader, objective, self._kl
            )
            for layout in layouts
        }
        self.wants_graphs = graphs and device.type == "cuda"
        self._pool: tuple[int, int] | None = None
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self.stream:
            torch.cuda.empty_cache()  # what loading left unused is another stream's, and no pass could take it
        self._update_graph: torch.cuda.CUDAGraph | None = None
        self._updated = False  # its kernels are loaded: what is loaded within a capture breaks it
        self._results = _Readback(device, objective, self._check_ranks)
        self.ran: set[BucketLayout] = set()
        self.estimated: set[BucketLayout] = set()  # those in which mismatched documents were read
        self._is_cut = False
        self.problem = ""

    def step(self, prefetcher: Prefetcher) -> StepFacts:
        """Queue one optimizer step; wait only where the device is `AHEAD` steps behind.

        Args:
            prefetcher: source of micro-batches, at the beginning of a step.

        Raises:
            IndexError: No micro-batch is left.
        """
        self._results.wait_until_fewer_than(AHEAD)
        if self.stream:  # what was loaded or evaluated on the usual stream comes first
            self.stream.wait_stream(torch.cuda.current_stream(self.model.device))
        with self.on_stream():
            if self.stream and not self.ran:
                _take_workspace(self.model.device)
            self._results.begin()
            while True:
                batch = prefetcher.next()
                facts, last = batch.step, batch.is_last
                self._pass(prefetcher, batch)
                if last:
                    break
            if self.exchange:
                passes = facts.micro_batches if facts.supervised else 0
                self.exchange.sum(passes, self.model.optimizer.grad, self._loss_sum)
            try:
                self._update(facts)
            finally:  # the others wait for it, also where memory ran out in this update
                if self.exchange and self.exchange.unite(self.model.optimizer.param):
                    self.model.write_compute_copies()
        return facts

    def _check_ranks(self) -> None:
        if self.exchange:
            self.exchange.check()

    def on_stream(self) -> AbstractContextManager[object]:
        """Order the work inside after all steps queued so far and before those to come."""
        return torch.cuda.stream(self.stream) if self.stream else nullcontext()

    def results(self, *, wait: bool = False) -> Iterator[StepResult]:
        """Yield the results that arrived since the last call, in order; with `wait`, those of all queued steps."""
        return self._results.collect(wait=wait)

    def reset(self) -> None:
        """Wait for all queued work; drop its results and the gradients of an unfinished step."""
        for _ in self.results(wait=True):
            pass
        if self.stream:
            torch.cuda.synchronize(self.model.device)  # also for what another trainer of this model queued
        with self.on_stream():
            self.model.optimizer.grad.zero_()
            self._loss_sum.zero_()
            self._kl.reset()

    def _pass(self, prefetcher: Prefetcher, batch: HostBatch) -> None:
        step, ran = self.steps[batch.layout], self.estimated if batch.estimates_kl else self.ran
        prefetcher.upload(batch, self._inputs)
        captured = step.has_captured(estimates_kl=batch.estimates_kl)
        if self.wants_graphs and not captured and batch.layout in ran:
            self.problem = self._pageable
            self.wants_graphs = not self.problem
            if self.wants_graphs:
                self._capture(step, estimates_kl=batch.estimates_kl)
        if self.model.loaded.plan.dropout and not batch.estimates_kl:
            index = (batch.step.number - 1) * self._section.accumulation + batch.index
            self.model.dropout_seed.fill_(dropout_seed(self._section.seed, index))
        with self._memory_of(step, estimates_kl=batch.estimates_kl):
            if batch.estimates_kl:
                step.estimate_kl(batch.counts)
            else:
                step.run(batch.counts, self._between(batch, step))
        if batch.counts.head_chunks:
            ran.add(batch.layout)
        if self.exchange and batch.index >= 0:
            self.exchange.pass_done(batch.index, self.model.optimizer.grad, self._loss_sum)

    def cut_backward(self, cuts: Sequence[int]) -> None:
        """Make backward passes in parts from now on; see `MicroBatchStep.cut_backward`."""
        for step in self.steps.values():
            step.cut_backward(cuts)
        self._is_cut = bool(cuts)

    def _between(self, batch: HostBatch, step: MicroBatchStep) -> Callable[[int], None] | None:
        """Make the function that exchanges slices within a pass; None where that has to wait.

        Once slices are exchanged, the step cannot be dropped: nothing of the pass may run out of memory any more.
        """
        exchange, gradient = self.exchange, self.model.optimizer.grad
        is_safe = self.stream is None or step.has_captured(estimates_kl=False)
        if exchange is None or not (self._is_cut and exchange.overlaps and batch.is_last and is_safe):
            return None

        def between(parts: int) -> None:
            if parts:
                exchange.sum_slice(parts - 1, gradient)
            else:
                exchange.begin(batch.step.micro_batches, gradient, self._loss_sum)

        return between

    @property
    def _pageable(self) -> str:
        """Why copies go through memory that is not page-locked and cannot be captured, as a sentence; or empty."""
        return self.model.loaded.decoder.ring.problem or (self.offloader.problem if self.offloader else "")

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
            self.model.loaded.decoder.expire_magnitudes()
        self._results.push(facts, optimizer.status, self._loss_sum)
        self._loss_sum.zero_()
        self._kl.reset()

    def _memory_of(self, step: MicroBatchStep, *, estimates_kl: bool) -> AbstractContextManager[object]:
        """Let an eager micro-batch allocate in the graphs' pool once a bucket was captured; the pool is idle then.

        Outside the pool, the first micro-batch of each further bucket would need as much memory again.
        """
        return nullcontext() if step.has_captured(estimates_kl=estimates_kl) else self.idle_memory()

    def idle_memory(self) -> AbstractContextManager[object]:
        """Let allocations inside use the memory of captured micro-batches, which is idle between steps.

        The caller must free everything before the next step, and queue the work on `stream`.
        """
        if self._pool is None or not any(step.captured for step in self.steps.values()):
            return nullcontext()
        torch.cuda.empty_cache()  # what lies unused outside cannot be taken from within
        pool = cast("torch.cuda.MemPool", SimpleNamespace(id=self._pool))  # of a pool that graphs own, nothing else
        return torch.cuda.use_mem_pool(pool, self.model.device)

    def idle_blocks(self) -> list[int]:
        """Return the bytes of each free block of the memory that `idle_memory` uses; none before a capture."""
        if self._pool is None or not any(step.captured for step in self.steps.values()):
            return []
        return [
            block["size"]
            for segment in torch.cuda.memory_snapshot()
            if tuple(segment["segment_pool_id"]) == tuple(self._pool) and segment["segment_type"] == "large"
            for block in segment["blocks"]
            if block["state"] == "inactive"
        ]

    def _capture(self, step: MicroBatchStep, *, estimates_kl: bool = False) -> None:
        """Capture a bucket's graphs; on failure continue eagerly, with the same numbers."""
        assert self.stream is not None
        with self._or_stay_eager():
            if self._pool is None:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()  # what the eager passes used is now the graphs' to have
                self._pool = torch.cuda.graph_pool_handle()
            step.capture(self._pool, self.stream, estimates_kl=estimates_kl, mode=self._capture_mode)

    @property
    def _capture_mode(self) -> CaptureMode:
        """The mode that lets the threads of a process group be; they live as long as it does, in a dry run too."""
        group = torch.distributed.is_available() and torch.distributed.is_initialized()
        return "thread_local" if group else "global"

    def _capture_update(self) -> None:
        """Capture the optimizer's update after it ran once; on failure continue eagerly."""
        if not (self._updated and self.wants_graphs and self._pool and self.model.optimizer.capturable):
            return
        with self._or_stay_eager():
            graph = torch.cuda.CUDAGraph()
            mode = self._capture_mode
            recording = torch.cuda.graph(graph, pool=self._pool, stream=self.stream, capture_error_mode=mode)
            with collection_paused(), recording:
                self.model.optimizer.step()
            self._update_graph = graph

    @contextmanager
    def _or_stay_eager(self) -> Iterator[None]:
        """Handle a failed capture inside: note the problem and capture nothing from then on."""
        try:
            yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            self.wants_graphs = False
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self.problem = (
                f"CUDA graphs could not be captured ({lines[0]}); training continues without them, more slowly."
            )


def _take_workspace(device: torch.device) -> None:
    """Make cuBLAS allocate its workspace for the current stream now.

    Allocated in the middle of the first micro-batch, it splits a free block that the largest tensors need: with 139,264
    tokens of an 8B model, these 32 MiB cost 1.6 GiB.
    """
    one = torch.zeros(16, 16, device=device)
    torch.mm(one, one)


def dropout_seed(run_seed: int, index: int) -> int:
    """Derive the seed of a micro-batch's dropout from its number alone, so that a resumed run draws the same.

    Args:
        run_seed: seed of the run, 0 to 2^32 - 1.
        index: number of the micro-batch from the start of the run.
    """
    bits = (run_seed << 32) | (index & 0xFFFFFFFF)
    return bits - (1 << 64) if bits >> 63 else bits  # as a signed number


class _Readback:
    """Copies the status of queued steps to the host and turns it into results as it arrives."""

    def __init__(self, device: torch.device, objective: LearnedObjective | None, check: Callable[[], None]) -> None:
        self._cuda, self._objective, self._check = device.type == "cuda", objective, check
        count, losses = 4 * AHEAD, SUMS if objective else 1
        self._slots = torch.zeros(count, _LOSS + losses, dtype=torch.float32, pin_memory=self._cuda)
        self._next = 0
        self._pending: deque[tuple[StepFacts, int, _Moment, _Moment]] = deque()
        self._arrived: deque[StepResult] = deque()
        self._began = self._mark()

    def _mark(self) -> _Moment:
        """Record the current moment: an event on the device, else the clock."""
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        """Start the clock of a step: now, or at the end of the step before it where that is still queued."""
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
            self._check()
            time.sleep(_POLL_S)

    def collect(self, *, wait: bool) -> Iterator[StepResult]:
        if wait:
            self.wait_until_fewer_than(1)
        else:
            self._poll()
        while self._arrived:
            yield self._arrived.popleft()

    def _poll(self) -> int:
        """Collect the results that have arrived, and return the number of steps still queued."""
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
                    **self._figures(values[_LOSS + 1 :]),
                )
            )
        return len(self._pending)

    def _figures(self, values: Sequence[float]) -> dict[str, Any]:
        if self._objective is None:
            return {}
        if isinstance(self._objective, ReinforceSection):
            return {"replies": figures_from(self._objective, values)}
        return {"preference": figures_of(self._objective, values)}


def _seconds(began: _Moment, end: _Moment) -> float:
    if isinstance(began, float):
        return end - began
    return float(began.elapsed_time(end)) / 1000
