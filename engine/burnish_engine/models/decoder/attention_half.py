"""The half of a decoder layer around attention, from the normalized stream to attention's output projection.

Shapes as in `decoder_layer`, and C the width of queries, keys and values together.
"""

from __future__ import annotations

import torch

from burnish_engine.models.decoder.layer_norms import norm_backward, post_norm, post_norm_backward
from burnish_engine.models.decoder.layer_types import (
    AttentionFunction,
    DecoderLayerShape,
    LayerWeights,
    OutputBuffers,
    SavedActivations,
    SequenceMetadata,
    not_none,
)
from burnish_kernels.attention import op as attention
from burnish_kernels.rope import op as rope


class AttentionHalf:
    """The attention half of one decoder layer.

    Args:
        shape: constants of the layer.
        weights: parameters of the layer.
    """

    def __init__(self, shape: DecoderLayerShape, weights: LayerWeights) -> None:
        self._shape, self._weights = shape, weights

    def forward(
        self,
        saved: SavedActivations,
        x_TE: torch.Tensor,
        sequences: SequenceMetadata,
        attention_fn: AttentionFunction | None = None,
        buffers: OutputBuffers | None = None,
    ) -> None:
        """Compute attention's output from the normalized stream; in the backward pass, compute only what is missing.

        Args:
            saved: activations of the layer; filled.
            x_TE: tensor from `qkv.new_input` with the normalized stream.
            sequences: packed documents of the micro-batch.
            attention_fn: function that replaces the packed attention.
            buffers: tensors for the saved activations; None: new tensors are allocated.
        """
        w, s = self._weights, self._shape
        saved.qkv_TC = w.qkv.forward(x_TE, buffers.qkv_TC if buffers else None)
        saved.xa_qkv_TR = w.qkv.adapted_input(x_TE)
        saved.x_attention_TE = x_TE
        q, k, v = self._rotated(saved, sequences, buffers)
        if saved.lse_NT is not None:  # in the backward pass, with attention's output
            return
        given = buffers.o_TE if buffers else None
        saved.o_TE = w.o.new_input(len(x_TE), x_TE) if given is None else given
        out = saved.o_TE[:, : w.o.inputs].unflatten(1, (s.heads, s.head_dim))
        if attention_fn is not None:
            attention_fn(s, q, k, v, out)
            return
        _, saved.lse_NT = attention.forward(
            q,
            k,
            v,
            sequences.documents,
            scale=s.scale,
            window=s.window,
            softcap=s.softcap,
            out=out,
            lse_out=buffers.lse_NT if buffers else None,
        )

    def project(self, saved: SavedActivations, buffers: OutputBuffers | None = None) -> torch.Tensor:
        """Apply the output projection, and the norm that some families have after it."""
        w = self._weights
        assert saved.o_TE is not None
        middle = buffers.middle_TH if buffers else None
        if w.attention_post_norm is None:
            return w.o.forward(saved.o_TE, middle)
        out = saved.attention_out_TH = w.o.forward(saved.o_TE, buffers.attention_out_TH if buffers else None)
        y, saved.attention_out_inverse_T = post_norm(self._shape, out, w.attention_post_norm, middle)
        return y

    def backward(
        self, saved: SavedActivations, gradient_TE: torch.Tensor, sequences: SequenceMetadata, wanted: bool
    ) -> None:
        """Differentiate the half; arguments as for `DecoderLayer.backward`."""
        w, s = self._weights, self._shape
        assert saved.o_TE is not None
        assert saved.lse_NT is not None
        assert saved.qkv_TC is not None
        dy_TE = post_norm_backward(
            s, gradient_TE, w.attention_post_norm, saved.attention_out_TH, saved.attention_out_inverse_T, w.o
        )
        do = w.o.input_gradient(dy_TE)
        assert do is not None
        w.o.accumulate(dy_TE, saved.o_TE[:, : w.o.inputs], w.o.adapted_input(saved.o_TE))
        saved.attention_out_TH = None
        del dy_TE
        q, k, v = self._rotated(saved, sequences)
        dqkv_TE = w.qkv.new_gradient(len(do), do)
        heads = dqkv_TE[:, : w.qkv.outputs].unflatten(1, (s.heads + 2 * s.kv_heads, s.head_dim))
        dq, dk, dv = heads.split((s.heads, s.kv_heads, s.kv_heads), dim=1)
        per_head = (s.heads, s.head_dim)
        attention.backward(
            do.unflatten(1, per_head),
            q,
            k,
            v,
            saved.o_TE[:, : w.o.inputs].unflatten(1, per_head),
            saved.lse_NT,
            sequences.documents,
            scale=s.scale,
            window=s.window,
            softcap=s.softcap,
            dq_out=dq,
            dk_out=dk,
            dv_out=dv,
        )
        saved.o_TE = saved.lse_NT = saved.q_TND = saved.k_TMD = None
        del do, q, k, v
        if w.q_norm is not None or w.table_PR is not None:
            rope.backward(
                dq,
                dk,
                saved.qkv_TC,
                w.table_PR,
                sequences.table_index_T,
                num_heads=s.heads,
                num_kv_heads=s.kv_heads,
                head_dim=s.head_dim,
                q_weight_D=w.q_norm,
                k_weight_D=w.k_norm,
                eps=s.eps,
                one_plus_weight=s.one_plus,
                dqkv_out=dqkv_TE,
            )
        saved.qkv_TC = None
        dx = w.qkv.input_gradient(dqkv_TE, wanted=wanted)
        hidden = gradient_TE[:, : len(w.attention_norm)]
        x = norm_backward(s, dx, saved.start_TH, w.attention_norm, saved.start_inverse_T, hidden, saved.x_attention_TE)
        w.qkv.accumulate(dqkv_TE, x[:, : w.qkv.inputs], not_none(saved.xa_qkv_TR))
        saved.x_attention_TE = saved.xa_qkv_TR = None

    def _rotated(
        self, saved: SavedActivations, sequences: SequenceMetadata, buffers: OutputBuffers | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries, keys and values, normalized and rotated, as attention takes them."""
        w, s = self._weights, self._shape
        assert saved.qkv_TC is not None
        heads = saved.qkv_TC.unflatten(1, (s.heads + 2 * s.kv_heads, s.head_dim))
        q, k, v = heads.split((s.heads, s.kv_heads, s.kv_heads), dim=1)
        if saved.q_TND is not None and saved.k_TMD is not None:
            return saved.q_TND, saved.k_TMD, v
        if w.q_norm is not None:
            given = (buffers.q_TND, buffers.k_TMD) if buffers else (None, None)
            saved.q_TND, saved.k_TMD = self._rotate(saved.qkv_TC, sequences, *given)
            return saved.q_TND, saved.k_TMD, v
        if w.table_PR is not None:  # in place: the backward pass does not need what was there before
            self._rotate(saved.qkv_TC, sequences, q, k)
        saved.q_TND, saved.k_TMD = q, k
        return q, k, v

    def _rotate(
        self, qkv_TC: torch.Tensor, sequences: SequenceMetadata, q_out: torch.Tensor | None, k_out: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        w, s = self._weights, self._shape
        return rope.forward(
            qkv_TC,
            w.table_PR,
            sequences.table_index_T,
            num_heads=s.heads,
            num_kv_heads=s.kv_heads,
            head_dim=s.head_dim,
            q_weight_D=w.q_norm,
            k_weight_D=w.k_norm,
            eps=s.eps,
            one_plus_weight=s.one_plus,
            q_out=q_out,
            k_out=k_out,
        )
