"""One decoder layer with a forward and a backward pass written out, so that what is kept between them is a decision.

The residual stream is a sum: each half of a layer adds its output to it, and that addition is fused with the norm that
follows. So a layer takes the stream and an output that is still `pending`, and returns the same pair.

Shapes: T tokens of a packed pass, H hidden size, N query heads, M key and value heads, D head dimension, I width of the
feed-forward, E a width extended by adapter columns (see `stacked_linear`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import torch

from burnish_engine.models import fused_mlp
from burnish_engine.models.keep import Keep
from burnish_engine.models.layer_types import Attend, Pack, Places, Saved, Shape, Weights
from burnish_engine.models.offload import Offload, Parks
from burnish_engine.models.stacked_linear import StackedLinear
from burnish_kernels.attention import op as attention
from burnish_kernels.rms_norm import op as rms_norm
from burnish_kernels.rope import op as rope
from burnish_kernels.swiglu import op as swiglu

Thing = TypeVar("Thing")


class DecoderLayer:
    """One layer.

    Args:
        shape: Its constants.
        weights: Its parameters.

    Attributes:
        mlp_rows: Tokens that pass the feed-forward at once, which bounds the memory of its wide tensors; 0: all.
    """

    def __init__(self, shape: Shape, weights: Weights) -> None:
        self.shape, self.weights = shape, weights
        self.mlp_rows = 0

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
        stream_TH: torch.Tensor | None,
        pending_TH: torch.Tensor,
        pack: Pack,
        *,
        keep: Keep | None = None,
        attend: Attend | None = None,
        offload: Offload | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, Saved | None]:
        """Run the layer.

        Args:
            stream_TH: The residual stream; None before the first layer.
            pending_TH: What is to be added to it.
            pack: The pass's documents.
            keep: What to keep for `backward`; None: nothing will be differentiated.
            attend: Does the attention instead; then nothing can be kept.
            offload: Has memory for what will be parked there; needed if something is.

        Returns:
            The stream, what is to be added to it, and what was kept.
        """
        w = self.weights
        tokens = len(pending_TH)
        places = None if keep is None else self._places(pending_TH, keep)
        x_TE = w.qkv.new_input(tokens, pending_TH)
        start_TH, inverse_T = self._norm(pending_TH, w.attention_norm, x_TE, stream_TH, in_place=True)
        saved = Saved(start_TH, inverse_T)
        del stream_TH, pending_TH
        parks = () if keep is None else keep.host
        if "o_TE" in parks:
            saved.o_TE = _there(offload).take("o_TE", tokens, w.o.inputs + w.o.rank, x_TE)
        self._attention_half(saved, x_TE, pack, attend, places)
        del x_TE
        attention_out = self._attention_output(saved, places)
        self._drop_attention(saved, keep, places)
        if "gate_up_TJ" in parks:
            saved.gate_up_TJ = _there(offload).take("gate_up_TJ", tokens, w.gate_up.outputs, start_TH)
        pending = self._mlp_half(saved, attention_out, keep, places)
        assert saved.middle_TH is not None
        stream = saved.middle_TH
        if keep is None:
            return stream, pending, None
        self._drop_mlp(saved, keep)
        return stream, pending, saved

    def _places(self, like_TH: torch.Tensor, keep: Keep) -> Places:
        """Memory for what stays on the device when the layer is done."""
        w, s, tokens = self.weights, self.shape, len(like_TH)
        places = Places(like_TH.new_empty(tokens, w.down.rank), torch.empty_like(like_TH))
        if keep.attention:
            wide = torch.promote_types(like_TH.dtype, torch.float32)
            places.lse_NT = like_TH.new_empty(s.heads, tokens, dtype=wide)
            places.o_TE = None if "o_TE" in keep.host else w.o.new_input(tokens, like_TH)
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
            places.gate_up_TJ = None if "gate_up_TJ" in keep.host else like_TH.new_empty(tokens, w.gate_up.outputs)
            places.xa_gate_up_TR = like_TH.new_empty(tokens, w.gate_up.rank)
        places.mlp_out_TH = None if w.mlp_post_norm is None else torch.empty_like(like_TH)
        return places

    def _norm(
        self,
        x_TH: torch.Tensor,
        weight_H: torch.Tensor,
        out_TE: torch.Tensor,
        residual_TH: torch.Tensor | None = None,
        *,
        in_place: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalize x plus the residual into the first columns of `out_TE`; returns the sum and the inverse.

        Args:
            x_TH: As in `rms_norm.forward`.
            weight_H: As there.
            out_TE: The normalized values go to its first H columns.
            residual_TH: As there.
            in_place: The sum takes the place of x.
        """
        _, total, inverse = rms_norm.forward(
            x_TH,
            weight_H,
            eps=self.shape.eps,
            residual_TH=residual_TH,
            one_plus_weight=self.shape.one_plus,
            out=out_TE[:, : len(weight_H)],
            sum_out=x_TH if in_place and residual_TH is not None else None,
        )
        return total, inverse

    def _attention_half(
        self, saved: Saved, x_TE: torch.Tensor, pack: Pack, attend: Attend | None, places: Places | None
    ) -> None:
        """From the normalized stream to attention's output."""
        w, s = self.weights, self.shape
        saved.qkv_TC = w.qkv.forward(x_TE, places.qkv_TC if places else None)
        saved.xa_qkv_TR = w.qkv.adapted_input(x_TE)
        saved.x_attention_TE = x_TE
        q, k, v = self._rotated(saved, pack, places)
        if saved.lse_NT is not None:  # in the backward pass
            return
        if saved.o_TE is None:
            given = places.o_TE if places else None
            saved.o_TE = w.o.new_input(len(x_TE), x_TE) if given is None else given
        out = saved.o_TE[:, : w.o.inputs].unflatten(1, (s.heads, s.head_dim))
        if attend is not None:
            attend(s, q, k, v, out)
        else:
            _, saved.lse_NT = attention.forward(
                *(q, k, v, pack.documents),
                scale=s.scale,
                window=s.window,
                softcap=s.softcap,
                out=out,
                lse_out=places.lse_NT if places else None,
            )

    def _rotated(
        self, saved: Saved, pack: Pack, places: Places | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values as attention takes them."""
        w, s = self.weights, self.shape
        assert saved.qkv_TC is not None
        heads = saved.qkv_TC.unflatten(1, (s.heads + 2 * s.kv_heads, s.head_dim))
        q, k, v = heads.split((s.heads, s.kv_heads, s.kv_heads), dim=1)
        if saved.q_TND is not None and saved.k_TMD is not None:
            return saved.q_TND, saved.k_TMD, v
        if w.q_norm is not None:
            given = (places.q_TND, places.k_TMD) if places else (None, None)
            saved.q_TND, saved.k_TMD = self._rotate(saved.qkv_TC, pack, *given)
            return saved.q_TND, saved.k_TMD, v
        if w.table_PR is not None:  # in place: the backward pass does not need what was there before
            self._rotate(saved.qkv_TC, pack, q, k)
        saved.q_TND, saved.k_TMD = q, k
        return q, k, v

    def _rotate(
        self, qkv_TC: torch.Tensor, pack: Pack, q_out: torch.Tensor | None, k_out: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        w, s = self.weights, self.shape
        return rope.forward(
            qkv_TC,
            w.table_PR,
            pack.table_index_T,
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

    def _attention_output(self, saved: Saved, places: Places | None = None) -> torch.Tensor:
        """The output projection, after the norm that some families put behind it."""
        w = self.weights
        assert saved.o_TE is not None
        middle = places.middle_TH if places else None
        if w.attention_post_norm is None:
            return w.o.forward(saved.o_TE, middle)
        out = saved.attention_out_TH = w.o.forward(saved.o_TE, places.attention_out_TH if places else None)
        y, _, saved.attention_out_inverse_T = rms_norm.forward(
            out, w.attention_post_norm, eps=self.shape.eps, one_plus_weight=self.shape.one_plus, out=middle
        )
        return y

    def _mlp_half(
        self, saved: Saved, attention_out_TH: torch.Tensor, keep: Keep | None, places: Places | None
    ) -> torch.Tensor:
        """From attention's output to what is to be added to the stream; in tiles of `mlp_rows` tokens."""
        w, tokens = self.weights, len(attention_out_TH)
        last = places.next_TH if places else None
        given = last if w.mlp_post_norm is None or places is None else places.mlp_out_TH
        out = torch.empty_like(attention_out_TH) if given is None else given
        tiles, inverses = list(self._tiles(tokens)), []
        if places is not None:
            saved.xa_down_TR, saved.xa_gate_up_TR = places.xa_down_TR, places.xa_gate_up_TR
            saved.gate_up_TJ = places.gate_up_TJ if saved.gate_up_TJ is None else saved.gate_up_TJ
        with w.gate_up.frozen.held(), w.down.frozen.held():
            for number, rows in enumerate(tiles):
                own = attention_out_TH[rows]
                x_TE = w.gate_up.new_input(len(own), own)
                _, inverse = self._norm(own, w.mlp_norm, x_TE, saved.start_TH[rows], in_place=True)
                place = None if saved.gate_up_TJ is None else saved.gate_up_TJ[rows]
                gate_up = w.gate_up.forward(x_TE, place, tile=number)
                activated = w.down.new_input(len(own), own)
                self._project_down(gate_up, activated, out[rows], number)
                if keep is not None:
                    if len(tiles) == 1:
                        saved.x_mlp_TE, saved.activated_TE = x_TE, activated
                    inverses.append(inverse)
                    _there(saved.xa_down_TR)[rows].copy_(w.down.adapted_input(activated))
                    if saved.xa_gate_up_TR is not None:
                        saved.xa_gate_up_TR[rows].copy_(w.gate_up.adapted_input(x_TE))
                del x_TE, gate_up, activated  # before the next tile's are allocated
        saved.middle_TH = attention_out_TH
        if keep is not None:
            saved.middle_inverse_T = inverses[0] if len(inverses) == 1 else torch.cat(inverses)
        if w.mlp_post_norm is None:
            return out
        saved.mlp_out_TH = out
        y, _, saved.mlp_out_inverse_T = rms_norm.forward(
            out, w.mlp_post_norm, eps=self.shape.eps, one_plus_weight=self.shape.one_plus, out=last
        )
        return y

    def _project_down(
        self, gate_up_TJ: torch.Tensor, activated_TE: torch.Tensor, out_TH: torch.Tensor, tile: int
    ) -> None:
        """Activate into `activated_TE` and project down into `out_TH`."""
        w, activation = self.weights, self.shape.activation
        if not fused_mlp.forward(w.down, gate_up_TJ, activated_TE, activation=activation, out=out_TH):
            swiglu.forward(gate_up_TJ, activation=activation, out=activated_TE[:, : w.down.inputs])
            w.down.forward(activated_TE, out_TH, tile=tile)

    def _tiles(self, tokens: int) -> Iterator[slice]:
        """Rows that pass the feed-forward at once."""
        step = self.mlp_rows or tokens
        return (slice(first, min(first + step, tokens)) for first in range(0, tokens, step))

    def _drop_attention(self, saved: Saved, keep: Keep | None, places: Places | None) -> None:
        """Forget what the backward pass does not need, or shall compute again, as soon as it was used."""
        if keep is None:
            saved.x_attention_TE = saved.xa_qkv_TR = saved.qkv_TC = saved.q_TND = saved.k_TMD = None
            saved.o_TE = saved.lse_NT = None
            return
        if not keep.elementwise:
            # The adapter columns are small; kept apart, the wide tensor around them can go.
            place, columns = places.xa_qkv_TR if places else None, _there(saved.xa_qkv_TR)
            saved.x_attention_TE, saved.xa_qkv_TR = None, None if place is None else place.copy_(columns)
        if not keep.rotated and self.weights.q_norm is not None:
            saved.q_TND, saved.k_TMD = None, None
        if not keep.qkv:
            saved.qkv_TC, saved.q_TND, saved.k_TMD = None, None, None
            saved.x_attention_TE, saved.xa_qkv_TR = None, None
        if not keep.attention:
            saved.o_TE, saved.lse_NT = None, None

    def _drop_mlp(self, saved: Saved, keep: Keep) -> None:
        """The same for the feed-forward."""
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
        self._mlp_backward(saved, gradient_TE)
        self._restore_attention(saved, pack)
        self._attention_backward(saved, gradient_TE, pack, wanted)

    def _restore_output(self, saved: Saved, pack: Pack) -> None:
        """Attention's output, if it was not kept."""
        if saved.o_TE is not None:
            return
        w = self.weights
        x_TE = w.qkv.new_input(len(saved.start_TH), saved.start_TH)
        self._norm(saved.start_TH, w.attention_norm, x_TE)
        self._attention_half(saved, x_TE, pack, None, None)
        if self.mlp_rows:  # memory counts: projected once more when attention is differentiated
            saved.x_attention_TE = saved.xa_qkv_TR = saved.qkv_TC = saved.q_TND = saved.k_TMD = None

    def _restore_middle(self, saved: Saved) -> None:
        """The stream between the halves, if it was not kept."""
        if saved.middle_TH is not None:
            return
        w = self.weights
        assert saved.o_TE is not None
        out = self._attention_output(saved)
        if self.mlp_rows:
            saved.middle_TH = out.add_(saved.start_TH)  # the same bits as the norm's sum; the tiles do the rest
            return
        saved.x_mlp_TE = w.gate_up.new_input(len(out), out)
        sum_TH, saved.middle_inverse_T = self._norm(out, w.mlp_norm, saved.x_mlp_TE, saved.start_TH, in_place=True)
        saved.middle_TH = sum_TH

    def _restore_attention(self, saved: Saved, pack: Pack) -> None:
        """What attention's half needs, if it is not there."""
        if saved.qkv_TC is not None:
            return
        w = self.weights
        x_TE = w.qkv.new_input(len(saved.start_TH), saved.start_TH)
        self._norm(saved.start_TH, w.attention_norm, x_TE)
        self._attention_half(saved, x_TE, pack, None, None)
        if self.mlp_rows:  # memory counts: made once more for its gradient
            saved.x_attention_TE, saved.xa_qkv_TR = None, _compact(saved.xa_qkv_TR)

    def _mlp_backward(self, saved: Saved, gradient_TE: torch.Tensor) -> None:
        with self.weights.gate_up.frozen.held(), self.weights.down.frozen.held():
            for number, rows in enumerate(self._tiles(len(gradient_TE))):
                self._mlp_tile_backward(saved, gradient_TE[rows], rows, number)
        saved.gate_up_TJ = saved.activated_TE = saved.xa_down_TR = saved.mlp_out_TH = saved.mlp_out_inverse_T = None
        saved.middle_TH = saved.middle_inverse_T = saved.x_mlp_TE = saved.xa_gate_up_TR = None

    def _mlp_tile_backward(self, saved: Saved, gradient_TE: torch.Tensor, rows: slice, tile: int) -> None:
        """Differentiate the feed-forward of some rows, whose gradient is given and changed."""
        w, hidden = self.weights, len(self.weights.mlp_norm)
        middle, x = _there(saved.middle_TH)[rows], _rows(saved.x_mlp_TE, rows)
        gate_up, xa_gate_up = _rows(saved.gate_up_TJ, rows), _rows(saved.xa_gate_up_TR, rows)
        inverse = _rows(saved.middle_inverse_T, rows)
        if gate_up is None:
            if x is None:
                x = w.gate_up.new_input(len(middle), middle)
                _, inverse = self._norm(middle, w.mlp_norm, x)
            gate_up, xa_gate_up = w.gate_up.forward(x, tile=tile), w.gate_up.adapted_input(x)
        mlp_out, mlp_inverse = _rows(saved.mlp_out_TH, rows), _rows(saved.mlp_out_inverse_T, rows)
        dy_TE = self._through_post_norm(gradient_TE, w.mlp_post_norm, mlp_out, mlp_inverse, w.down)
        dact = _there(w.down.input_gradient(dy_TE, tile=tile))
        dgate_up_TE = w.gate_up.new_gradient(len(dy_TE), dy_TE)
        dgate_up, xa_gate_up = dgate_up_TE[:, : w.gate_up.outputs], _there(xa_gate_up)
        activation = self.shape.activation
        fused = fused_mlp.backward(
            w.down, w.gate_up, dy_TE, dact, gate_up, xa_gate_up, activation=activation, out=dgate_up
        )
        activated, act_out = _rows(saved.activated_TE, rows), None
        if not fused:
            if activated is None:
                activated = act_out = dy_TE.new_empty(len(dy_TE), w.down.inputs)
            swiglu.backward(dact, gate_up, activation=activation, out=dgate_up, act_out=act_out)
        saved.gate_up_TJ = None if self.mlp_rows == 0 else saved.gate_up_TJ
        del dact, gate_up
        act = None if fused else _there(activated)[:, : w.down.inputs]
        w.down.accumulate(dy_TE, act, _there(saved.xa_down_TR)[rows], tile=tile)
        activated = act_out = act = None
        del dy_TE
        dx = w.gate_up.input_gradient(dgate_up_TE, tile=tile)
        x = self._norm_backward(dx, middle, w.mlp_norm, _there(inverse), gradient_TE[:, :hidden], x)
        w.gate_up.accumulate(dgate_up_TE, x[:, : w.gate_up.inputs], None if fused else xa_gate_up, tile=tile)

    def _attention_backward(self, saved: Saved, gradient_TE: torch.Tensor, pack: Pack, wanted: bool) -> None:
        w, s = self.weights, self.shape
        assert saved.o_TE is not None
        assert saved.lse_NT is not None
        assert saved.qkv_TC is not None
        dy_TE = self._through_post_norm(
            gradient_TE, w.attention_post_norm, saved.attention_out_TH, saved.attention_out_inverse_T, w.o
        )
        do = w.o.input_gradient(dy_TE)
        assert do is not None
        w.o.accumulate(dy_TE, saved.o_TE[:, : w.o.inputs], w.o.adapted_input(saved.o_TE))
        saved.attention_out_TH = None
        del dy_TE
        q, k, v = self._rotated(saved, pack)
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
            pack.documents,
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
                pack.table_index_T,
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
        x = self._norm_backward(
            dx, saved.start_TH, w.attention_norm, saved.start_inverse_T, hidden, saved.x_attention_TE
        )
        w.qkv.accumulate(dqkv_TE, x[:, : w.qkv.inputs], _there(saved.xa_qkv_TR))
        saved.x_attention_TE = saved.xa_qkv_TR = None

    def _through_post_norm(
        self,
        gradient_TE: torch.Tensor,
        weight_H: torch.Tensor | None,
        out_TH: torch.Tensor | None,
        inverse_T: torch.Tensor | None,
        stack: StackedLinear,
    ) -> torch.Tensor:
        """The gradient of a projection's output, extended for its adapters."""
        width = stack.outputs + stack.rank
        if weight_H is None:
            return gradient_TE[:, :width]
        assert out_TH is not None
        assert inverse_T is not None
        dy_TE = stack.new_gradient(len(gradient_TE), gradient_TE)
        rms_norm.backward(
            gradient_TE[:, : stack.outputs],
            out_TH,
            weight_H,
            inverse_T,
            one_plus_weight=self.shape.one_plus,
            out=dy_TE[:, : stack.outputs],
        )
        return dy_TE

    def _norm_backward(
        self,
        dx_TH: torch.Tensor | None,
        sum_TH: torch.Tensor,
        weight_H: torch.Tensor,
        inverse_T: torch.Tensor,
        stream_gradient_TH: torch.Tensor,
        x_TE: torch.Tensor | None,
    ) -> torch.Tensor:
        """Add the norm's gradient to the stream's in place; returns the norm's output, recomputed where not kept."""
        one_plus = self.shape.one_plus
        if dx_TH is None:
            if x_TE is not None:
                return x_TE
            return rms_norm.forward(sum_TH, weight_H, eps=self.shape.eps, one_plus_weight=one_plus)[0]
        y_out = torch.empty_like(sum_TH) if x_TE is None else None
        rms_norm.backward(
            dx_TH,
            sum_TH,
            weight_H,
            inverse_T,
            dsum_TH=stream_gradient_TH,
            one_plus_weight=one_plus,
            out=stream_gradient_TH,
            y_out=y_out,
        )
        if x_TE is not None:
            return x_TE
        assert y_out is not None
        return y_out


def _compact(view: torch.Tensor | None) -> torch.Tensor:
    """A copy, so that the tensor it is a view of can be freed; an empty view would count as compact already."""
    return _there(view).clone(memory_format=torch.contiguous_format)


def _rows(tensor: torch.Tensor | None, rows: slice) -> torch.Tensor | None:
    return None if tensor is None else tensor[rows]


def _there(thing: Thing | None) -> Thing:
    assert thing is not None
    return thing
