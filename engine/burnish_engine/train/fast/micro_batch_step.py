"""Forward, head and backward of one bucket, over buffers at fixed addresses; captured as CUDA graphs where possible.

A micro-batch runs in three phases, because the number of supervised tokens changes from one to the next while a graph
does not: forward; one chunk of the head (logits, loss, gradient), repeated for each chunk; backward. A counter on the
device holds the number of the chunk. All buckets share one memory pool: only one micro-batch runs at a time, and it
always runs its phases in the order of their capture.

Preference pairs take the same phases and no more passes through the head: its chunks write the gradients of plain cross
entropy and keep the losses, and before the backward `_weigh_pairs` multiplies each token's gradient by the number that
its sequence's loss says (`train.base.preference`).

The eager form runs the same functions, so it computes the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.models.decoder.decoder import ForwardPass
from burnish_engine.models.decoder.layer_tensors import OFFLOADING
from burnish_engine.models.decoder.layer_types import SequenceMetadata
from burnish_engine.models.host_memory.offloader import Offloader
from burnish_engine.train.base.preference import PairLogProbs, pair_losses
from burnish_engine.train.fast.fast_model import TrainableDecoder
from burnish_engine.train.fast.packed_batch import BatchCounts, BucketLayout
from burnish_kernels.attention.documents import Documents
from burnish_kernels.cross_entropy import op as cross_entropy

_UNITS_PER_NAT = 2.0**32  # whole numbers that a nat is divided into; sums of 2^31 nats fit


class MicroBatchStep:
    """Runs the three phases of a micro-batch in one bucket.

    Args:
        model: decoder, adapter and optimizer.
        layout: layout of the bucket.
        inputs: int32 on the device, at least `layout.size` elements; upload a micro-batch there, then `run`.
        levels: save level of each layer.
        loss_sum: fp32 [1] on the device; each micro-batch adds its summed loss times the normalizer. Of pairs,
            fp32 [5]: also the fields of `PairMeans`.
        offloader: host memory of offloaded activations; None: one of this bucket's own, if a layer offloads.
        preference: objective, where the layout is of preference pairs.
    """

    def __init__(
        self,
        model: TrainableDecoder,
        layout: BucketLayout,
        inputs: torch.Tensor,
        levels: Sequence[SaveLevel],
        loss_sum: torch.Tensor,
        offloader: Offloader | None = None,
        preference: PreferenceSection | None = None,
    ) -> None:
        assert layout.pairs == (preference is not None)
        self.layout, self._preference = layout, preference
        if offloader is None and OFFLOADING.intersection(levels):
            offloader = Offloader(inputs.device, layout.capacity)
        self._offloader = offloader
        self._model, self._levels, self._loss_sum = model, levels, loss_sum
        self._fields = layout.views(inputs)
        fields = self._fields
        documents = Documents(fields.start_T, fields.end_T, fields.tiles_G4, layout.tile_rows)
        self.metadata = SequenceMetadata(fields.rope_row_T, documents)
        self._chunk = torch.zeros(1, dtype=torch.int64, device=inputs.device)
        self._done: ForwardPass | None = None
        self._gradient_TE: torch.Tensor | None = None
        self._loss_R: torch.Tensor | None = None
        self._unit = torch.ones(1, dtype=torch.float32, device=inputs.device)
        self._graphs: tuple[torch.cuda.CUDAGraph, ...] = ()

    @property
    def captured(self) -> bool:
        """Whether `run` replays graphs."""
        return bool(self._graphs)

    def run(self, counts: BatchCounts) -> None:
        """Accumulate the loss and the adapters' gradients of the uploaded micro-batch.

        Args:
            counts: counts of that micro-batch; without supervised tokens nothing is done.
        """
        if not counts.head_chunks:
            return
        forward, head_chunk, backward = self._phases()
        forward()
        for _ in range(counts.head_chunks):
            head_chunk()
        backward()

    def capture(self, pool: tuple[int, int], stream: torch.cuda.Stream) -> None:
        """Record the phases as graphs; nothing is computed. The kernels must have run once before.

        Args:
            pool: handle from `torch.cuda.graph_pool_handle`, the same for all buckets.
            stream: stream that all buckets are captured on.
        """
        graphs = []
        try:
            for phase in (self._forward, self._head_chunk, self._backward):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=stream):
                    try:
                        phase()
                    except BaseException:  # else the capture could not be ended, and its memory not be given back
                        self._reset_copies()
                        raise
                graphs.append(graph)
        finally:
            self._done = self._gradient_TE = self._loss_R = None  # of a capture that failed half-way
        self._graphs = tuple(graphs)

    def _reset_copies(self) -> None:
        if self._offloader is not None:
            self._offloader.reset()
        self._model.loaded.decoder.reset_copies()

    def _phases(self) -> tuple[Callable[[], None], ...]:
        if self._graphs:
            return tuple(graph.replay for graph in self._graphs)
        return self._forward, self._head_chunk, self._backward

    def _forward(self) -> None:
        decoder = self._model.loaded.decoder
        ids_T = self._fields.ids_T
        self._done = decoder.forward(ids_T, self.metadata, levels=self._levels, offloader=self._offloader)
        self._gradient_TE = decoder.new_gradient(self._done)
        self._chunk.zero_()
        if self._preference:
            self._loss_R = torch.zeros(self.layout.head_capacity, dtype=torch.float32, device=ids_T.device)

    def _head_chunk(self) -> None:
        done, gradient_TE = self._done, self._gradient_TE
        assert done is not None
        assert gradient_TE is not None
        fields, decoder = self._fields, self._model.loaded.decoder
        rows = fields.head_position_R.view(-1, self.layout.head_chunk_tokens).index_select(0, self._chunk).view(-1)
        targets = fields.head_target_R.view(-1, self.layout.head_chunk_tokens).index_select(0, self._chunk).view(-1)
        loss = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
        logits = decoder.raw_logits(done.hidden_TH.index_select(0, rows))
        scale = self._unit if self._preference else fields.normalizer * self._model.optimizer.loss_scale
        cross_entropy.loss_and_gradient_(logits, targets, loss, scale, softcap=decoder.spec.logit_softcap)
        gradient_TE[:, : decoder.spec.hidden_size].index_copy_(0, rows.long(), decoder.head_gradient(logits))
        if self._loss_R is None:
            self._loss_sum.add_(loss.sum() * fields.normalizer)
        else:
            self._loss_R.view(-1, len(rows)).index_copy_(0, self._chunk, loss[None])
        self._chunk.add_(1)

    def _backward(self) -> None:
        assert self._done is not None
        assert self._gradient_TE is not None
        if self._preference:
            self._weigh_pairs(self._preference, self._gradient_TE)
        self._model.loaded.decoder.backward(self._done, self._gradient_TE, self.metadata)
        self._done = self._gradient_TE = self._loss_R = None

    def _weigh_pairs(self, preference: PreferenceSection, gradient_TE: torch.Tensor) -> None:
        """Compute the losses of the pairs, and scale the unit gradients of their tokens."""
        assert self._loss_R is not None
        fields, loss_R = self._fields, self._loss_R
        # Whole numbers add up to the same in any order: packing, chunks and the device's scheduling change no bit.
        units_S = torch.zeros(self.layout.sequences, dtype=torch.int64, device=loss_R.device)
        rounded_R = (loss_R.double() * _UNITS_PER_NAT).round_().long()
        units_S.index_add_(0, fields.sequence_T.index_select(0, fields.head_position_R), rounded_R)
        log_prob_S = (units_S.double() / -_UNITS_PER_NAT).float()
        tokens_S = fields.sequence_tokens_S.clamp(min=1.0)
        real_P = fields.sequence_tokens_S[::2] > 0
        found = pair_losses(preference, PairLogProbs.by_turns(log_prob_S, tokens_S, fields.reference_S))
        pair, chosen = fields.normalizer, preference.sft_weight * fields.chosen_normalizer
        weight_P2 = torch.stack([chosen - found.chosen_slope_P * pair, -found.rejected_slope_P * pair], dim=1)
        weight_S = (weight_P2 * real_P[:, None]).view(-1)
        terms_5P = torch.cat([found.loss_P[None], found.figures_4P])
        self._loss_sum.add_((terms_5P * real_P).sum(dim=1) * pair)
        # The second term is 0, or not a number where a loss is not finite, which whole numbers do not show.
        self._loss_sum[:1].add_(-(log_prob_S[::2] * real_P).sum() * chosen + loss_R.sum() * 0.0)
        weight_T = weight_S.index_select(0, fields.sequence_T) * self._model.optimizer.loss_scale
        gradient_TE[:, : self._model.loaded.decoder.spec.hidden_size].mul_(weight_T[:, None])
