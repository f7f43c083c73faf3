"""The two maps of a feed-forward and the activation between them, forward and backward.

Shapes as in `layer_tensors`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from burnish_engine.models.decoder import fused_mlp
from burnish_engine.models.decoder.layer_types import not_none
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_kernels.swiglu import op as swiglu
from burnish_kernels.xielu import op as xielu


@dataclass
class GateUpGradient:
    """The gradient of the first map's output.

    Attributes:
        gradient_TE: tensor from `StackedLinear.new_gradient`, its first J columns filled.
        largest_T: each row's largest magnitude, where a kernel found it for the product in 8 bits.
        is_fused: whether a kernel accumulated the gradients of the first map's B already.
    """

    gradient_TE: torch.Tensor
    largest_T: torch.Tensor | None
    is_fused: bool


@dataclass(frozen=True)
class FeedForwardMaps:
    """The maps of a dense feed-forward, or of an expert that sees every token.

    Attributes:
        gate_up: first map, whose outputs are gate and up, or up alone.
        down: map back to the hidden size.
        activation: activation between them, as in `DecoderLayerShape`.
        xielu_4: constants of the activation, where it is xIELU.
    """

    gate_up: StackedLinear
    down: StackedLinear
    activation: str
    xielu_4: torch.Tensor | None = None

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Unpack the frozen weights at most once in the block, where they are packed."""
        with self.gate_up.frozen.prepared(), self.down.frozen.prepared():
            yield

    def project_down(
        self, gate_up_TJ: torch.Tensor, activated_TE: torch.Tensor, out_TH: torch.Tensor, chunk: int
    ) -> None:
        """Activate into `activated_TE`, a tensor from `down.new_input`, and project down into `out_TH`."""
        down, activation = self.down, self.activation
        act_TI = activated_TE[:, : down.inputs]
        if self.xielu_4 is not None:
            xielu.forward(gate_up_TJ, self.xielu_4, out=act_TI)
            down.forward(activated_TE, out_TH, chunk=chunk)
        elif not fused_mlp.forward(down, gate_up_TJ, activated_TE, activation=activation, out=out_TH):
            codes = down.new_input_codes(len(activated_TE))
            swiglu.forward(gate_up_TJ, activation=activation, out=act_TI, codes_out=codes)
            down.forward(activated_TE, out_TH, chunk=chunk, codes=codes)

    def gradient(
        self,
        dy_TE: torch.Tensor,
        dact_TI: torch.Tensor,
        gate_up_TJ: torch.Tensor,
        xa_gate_up_TR: torch.Tensor,
        xa_down_TR: torch.Tensor,
        *,
        activated_TE: torch.Tensor | None = None,
        chunk: int = 0,
    ) -> GateUpGradient:
        """Differentiate the activation, and accumulate the gradients of the second map's adapters.

        Those of the first map's follow (`StackedLinear.accumulate`), except B's where a kernel did it here.

        Args:
            dy_TE: gradient of the output as `down.input_gradient` left it.
            dact_TI: gradient of the activation, which that returned.
            gate_up_TJ: output of the first map.
            xa_gate_up_TR: XAᵀ of its input.
            xa_down_TR: XAᵀ of the activation.
            activated_TE: the activation, where it was saved.
            chunk: number of this chunk of tokens.
        """
        gate_up, down, activation = self.gate_up, self.down, self.activation
        dgate_up_TE = gate_up.new_gradient(len(dy_TE), dy_TE)
        dgate_up = dgate_up_TE[:, : gate_up.outputs]
        largest = gate_up.new_largest(dgate_up_TE)
        fused = self.xielu_4 is None and fused_mlp.backward(
            down,
            gate_up,
            dy_TE,
            dact_TI,
            gate_up_TJ,
            xa_gate_up_TR,
            activation=activation,
            out=dgate_up,
            largest_out=largest,
        )
        act_out = None
        if not fused:
            if activated_TE is None:
                activated_TE = act_out = dy_TE.new_empty(len(dy_TE), down.inputs)
            if self.xielu_4 is None:
                swiglu.backward(dact_TI, gate_up_TJ, activation=activation, out=dgate_up, act_out=act_out)
            else:
                xielu.backward(dact_TI, gate_up_TJ, self.xielu_4, out=dgate_up, act_out=act_out)
        if gate_up.magnitudes is not None:
            gate_up.magnitudes.accumulate(dgate_up, gate_up_TJ)
        act = None if fused else not_none(activated_TE)[:, : down.inputs]
        down.accumulate(dy_TE, act, xa_down_TR, chunk=chunk)
        return GateUpGradient(dgate_up_TE, largest if fused else None, fused)
