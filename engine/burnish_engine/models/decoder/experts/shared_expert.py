"""The expert of a mixture that sees every token: a dense feed-forward, scaled by the sigmoid of a logit of its input.

Shapes as in `declared`: T tokens, H hidden size, J = 2 S, E a width extended by adapter columns (see `stacked_linear`).
"""

from __future__ import annotations

import torch
from torch.nn.functional import linear

from burnish_engine.models.decoder.feed_forward import FeedForwardMaps
from burnish_engine.models.decoder.layer_types import not_none
from burnish_kernels.eight_bit_linear.rows import EightBitRows


class SharedExpert:
    """The expert of a layer that sees every token.

    Args:
        maps: its two maps, gate before up in the first one's outputs.
        gate_1H: projection to the logit of its scale; None: nothing scales it.
    """

    def __init__(self, maps: FeedForwardMaps, gate_1H: torch.Tensor | None) -> None:
        self.maps, self._gate_1H = maps, gate_1H

    def forward(
        self,
        x_TE: torch.Tensor,
        codes: EightBitRows | None,
        *,
        gate_up: torch.Tensor | None,
        xa_gate_up: torch.Tensor | None,
        xa_down: torch.Tensor | None,
        out: torch.Tensor,
        chunk: int,
    ) -> torch.Tensor | None:
        """Compute the expert's output, not scaled yet.

        Args:
            x_TE: normalized stream, a tensor from `maps.gate_up.new_input`.
            codes: its codes, where products have 8 bits.
            gate_up: tensor `[T, J]` for the first map's output; None: a new one.
            xa_gate_up: tensor for XAᵀ of the input; None: it is not saved.
            xa_down: tensor for XAᵀ of the activation; None: it is not saved.
            out: tensor `[T, H]` for the output.
            chunk: number of this chunk of tokens.

        Returns:
            The factor `[T]` of each token's output; None where nothing scales it.
        """
        first, second = self.maps.gate_up, self.maps.down
        gate_up = first.forward(x_TE, gate_up, chunk=chunk, codes=codes)
        activated_TE = second.new_input(len(x_TE), x_TE)
        self.maps.project_down(gate_up, activated_TE, out, chunk)
        if xa_gate_up is not None:
            xa_gate_up.copy_(first.adapted_input(x_TE))
        if xa_down is not None:
            xa_down.copy_(second.adapted_input(activated_TE))
        if self._gate_1H is None:
            return None
        return linear(x_TE[:, : first.inputs], self._gate_1H).sigmoid_().view(-1)

    def backward(
        self,
        x_TE: torch.Tensor,
        codes: EightBitRows | None,
        dout_TH: torch.Tensor,
        scale_T: torch.Tensor | None,
        *,
        gate_up: torch.Tensor | None,
        xa_gate_up: torch.Tensor | None,
        xa_down: torch.Tensor,
        chunk: int,
    ) -> torch.Tensor:
        """Accumulate the adapters' gradients, and return the gradient `[T, H]` of the normalized stream.

        Args:
            x_TE: normalized stream, as in `forward`.
            codes: its codes, where the first map's output was not saved and products have 8 bits.
            dout_TH: gradient of the scaled output.
            scale_T: factor that `forward` returned, or None.
            gate_up: output of the first map, where it was saved.
            xa_gate_up: XAᵀ of the input, where it was saved.
            xa_down: XAᵀ of the activation.
            chunk: number of this chunk of tokens.
        """
        first, second = self.maps.gate_up, self.maps.down
        if gate_up is None:
            gate_up, xa_gate_up = first.forward(x_TE, chunk=chunk, codes=codes), first.adapted_input(x_TE)
        dy_TE = second.new_gradient(len(dout_TH), dout_TH)
        if scale_T is None:
            dy_TE[:, : second.outputs] = dout_TH
        else:
            torch.mul(dout_TH, scale_T[:, None], out=dy_TE[:, : second.outputs])
        dact_TI = not_none(second.input_gradient(dy_TE, chunk=chunk))
        made = self.maps.gradient(dy_TE, dact_TI, gate_up, not_none(xa_gate_up), xa_down, chunk=chunk)
        del dy_TE, dact_TI
        dlogit_T = None if scale_T is None else self._logit_gradient(gate_up, made.gradient_TE, scale_T)
        del gate_up
        dx_TH = not_none(first.input_gradient(made.gradient_TE, chunk=chunk, largest_T=made.largest_T))
        xa_TR = None if made.is_fused else xa_gate_up
        first.accumulate(made.gradient_TE, x_TE[:, : first.inputs], xa_TR, chunk=chunk, magnitudes=False)
        return dx_TH if dlogit_T is None else dx_TH.addr_(dlogit_T, not_none(self._gate_1H)[0])

    def _logit_gradient(self, gate_up: torch.Tensor, dgate_up_TE: torch.Tensor, scale_T: torch.Tensor) -> torch.Tensor:
        """Return the gradient of each token's logit."""
        # The scale's gradient times the scale is the sum of output times gradient, and equal to that of up times its
        # gradient: the output is linear in up.
        first, second = self.maps.gate_up, self.maps.down
        up_TI, dup_TI = gate_up[:, second.inputs :], dgate_up_TE[:, second.inputs : first.outputs]
        return (up_TI * dup_TI).sum(1).mul_(1 - scale_T)
