"""One decoder layer with a forward and a backward pass written out, so that what is kept between them is a decision.

The residual stream is a sum: each half of a layer adds its output to it, and that addition is fused with the norm that
follows. So a layer takes the stream and an output that is still pending, and leaves the same pair. What the halves
compute is in `attention_half` and `feed_forward`; here is what stays of it, and what is computed again.

Shapes: T tokens of a packed pass, H hidden size, N query heads, M key and value heads, D head dimension, I width of the
feed-forward, E a width extended by adapter columns (see `stacked_linear`).
"""

from __future__ import annotations

import torch

from burnish_engine.models.attention_half import AttentionHalf
from burnish_engine.models.feed_forward import FeedForward
from burnish_engine.models.keep import Keep
from burnish_engine.models.layer_norms import norm
from burnish_engine.models.layer_types import Attend, Pack, Places, Saved, Shape, Stream, Weights, there
from burnish_engine.models.offload import Offload, Parks
from burnish_engine.models.stacked_linear import StackedLinear


class DecoderLayer:
    """One layer.

    Args:
        shape: Its constants.
        weights: Its parameters.

    Attributes:
        attention, feed_forward: Its halves.
    """

    def __init__(self, shape: Shape, weights: Weights) -> None:
        self.shape, self.weights = shape, weights
        self.attention, self.feed_forward = AttentionHalf(shape, weights), FeedForward(shape, weights)

    @property
    def stacks(self) -> list[StackedLinear]:
        """Its linear stacks, in the order they are used."""
        w = self.weights
        return [w.qkv, w.o, w.gate_up, w.down]

    def parks(self, keep: Keep) -> Parks:
        """What `forward` keeps in host memory."""
        taken = {"gate_up_TJ": self.weights.gate_up.outputs, "o_TE": self.weights.o.inputs + self.weights.o.rank}
        return {name: taken.get(name) for name in keep.host}

    # Forward

    def forward(
        self,
        stream: Stream,
        pack: Pack,
        *,
        keep: Keep | None = None,
        attend: Attend | None = None,
        offload: Offload | None = None,
    ) -> Saved | None:
        """Run the layer.

        Args:
            stream: The residual stream before the layer; changed to that behind it.
            pack: The pass's documents.
            keep: What to keep for `backward`; None: nothing will be differentiated.
            attend: Does the attention instead; then nothing can be kept.
            offload: Has memory for what will be parked there; needed if something is.

        Returns:
            What was kept.
        """
        w = self.weights
        start_TH = stream.pending_TH
        places = None if keep is None else self._places(start_TH, keep, offload)
        x_TE = w.qkv.new_input(len(start_TH), start_TH)
        start_TH, inverse_T = norm(self.shape, start_TH, w.attention_norm, x_TE, stream.sum_TH, in_place=True)
        stream.sum_TH = None
        saved = Saved(start_TH=start_TH, start_inverse_T=inverse_T)
        self.attention.forward(saved, x_TE, pack, attend, places)
        del x_TE
        self._drop_projections(saved, keep, places)
        attention_out_TH = self.attention.project(saved, places)
        if keep is None or not keep.attention:
            saved.o_TE = saved.lse_NT = None
        stream.pending_TH = self.feed_forward.forward(saved, attention_out_TH, places)
        stream.sum_TH = saved.middle_TH
        if keep is None:
            return None
        self._drop_feed_forward(saved, keep)
        return saved

    def _places(self, like_TH: torch.Tensor, keep: Keep, offload: Offload | None) -> Places:
        """Memory for what stays on the device when the layer is done, and for what is parked then."""
        w, s, tokens = self.weights, self.shape, len(like_TH)
        parked = {
            name: there(offload).take(name, tokens, width, like_TH) for name, width in self.parks(keep).items() if width
        }
        xa_down_TR = like_TH.new_empty(tokens, w.down.rank)
        places = Places(next_TH=torch.empty_like(like_TH), xa_down_TR=xa_down_TR, **parked)
        if keep.attention:
            wide = torch.promote_types(like_TH.dtype, torch.float32)
            places.lse_NT = like_TH.new_empty(s.heads, tokens, dtype=wide)
            places.o_TE = w.o.new_input(tokens, like_TH) if places.o_TE is None else places.o_TE
        if keep.qkv:
            places.qkv_TC = like_TH.new_empty(tokens, w.qkv.outputs)
            places.xa_qkv_TR = None if keep.elementwise else like_TH.new_empty(tokens, w.qkv.rank)
        if keep.rotated and w.q_norm is not None:
            places.q_TND = like_TH.new_empty(tokens, s.heads, s.head_dim)
            places.k_TMD = like_TH.new_empty(tokens, s.kv_heads, s.head_dim)
        if keep.middle:
            places.middle_TH = torch.empty_like(like_TH)
            places.attention_out_TH = None if w.attention_post_norm is None else torch.empty_like(like_TH)
        if keep.gate_up:
            if places.gate_up_TJ is None:
                places.gate_up_TJ = like_TH.new_empty(tokens, w.gate_up.outputs)
            places.xa_gate_up_TR = like_TH.new_empty(tokens, w.gate_up.rank)
        places.mlp_out_TH = None if w.mlp_post_norm is None else torch.empty_like(like_TH)
        return places

    def _drop_projections(self, saved: Saved, keep: Keep | None, places: Places | None) -> None:
        """Forget what attention took, where the backward pass does not need it or shall compute it again."""
        if keep is None:
            saved.x_attention_TE = saved.xa_qkv_TR = saved.qkv_TC = saved.q_TND = saved.k_TMD = None
            return
        if not keep.elementwise:
            # The adapter columns are small; kept apart, the wide tensor around them can go.
            place, columns = there(places).xa_qkv_TR, there(saved.xa_qkv_TR)
            saved.x_attention_TE, saved.xa_qkv_TR = None, None if place is None else place.copy_(columns)
        if not keep.rotated and self.weights.q_norm is not None:
            saved.q_TND, saved.k_TMD = None, None
        if not keep.qkv:
            saved.qkv_TC, saved.q_TND, saved.k_TMD = None, None, None
            saved.x_attention_TE, saved.xa_qkv_TR = None, None

    def _drop_feed_forward(self, saved: Saved, keep: Keep) -> None:
        """The same of the feed-forward."""
        if not keep.elementwise:
            saved.x_mlp_TE, saved.activated_TE = None, None
        if not keep.middle:
            saved.middle_TH, saved.middle_inverse_T = None, None
            saved.attention_out_TH, saved.attention_out_inverse_T = None, None
            saved.x_mlp_TE = None
        if not keep.gate_up:
            saved.gate_up_TJ, saved.xa_gate_up_TR, saved.x_mlp_TE = None, None, None

    # Backward

    def backward(self, saved: Saved, gradient_TE: torch.Tensor, pack: Pack, *, wanted: bool = True) -> None:
        """Differentiate the layer: accumulate its adapters' gradients and turn the stream's gradient into its input's.

        Args:
            saved: From `forward`; emptied on the way.
            gradient_TE: `[T, H + ...]` with as many further columns as the widest adapter of o and down; its first H
                are the gradient of stream + pending after the layer, and on return of stream + pending before it.
            pack: As in `forward`.
            wanted: Whether the gradient before the layer is needed (False where nothing below is trained).
        """
        self._restore_output(saved, pack)
        self._restore_middle(saved)
        self.feed_forward.backward(saved, gradient_TE)
        self._restore_attention(saved, pack)
        self.attention.backward(saved, gradient_TE, pack, wanted)

    @property
    def _memory_counts(self) -> bool:
        """Rather compute a thing twice than keep it until it is needed again: so where the feed-forward is tiled."""
        return self.feed_forward.rows > 0

    def _restore_output(self, saved: Saved, pack: Pack) -> None:
        """Attention's output, if it was not kept."""
        if saved.o_TE is not None:
            return
        self._attention_again(saved, pack)
        if self._memory_counts:  # projected once more when attention is differentiated
            saved.x_attention_TE = saved.xa_qkv_TR = saved.qkv_TC = saved.q_TND = saved.k_TMD = None

    def _restore_middle(self, saved: Saved) -> None:
        """The stream between the halves, if it was not kept."""
        if saved.middle_TH is not None:
            return
        w = self.weights
        assert saved.o_TE is not None
        out = self.attention.project(saved)
        if self._memory_counts:
            saved.middle_TH = out.add_(saved.start_TH)  # the same bits as the norm's sum; the tiles do the rest
            return
        saved.x_mlp_TE = w.gate_up.new_input(len(out), out)
        sum_TH, saved.middle_inverse_T = norm(
            self.shape, out, w.mlp_norm, saved.x_mlp_TE, saved.start_TH, in_place=True
        )
        saved.middle_TH = sum_TH

    def _restore_attention(self, saved: Saved, pack: Pack) -> None:
        """What attention's half needs, if it is not there."""
        if saved.qkv_TC is not None:
            return
        self._attention_again(saved, pack)
        if self._memory_counts:  # made once more for its gradient
            saved.x_attention_TE, saved.xa_qkv_TR = None, _compact(there(saved.xa_qkv_TR))

    def _attention_again(self, saved: Saved, pack: Pack) -> None:
        """From the layer's input to where attention's half is complete."""
        w = self.weights
        x_TE = w.qkv.new_input(len(saved.start_TH), saved.start_TH)
        norm(self.shape, saved.start_TH, w.attention_norm, x_TE)
        self.attention.forward(saved, x_TE, pack)


def _compact(view: torch.Tensor) -> torch.Tensor:
    """A copy, so that the tensor it is a view of can be freed; an empty view would count as compact already."""
    return view.clone(memory_format=torch.contiguous_format)
