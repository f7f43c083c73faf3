"""Burnish's own decoder: embedding, layers, final norm and head, with forward and backward passes written out.

Works on packed documents: every activation is `[T, ...]`, whatever the documents' lengths. Built by `decoder_load`.

Shapes: T tokens of a pass, H hidden size, V vocabulary, E widths extended by adapter columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.models.decoder_layer import DecoderLayer
from burnish_engine.models.keep import Keep
from burnish_engine.models.layer_types import Attend, Pack, Saved, Stream
from burnish_engine.models.offload import Offload
from burnish_engine.models.rope_tables import RopeTable
from burnish_engine.models.streamed_matrix import StreamedMatrix
from burnish_kernels.gather.op import gather
from burnish_kernels.rms_norm import op as rms_norm


@dataclass
class ForwardPass:
    """What a forward pass returns.

    Attributes:
        hidden_TH: After the final norm; what the head takes.
        stream_TH: Before the final norm.
        inverse_T: The final norm's inverse root mean square.
        layers: What each layer kept; None for layers below the first that is trained.
        offload: Where some of it is.
    """

    hidden_TH: torch.Tensor
    stream_TH: torch.Tensor
    inverse_T: torch.Tensor
    layers: list[Saved | None]
    offload: Offload | None = None


class Decoder:
    """A decoder-only transformer with frozen weights and LoRA adapters.

    Args:
        spec: Its shape.
        embedding_VH: Token embeddings; on a GPU they may stand in page-locked host memory.
        head_VH: Output projection; the same tensor where they are tied. It may be on the host as well.
        final_norm_H: Weight of the last norm.
        layers: The layers.
        rope: The table of positions that `Pack.table_index_T` points into.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        embedding_VH: torch.Tensor,
        head_VH: torch.Tensor,
        final_norm_H: torch.Tensor,
        layers: list[DecoderLayer],
        rope: RopeTable,
    ) -> None:
        self.spec, self.layers, self.rope = spec, layers, rope
        self.embedding_VH, self.head_VH, self.final_norm_H = embedding_VH, head_VH, final_norm_H
        away = head_VH.device != final_norm_H.device
        self._streamed_head = StreamedMatrix(head_VH, final_norm_H.device) if away else None

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.final_norm_H.device

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""
        return self.final_norm_H.dtype

    @property
    def first_trained(self) -> int:
        """Number of the lowest layer with an adapter; the number of layers where there is none."""
        trained = (layer.shape.index for layer in self.layers if any(stack.rank for stack in layer.stacks))
        return next(trained, len(self.layers))

    def forward(
        self,
        ids_T: torch.Tensor,
        pack: Pack,
        *,
        keep: Sequence[Keep] | None = None,
        attend: Attend | None = None,
        offload: Offload | None = None,
    ) -> ForwardPass:
        """Run all layers.

        Args:
            ids_T: Token ids.
            pack: The pass's documents.
            keep: For each layer, what to keep for `backward`; None: nothing will be differentiated.
            attend: Does the attention instead; then nothing can be kept.
            offload: Where layers keep what they keep on the host; needed if one does.
        """
        stream = Stream(None, self.embed(ids_T))
        kept: list[Saved | None] = []
        first = self.first_trained
        if offload is not None and keep is not None:
            offload.begin([layer.parks(keep[layer.shape.index]) for layer in self.layers[first:]], stream.pending_TH)
        for index, layer in enumerate(self.layers):
            policy = keep[index] if keep is not None and index >= first else None
            saved = layer.forward(stream, pack, keep=policy, attend=attend, offload=offload)
            kept.append(saved)
            if saved is not None and policy is not None and policy.host:
                assert offload is not None
                offload.park(index, saved, policy.host)
        if offload is not None:
            offload.settle()
        hidden, total, inverse = rms_norm.forward(
            stream.pending_TH,
            self.final_norm_H,
            eps=self.spec.rms_norm_eps,
            residual_TH=stream.sum_TH,
            one_plus_weight=self.spec.norm_one_plus,
            sum_out=None if stream.sum_TH is None else stream.pending_TH,
        )
        return ForwardPass(hidden, total, inverse, kept, offload)

    def new_gradient(self, done: ForwardPass) -> torch.Tensor:
        """Zeros `[T, E]`: the gradient of `done.hidden_TH` goes to the first H columns, those of adapters follow."""
        width = self.spec.hidden_size + max(max(s.rank for s in layer.stacks) for layer in self.layers)
        return done.hidden_TH.new_zeros(len(done.hidden_TH), width)

    def backward(self, done: ForwardPass, gradient_TE: torch.Tensor, pack: Pack) -> None:
        """Add the adapters' gradients to their stacks' `gradients`.

        Args:
            done: From `forward` with `keep`; emptied on the way.
            gradient_TE: From `new_gradient`, and filled; changed.
            pack: As in `forward`.
        """
        gradient_TH = gradient_TE[:, : self.spec.hidden_size]
        rms_norm.backward(
            gradient_TH,
            done.stream_TH,
            self.final_norm_H,
            done.inverse_T,
            one_plus_weight=self.spec.norm_one_plus,
            out=gradient_TH,
        )
        del done.hidden_TH, done.stream_TH  # layers work in their memory
        first = self.first_trained
        for layer in reversed(self.layers[first:]):
            if done.offload is not None:
                done.offload.prefetch(done.layers)
            saved = done.layers.pop()
            assert saved is not None
            if done.offload is not None:
                done.offload.restore(saved)
            layer.backward(saved, gradient_TE, pack, wanted=layer.shape.index > first)
        if done.offload is not None:
            done.offload.finish()

    def abandon_copies(self) -> None:
        """After a capture failed half-way: bring back the streams that it reached."""
        if self._streamed_head is not None:
            self._streamed_head.abandon()

    def tile_feed_forward(self, rows: int) -> None:
        """Pass the feed-forward in tiles of so many tokens from now on; 0: all tokens at once."""
        for layer in self.layers:
            layer.feed_forward.rows = rows

    def embed(self, ids_T: torch.Tensor) -> torch.Tensor:
        """Embeddings `[T, H]`, scaled in the model's dtype as the family asks."""
        here = self.embedding_VH.device == ids_T.device
        rows = self.embedding_VH.index_select(0, ids_T) if here else gather(self.embedding_VH, ids_T)
        if self.spec.embedding_scale != 1.0:
            rows *= torch.full((), self.spec.embedding_scale, dtype=rows.dtype, device=rows.device)
        return rows

    def raw_logits(self, hidden_TH: torch.Tensor) -> torch.Tensor:
        """Logits `[T, V]` in the model's dtype, before any soft cap."""
        if self._streamed_head is not None:
            return self._streamed_head.rows_product(hidden_TH)
        return hidden_TH @ self.head_VH.t()

    def head_gradient(self, dlogits_TV: torch.Tensor) -> torch.Tensor:
        """Gradient `[T, H]` of the hidden states that `raw_logits` took."""
        if self._streamed_head is not None:
            return self._streamed_head.columns_product(dlogits_TV)
        return dlogits_TV @ self.head_VH

    def logits(self, hidden_TH: torch.Tensor) -> torch.Tensor:
        """Logits `[T, V]` in fp32, soft-capped where the family does."""
        logits = self.raw_logits(hidden_TH).float()
        cap = self.spec.logit_softcap
        return cap * torch.tanh(logits / cap) if cap else logits
