"""Forward, head and backward of one bucket, over buffers at fixed addresses; captured as CUDA graphs where possible.

A pass is three programs, because how many rows are supervised changes from pass to pass while a graph does not:
forward; one chunk of the head (logits, loss, gradient), repeated as often as there are chunks; backward. A counter on
the device says which chunk it is. All buckets share one memory pool: only one pass runs at a time, and a pass always
runs its programs in the order of their capture.

The eager form runs the same functions, so it computes the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from burnish_engine.models.decoder import ForwardPass
from burnish_engine.models.keep import Keep
from burnish_engine.models.layer_types import Pack
from burnish_engine.models.offload import Offload
from burnish_engine.train.fast_model import TrainableDecoder
from burnish_engine.train.packed_batch import Counts, PackedLayout
from burnish_kernels.attention.op import Documents
from burnish_kernels.cross_entropy import op as cross_entropy


@dataclass(frozen=True)
class LossOptions:
    """Variants of the loss.

    Attributes:
        label_smoothing: Share of the target that is spread over the vocabulary.
        z_loss: Weight of the squared log-partition.
    """

    label_smoothing: float = 0.0
    z_loss: float = 0.0


class PassProgram:
    """The three programs of one bucket.

    Args:
        model: What is trained.
        layout: The bucket.
        inputs: int32 on the device, at least `layout.size`; upload a pass there, then `run`.
        keep: Per layer, what the forward pass keeps.
        loss_sum: fp32 [1] on the device; each pass adds its summed loss times the normalizer.
        options: Variants of the loss.
        offload: Where layers keep what they keep on the host; None: a place of this bucket's own, if one does.
    """

    def __init__(
        self,
        model: TrainableDecoder,
        layout: PackedLayout,
        inputs: torch.Tensor,
        keep: Sequence[Keep],
        loss_sum: torch.Tensor,
        options: LossOptions | None = None,
        offload: Offload | None = None,
    ) -> None:
        self.layout = layout
        if offload is None and any(policy.host for policy in keep):
            offload = Offload(inputs.device, layout.rows)
        self._offload = offload
        self._model, self._keep, self._loss_sum = model, keep, loss_sum
        self._options = options or LossOptions()
        self._fields = layout.views(inputs)
        fields = self._fields
        documents = Documents(fields.start_T, fields.end_T, fields.tiles_G4, layout.tile_rows)
        self.pack = Pack(fields.rope_row_T, documents)
        self._chunk = torch.zeros(1, dtype=torch.int64, device=inputs.device)
        self._done: ForwardPass | None = None
        self._gradient_TE: torch.Tensor | None = None
        self._graphs: tuple[torch.cuda.CUDAGraph, ...] = ()

    @property
    def captured(self) -> bool:
        """Whether `run` replays graphs."""
        return bool(self._graphs)

    def run(self, counts: Counts) -> None:
        """Accumulate the loss and the adapters' gradients of the pass that was uploaded.

        Args:
            counts: Of that pass; without supervised rows nothing is done.
        """
        if not counts.head_chunks:
            return
        forward, head_chunk, backward = self._programs()
        forward()
        for _ in range(counts.head_chunks):
            head_chunk()
        backward()

    def capture(self, pool: tuple[int, int], stream: torch.cuda.Stream) -> None:
        """Record the programs as graphs; nothing is computed. The kernels must have run once before.

        Args:
            pool: From `torch.cuda.graph_pool_handle`, the same for all buckets.
            stream: What all buckets are captured on.
        """
        graphs = []
        try:
            for program in (self._forward, self._head_chunk, self._backward):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=stream):
                    try:
                        program()
                    except BaseException:  # else the capture could not be ended, and its memory not be given back
                        self._abandon_copies()
                        raise
                graphs.append(graph)
        finally:
            self._done = self._gradient_TE = None  # of a capture that failed half-way
        self._graphs = tuple(graphs)

    def _abandon_copies(self) -> None:
        if self._offload is not None:
            self._offload.abandon()
        self._model.loaded.decoder.abandon_copies()

    def _programs(self) -> tuple[Callable[[], None], ...]:
        if self._graphs:
            return tuple(graph.replay for graph in self._graphs)
        return self._forward, self._head_chunk, self._backward

    def _forward(self) -> None:
        decoder = self._model.loaded.decoder
        self._done = decoder.forward(self._fields.ids_T, self.pack, keep=self._keep, offload=self._offload)
        self._gradient_TE = decoder.new_gradient(self._done)
        self._chunk.zero_()

    def _head_chunk(self) -> None:
        done, gradient_TE = self._done, self._gradient_TE
        assert done is not None
        assert gradient_TE is not None
        fields, decoder = self._fields, self._model.loaded.decoder
        rows = fields.head_row_R.view(-1, self.layout.head_rows).index_select(0, self._chunk).view(-1)
        targets = fields.head_target_R.view(-1, self.layout.head_rows).index_select(0, self._chunk).view(-1)
        loss = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
        logits = decoder.raw_logits(done.hidden_TH.index_select(0, rows))
        cross_entropy.loss_and_gradient_(
            logits,
            targets,
            loss,
            fields.normalizer * self._model.optimizer.loss_scale,
            softcap=decoder.spec.logit_softcap,
            label_smoothing=self._options.label_smoothing,
            z_loss=self._options.z_loss,
        )
        gradient_TE[:, : decoder.spec.hidden_size].index_copy_(0, rows.long(), decoder.head_gradient(logits))
        self._loss_sum.add_(loss.sum() * fields.normalizer)
        self._chunk.add_(1)

    def _backward(self) -> None:
        assert self._done is not None
        assert self._gradient_TE is not None
        self._model.loaded.decoder.backward(self._done, self._gradient_TE, self.pack)
        self._done = self._gradient_TE = None
