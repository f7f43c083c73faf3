"""One decoder layer with forward and backward written out, so that a policy decides which activations are saved.

The residual stream is a sum: each half of a layer adds its output to it, and that addition is fused with the norm that
follows. So a layer takes the stream and an output that is still pending, and leaves the same pair. The halves compute
in `attention_half` and `feed_forward`; this module decides which activations are saved and which are recomputed.

Shapes: T tokens of a micro-batch, H hidden size, N query heads, M key and value heads, D head dimension, I width of the
feed-forward, E a width extended by adapter columns (see `stacked_linear`).
"""

from __future__ import annotations

import torch

from burnish_engine.models.decoder.attention_half import AttentionHalf
from burnish_engine.models.decoder.feed_forward import FeedForward
from burnish_engine.models.decoder.layer_norms import norm
from burnish_engine.models.decoder.layer_types import (
    AttentionFunction,
    DecoderLayerShape,
    LayerWeights,
    OutputBuffers,
    ResidualStream,
    SavedActivations,
    SequenceMetadata,
    not_none,
)
from burnish_engine.models.decoder.save_policy import SavePolicy
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_engine.models.host_memory.offloader import Offloader, OffloadWidths


class DecoderLayer:
    """One layer of the decoder.

    Args:
        shape: constants of the layer.
        weights: parameters of the layer.

    Attributes:
        attention, feed_forward: the two halves.
    """

    def __init__(self, shape: DecoderLayerShape, weights: LayerWeights) -> None:
        self.shape, self.weights = shape, weights
        self.attention, self.feed_forward = AttentionHalf(shape, weights), FeedForward(shape, weights)

    @property
    def stacks(self) -> list[StackedLinear]:
        """The linear stacks of the layer, in the order they are used."""
        w = self.weights
        return [w.qkv, w.o, w.gate_up, w.down]

    def offload_widths(self, policy: SavePolicy) -> OffloadWidths:
        """Return the tensors that `forward` offloads to host memory, with their widths."""
        taken = {"gate_up_TJ": self.weights.gate_up.outputs, "o_TE": self.weights.o.inputs + self.weights.o.rank}
        return {name: taken.get(name) for name in policy.host}

    # Forward

    def forward(
        self,
        stream: ResidualStream,
        sequences: SequenceMetadata,
        *,
        policy: SavePolicy | None = None,
        attention_fn: AttentionFunction | None = None,
        offloader: Offloader | None = None,
    ) -> SavedActivations | None:
        """Run the layer.

        Args:
            stream: residual stream before the layer; changed to that after it.
            sequences: packed documents of the micro-batch.
            policy: choice of activations to save for `backward`; None: nothing will be differentiated.
            attention_fn: function that replaces the packed attention; then nothing can be saved.
            offloader: owner of the buffers for tensors to be offloaded; required if the policy offloads.

        Returns:
            The saved activations, or None without a policy.
        """
        w = self.weights
        start_TH = stream.pending_TH
        buffers = None if policy is None else self._output_buffers(start_TH, policy, offloader)
        x_TE = w.qkv.new_input(len(start_TH), start_TH)
        start_TH, inverse_T = norm(self.shape, start_TH, w.attention_norm, x_TE, stream.sum_TH, in_place=True)
        stream.sum_TH = None
        saved = SavedActivations(start_TH=start_TH, start_inverse_T=inverse_T)
        self.attention.forward(saved, x_TE, sequences, attention_fn, buffers)
        del x_TE
        self._drop_projections(saved, policy, buffers)
        attention_out_TH = self.attention.project(saved, buffers)
        if policy is None or not policy.attention:
            saved.o_TE = saved.lse_NT = None
        stream.pending_TH = self.feed_forward.forward(saved, attention_out_TH, buffers)
        stream.sum_TH = saved.middle_TH
        if policy is None:
            return None
        self._drop_feed_forward(saved, policy)
        return saved

    def _output_buffers(self, like_TH: torch.Tensor, policy: SavePolicy, offloader: Offloader | None) -> OutputBuffers:
        """Allocate memory for the activations that outlive the forward pass, on the device or on their way out."""
        w, s, tokens = self.weights, self.shape, len(like_TH)
        offloaded = {
            name: not_none(offloader).take(name, tokens, width, like_TH)
            for name, width in self.offload_widths(policy).items()
            if width
        }
        xa_down_TR = like_TH.new_empty(tokens, w.down.rank)
        buffers = OutputBuffers(next_TH=torch.empty_like(like_TH), xa_down_TR=xa_down_TR, **offloaded)
        if policy.attention:
            wide = torch.promote_types(like_TH.dtype, torch.float32)
            buffers.lse_NT = like_TH.new_empty(s.heads, tokens, dtype=wide)
            buffers.o_TE = w.o.new_input(tokens, like_TH) if buffers.o_TE is None else buffers.o_TE
        if policy.qkv:
            buffers.qkv_TC = like_TH.new_empty(tokens, w.qkv.outputs)
            buffers.xa_qkv_TR = None if policy.elementwise else like_TH.new_empty(tokens, w.qkv.rank)
        if policy.rotated and w.q_norm is not None:
            buffers.q_TND = like_TH.new_empty(tokens, s.heads, s.head_dim)
            buffers.k_TMD = like_TH.new_empty(tokens, s.kv_heads, s.head_dim)
        if policy.middle:
            buffers.middle_TH = torch.empty_like(like_TH)
            buffers.attention_out_TH = None if w.attention_post_norm is None else torch.empty_like(like_TH)
        if policy.gate_up:
            if buffers.gate_up_TJ is None:
                buffers.gate_up_TJ = like_TH.new_empty(tokens, w.gate_up.outputs)
            buffers.xa_gate_up_TR = like_TH.new_empty(tokens, w.gate_up.rank)
        buffers.mlp_out_TH = None if w.mlp_post_norm is None else torch.empty_like(like_TH)
        return buffers

    def _drop_projections(
        self, saved: SavedActivations, policy: SavePolicy | None, buffers: OutputBuffers | None
    ) -> None:
        """Drop attention's inputs where the backward pass does not need them or recomputes them."""
        if policy is None:
            saved.x_attention_TE = saved.xa_qkv_TR = saved.qkv_TC = saved.q_TND = saved.k_TMD = None
            return
        if not policy.elementwise:
            # The adapter columns are small; kept apart, the wide tensor around them can go.
            place, columns = not_none(buffers).xa_qkv_TR, not_none(saved.xa_qkv_TR)
            saved.x_attention_TE, saved.xa_qkv_TR = None, None if place is None else place.copy_(columns)
        if not policy.rotated and self.weights.q_norm is not None:
            saved.q_TND, saved.k_TMD = None, None
        if not policy.qkv:
            saved.qkv_TC, saved.q_TND, saved.k_TMD = None, None, None
            saved.x_attention_TE, saved.xa_qkv_TR = None, None

    def _drop_feed_forward(self, saved: SavedActivations, policy: SavePolicy) -> None:
        """Drop the feed-forward's activations that the policy does not save."""
        if not policy.elementwise:
            saved.x_mlp_TE, saved.activated_TE = None, None
        if not policy.middle:
            saved.middle_TH, saved.middle_inverse_T = None, None
            saved.attention_out_TH, saved.attention_out_inverse_T = None, None
            saved.x_mlp_TE = None
        if not policy.gate_up:
            saved.gate_up_TJ, saved.xa_gate_up_TR, saved.x_mlp_TE = None, None, None

    # Backward

    def backward(
        self, saved: SavedActivations, gradient_TE: torch.Tensor, sequences: SequenceMetadata, *, wanted: bool = True
    ) -> None:
        """Differentiate the layer: accumulate its adapters' gradients and turn the stream's gradient into its input's.

        Args:
            saved: activations from `forward`; emptied on the way.
            gradient_TE: gradient `[T, H + ...]` with as many further columns as the widest adapter of o and down; its
                first H are the gradient of stream + pending after the layer, and on return of stream + pending before
                it.
            sequences: same as in `forward`.
            wanted: whether the gradient before the layer is needed (False where nothing below is trained).
        """
        self._restore_output(saved, sequences)
        self._restore_middle(saved)
        self.feed_forward.backward(saved, gradient_TE)
        self._restore_attention(saved, sequences)
        self.attention.backward(saved, gradient_TE, sequences, wanted)

    @property
    def _saves_memory(self) -> bool:
        """Whether to compute a tensor twice rather than keep it until its second use: for a chunked feed-forward."""
        return self.feed_forward.mlp_chunk_tokens > 0

    def _restore_output(self, saved: SavedActivations, sequences: SequenceMetadata) -> None:
        """Recompute attention's output if it was not saved."""
        if saved.o_TE is not None:
            return
        self._attention_again(saved, sequences)
        if self._saves_memory:  # projected once more when attention is differentiated
            saved.x_attention_TE = saved.xa_qkv_TR = saved.qkv_TC = saved.q_TND = saved.k_TMD = None

    def _restore_middle(self, saved: SavedActivations) -> None:
        """Recompute the stream between the halves if it was not saved."""
        if saved.middle_TH is not None:
            return
        w = self.weights
        assert saved.o_TE is not None
        out = self.attention.project(saved)
        if self._saves_memory:
            saved.middle_TH = out.add_(saved.start_TH)  # the same bits as the norm's sum; the tiles do the rest
            return
        saved.x_mlp_TE = w.gate_up.new_input(len(out), out)
        sum_TH, saved.middle_inverse_T = norm(
            self.shape, out, w.mlp_norm, saved.x_mlp_TE, saved.start_TH, in_place=True
        )
        saved.middle_TH = sum_TH

    def _restore_attention(self, saved: SavedActivations, sequences: SequenceMetadata) -> None:
        """Recompute the inputs of attention's half if they were not saved."""
        if saved.qkv_TC is not None:
            return
        self._attention_again(saved, sequences)
        if self._saves_memory:  # made once more for its gradient
            saved.x_attention_TE, saved.xa_qkv_TR = None, _compact(not_none(saved.xa_qkv_TR))

    def _attention_again(self, saved: SavedActivations, sequences: SequenceMetadata) -> None:
        """Recompute the attention half from the layer's input up to attention's output."""
        w = self.weights
        x_TE = w.qkv.new_input(len(saved.start_TH), saved.start_TH)
        norm(self.shape, saved.start_TH, w.attention_norm, x_TE)
        self.attention.forward(saved, x_TE, sequences)


def _compact(view: torch.Tensor) -> torch.Tensor:
    """Copy a view so that its base tensor can be freed; `contiguous` would not copy an empty view."""
    return view.clone(memory_format=torch.contiguous_format)
