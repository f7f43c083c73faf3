"""Forward, head and backward of one bucket, over buffers at fixed addresses; captured as CUDA graphs where possible.

A micro-batch runs in three phases, because the number of supervised tokens changes from one to the next while a graph
does not: forward; one chunk of the head (logits, loss, gradient), repeated for each chunk; backward. A counter on the
device holds the number of the chunk. All buckets share one memory pool: only one micro-batch runs at a time, and it
always runs its phases in the order of their capture.

Preferences take the same phases and no more passes through the head: its chunks write the gradients of plain cross
entropy and keep the losses, and before the backward each token's gradient is multiplied by the number that its
sequence's loss says (`reply_weights`). Where that loss needs an estimate of the divergence from the reference, passes
over mismatched documents come first; they have two phases of their own, forward and head chunk, and save nothing.

The eager form runs the same functions, so it computes the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import torch

from burnish_engine.contract.garbage import collection_paused
from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.models.decoder.decoder import ForwardPass
from burnish_engine.models.decoder.layer_tensors import OFFLOADING
from burnish_engine.models.host_memory.offloader import Offloader
from burnish_engine.train.fast.fast_evaluate import without_dropout
from burnish_engine.train.fast.fast_model import TrainableDecoder
from burnish_engine.train.fast.packed_batch import BatchCounts, BucketLayout, LearnedObjective, sequence_metadata
from burnish_engine.train.fast.reply_weights import KlEstimate, token_weights
from burnish_kernels.cross_entropy import op as cross_entropy

CaptureMode = Literal["global", "thread_local"]
"""Which CUDA calls spoil a capture. NCCL has threads that ask after events: beside it, only our own may."""


class MicroBatchStep:
    """Runs the three phases of a micro-batch in one bucket.

    Args:
        model: decoder, adapter and optimizer.
        layout: layout of the bucket.
        inputs: int32 on the device, at least `layout.size` elements; upload a micro-batch there, then `run`.
        levels: save level of each layer.
        loss_sum: fp32 [1] on the device; each micro-batch adds its summed loss times the normalizer. Of preferences,
            fp32 [SUMS]: also the fields of `PreferenceFigures` or `ReplyFigures`.
        offloader: host memory of offloaded activations; None: one of this bucket's own, if a layer offloads.
        objective: recipe section of the objective, where the layout is not of rows as they stand.
        kl: estimate of the step's divergence, which all buckets share; None: one of this bucket's own.
    """

    def __init__(
        self,
        model: TrainableDecoder,
        layout: BucketLayout,
        inputs: torch.Tensor,
        levels: Sequence[SaveLevel],
        loss_sum: torch.Tensor,
        offloader: Offloader | None = None,
        objective: LearnedObjective | None = None,
        kl: KlEstimate | None = None,
    ) -> None:
        assert (layout.content != "rows") == (objective is not None)
        self.layout, self._objective, self._kl = layout, objective, kl or KlEstimate(inputs.device)
        if offloader is None and OFFLOADING.intersection(levels):
            offloader = Offloader(inputs.device, layout.capacity)
        self._offloader = offloader
        self._model, self._levels, self._loss_sum = model, levels, loss_sum
        self._fields = layout.views(inputs)
        self.metadata = sequence_metadata(layout, self._fields)
        self._chunk = torch.zeros(1, dtype=torch.int64, device=inputs.device)
        self._done: ForwardPass | None = None
        self._gradient_TE: torch.Tensor | None = None
        self._loss_R: torch.Tensor | None = None
        self._unit = torch.ones(1, dtype=torch.float32, device=inputs.device)
        self._graphs: dict[bool, tuple[torch.cuda.CUDAGraph, ...]] = {}
        self._cuts: tuple[int, ...] = ()
        self._layers: Iterator[int] = iter(())  # of a backward pass under way

    def cut_backward(self, cuts: Sequence[int]) -> None:
        """Make the backward pass in parts from now on; graphs that were captured are forgotten.

        Args:
            cuts: numbers of the lowest layer of each part but the last, descending.
        """
        if tuple(cuts) != self._cuts:
            self._cuts = tuple(cuts)
            self._graphs.pop(False, None)

    @property
    def captured(self) -> bool:
        """Whether any of `run` and `estimate_kl` replays graphs."""
        return bool(self._graphs)

    def has_captured(self, *, estimates_kl: bool) -> bool:
        """Return whether `run`, or `estimate_kl`, replays graphs."""
        return estimates_kl in self._graphs

    def run(self, counts: BatchCounts, between: Callable[[int], None] | None = None) -> None:
        """Accumulate the loss and the adapters' gradients of the uploaded micro-batch.

        Args:
            counts: counts of that micro-batch; without supervised tokens nothing is done.
            between: function called before the backward pass, and when each part of it is queued, with the number of
                parts so far.
        """
        if not counts.head_chunks:
            return
        forward, head_chunk, *backward = self._phases(estimates_kl=False)
        forward()
        for _ in range(counts.head_chunks):
            head_chunk()
        if between:
            between(0)
        for number, part in enumerate(backward, start=1):
            part()
            if between:
                between(number)

    def estimate_kl(self, counts: BatchCounts) -> None:
        """Add the uploaded mismatched documents to the estimate of the step's divergence.

        Args:
            counts: counts of that micro-batch; without supervised tokens nothing is done.
        """
        if not counts.head_chunks:
            return
        forward, head_chunk = self._phases(estimates_kl=True)
        forward()
        for _ in range(counts.head_chunks):
            head_chunk()
        self._done = None

    def capture(
        self,
        pool: tuple[int, int],
        stream: torch.cuda.Stream,
        *,
        estimates_kl: bool = False,
        mode: CaptureMode = "global",
    ) -> None:
        """Record the phases as graphs; nothing is computed. The kernels must have run once before.

        Args:
            pool: handle from `torch.cuda.graph_pool_handle`, the same for all buckets.
            stream: stream that all buckets are captured on.
            estimates_kl: whether to record those of `estimate_kl` instead of those of `run`.
            mode: which CUDA calls spoil the capture: any thread's, or this thread's alone.
        """
        graphs = []
        try:
            for phase in self._eager_phases(estimates_kl=estimates_kl):
                graph = torch.cuda.CUDAGraph()
                recording = torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode=mode)
                with collection_paused(), recording:
                    try:
                        phase()
                    except BaseException:  # else the capture could not be ended, and its memory not be given back
                        self._reset_copies()
                        raise
                graphs.append(graph)
        finally:
            self._done = self._gradient_TE = self._loss_R = None  # of a capture that failed half-way
            self._layers = iter(())
        self._graphs[estimates_kl] = tuple(graphs)

    def _reset_copies(self) -> None:
        if self._offloader is not None:
            self._offloader.reset()
        self._model.loaded.decoder.reset_copies()

    def _phases(self, *, estimates_kl: bool) -> tuple[Callable[[], None], ...]:
        if estimates_kl in self._graphs:
            return tuple(graph.replay for graph in self._graphs[estimates_kl])
        return self._eager_phases(estimates_kl=estimates_kl)

    def _eager_phases(self, *, estimates_kl: bool) -> tuple[Callable[[], None], ...]:
        if estimates_kl:
            return self._forward_only, self._ratio_chunk
        parts = [partial(self._backward_to, cut) for cut in self._cuts]
        return self._forward, self._head_chunk, *parts, self._backward

    def _forward(self) -> None:
        decoder, self._layers = self._model.loaded.decoder, iter(())
        ids_T = self._fields.ids_T
        self._done = decoder.forward(ids_T, self.metadata, levels=self._levels, offloader=self._offloader)
        self._gradient_TE = decoder.new_gradient(self._done)
        self._chunk.zero_()
        if self._objective:
            self._loss_R = torch.zeros(self.layout.head_capacity, dtype=torch.float32, device=ids_T.device)

    def _head_chunk(self) -> None:
        done, gradient_TE = self._done, self._gradient_TE
        assert done is not None
        assert gradient_TE is not None
        fields, decoder = self._fields, self._model.loaded.decoder
        rows, targets, loss, logits = self._chunk_logits(done)
        scale = self._unit if self._objective else fields.normalizer * self._model.optimizer.loss_scale
        cross_entropy.loss_and_gradient_(logits, targets, loss, scale, softcap=decoder.spec.logit_softcap)
        gradient_TE[:, : decoder.spec.hidden_size].index_copy_(0, rows.long(), decoder.head_gradient(logits))
        if self._loss_R is None:
            self._loss_sum.add_(loss.sum() * fields.normalizer)
        else:
            self._loss_R.view(-1, len(rows)).index_copy_(0, self._chunk, loss[None])
        self._chunk.add_(1)

    def _backward_to(self, cut: int) -> None:
        """Make the part of the backward pass that ends with a layer."""
        if cut == self._cuts[0]:
            self._layers = self._begin_backward()
        while next(self._layers) != cut:
            pass

    def _backward(self) -> None:
        """Make the rest of the backward pass."""
        for _ in self._layers if self._cuts else self._begin_backward():
            pass
        self._done = self._gradient_TE = self._loss_R = None

    def _begin_backward(self) -> Iterator[int]:
        assert self._done is not None
        assert self._gradient_TE is not None
        if self._objective:
            assert self._loss_R is not None
            weight_T = token_weights(self._objective, self._fields, self._loss_R, self._loss_sum, self._kl)
            weight_T = weight_T * self._model.optimizer.loss_scale
            self._gradient_TE[:, : self._model.loaded.decoder.spec.hidden_size].mul_(weight_T[:, None])
        return self._model.loaded.decoder.backward_layers(self._done, self._gradient_TE, self.metadata)

    def _forward_only(self) -> None:
        decoder = self._model.loaded.decoder
        decoder.expire_magnitudes()  # a captured pass computes the factors each time
        with without_dropout(decoder):
            self._done = decoder.forward(self._fields.ids_T, self.metadata)
        self._chunk.zero_()
        self._kl.subtract(self._fields.reference_S)

    def _ratio_chunk(self) -> None:
        assert self._done is not None
        _, targets, loss, logits = self._chunk_logits(self._done)
        cross_entropy.loss_only(logits, targets, loss, softcap=self._model.loaded.decoder.spec.logit_softcap)
        self._kl.subtract(loss)
        self._chunk.add_(1)

    def _chunk_logits(self, done: ForwardPass) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute a chunk's logits; return them last, after its positions, targets and room for its losses."""
        fields = self._fields
        rows = fields.head_position_R.view(-1, self.layout.head_chunk_tokens).index_select(0, self._chunk).view(-1)
        targets = fields.head_target_R.view(-1, self.layout.head_chunk_tokens).index_select(0, self._chunk).view(-1)
        loss = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
        return rows, targets, loss, self._model.loaded.decoder.raw_logits(done.hidden_TH.index_select(0, rows))
