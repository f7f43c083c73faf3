"""The norms of a decoder layer, fused with the sums around them. Shapes as in `layer_tensors`."""

from __future__ import annotations

import torch

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.layer_types import DecoderLayerShape
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_kernels.eight_bit_linear.op import EightBitRows, quantize_rows
from burnish_kernels.rms_norm import op as rms_norm


def stream_eps(spec: DecoderSpec) -> float:
    """Return the epsilon of norms of the residual stream, which the decoder divides by `residual_scale`."""
    return spec.rms_norm_eps / spec.residual_scale**2


def norm(
    shape: DecoderLayerShape,
    x_TH: torch.Tensor,
    weight_H: torch.Tensor | None,
    out_TE: torch.Tensor,
    residual_TH: torch.Tensor | None = None,
    *,
    in_place: bool = False,
    codes_out: EightBitRows | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Normalize x plus the residual into the first columns of `out_TE`; return the sum and the inverse norm.

    Args:
        shape: constants of the layer.
        x_TH: input, as in `rms_norm.forward`.
        weight_H: weight of the norm; None: there is none, the sum itself is written.
        out_TE: tensor whose first H columns take the normalized values.
        residual_TH: residual to add first, or None.
        in_place: whether the sum overwrites x.
        codes_out: codes of the normalized values to write, for the product that reads them; None: none.
    """
    if weight_H is None:
        total = x_TH
        if residual_TH is not None:
            total = x_TH.add_(residual_TH) if in_place else x_TH + residual_TH
        out_TE[:, : total.shape[1]].copy_(total)
        if codes_out is not None:
            quantize_rows(total, out=codes_out)
        return total, None
    _, total, inverse = rms_norm.forward(
        x_TH,
        weight_H,
        eps=shape.eps,
        residual_TH=residual_TH,
        one_plus_weight=shape.one_plus,
        out=out_TE[:, : len(weight_H)],
        sum_out=x_TH if in_place and residual_TH is not None else None,
        codes_out=codes_out,
    )
    return total, inverse


def norm_backward(
    shape: DecoderLayerShape,
    dx_TH: torch.Tensor | None,
    sum_TH: torch.Tensor,
    weight_H: torch.Tensor | None,
    inverse_T: torch.Tensor | None,
    stream_gradient_TH: torch.Tensor,
    x_TE: torch.Tensor | None,
    *,
    codes_out: EightBitRows | None = None,
    factor_H: torch.Tensor | None = None,
) -> torch.Tensor:
    """Add the norm's gradient to the stream's in place; return the norm's output, recomputed where it was not saved.

    Args:
        shape: constants of the layer.
        dx_TH: gradient of the norm's output; None: it is not wanted.
        sum_TH: sum that was normalized.
        weight_H: weight of the norm; None: there is none.
        inverse_T: inverse root mean square that `norm` returned.
        stream_gradient_TH: gradient of the stream, changed.
        x_TE: output of the norm, where it was saved.
        codes_out: codes of the stream's gradient times `factor_H` to write, for the product that reads it next; None:
            none. Never without a norm or where `dx_TH` is None.
        factor_H: factor of each column in the codes, fp32.
    """
    if weight_H is None:
        if dx_TH is not None:
            stream_gradient_TH.add_(dx_TH)
        assert codes_out is None
        return sum_TH if x_TE is None else x_TE
    if dx_TH is None:
        assert codes_out is None
        if x_TE is not None:
            return x_TE
        return rms_norm.forward(sum_TH, weight_H, eps=shape.eps, one_plus_weight=shape.one_plus)[0]
    assert inverse_T is not None
    y_out = torch.empty_like(sum_TH) if x_TE is None else None
    rms_norm.backward(
        dx_TH,
        sum_TH,
        weight_H,
        inverse_T,
        dsum_TH=stream_gradient_TH,
        one_plus_weight=shape.one_plus,
        out=stream_gradient_TH,
        y_out=y_out,
        codes_out=codes_out,
        factor_H=factor_H,
    )
    if x_TE is not None:
        return x_TE
    assert y_out is not None
    return y_out


def post_norm(
    shape: DecoderLayerShape, projected_TH: torch.Tensor, weight_H: torch.Tensor, out_TH: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply the norm that some families have after a projection; return its output and the inverse root mean square.

    Args:
        shape: constants of the layer.
        projected_TH: output of the projection.
        weight_H: weight of the norm.
        out_TH: tensor to write to; None: a new one.
    """
    y, _, inverse = rms_norm.forward(projected_TH, weight_H, eps=shape.eps, one_plus_weight=shape.one_plus, out=out_TH)
    return y, inverse


def post_norm_backward(
    shape: DecoderLayerShape,
    gradient_TE: torch.Tensor,
    weight_H: torch.Tensor | None,
    projected_TH: torch.Tensor | None,
    inverse_T: torch.Tensor | None,
    stack: StackedLinear,
    codes: EightBitRows | None = None,
) -> tuple[torch.Tensor, EightBitRows | None]:
    """Return the gradient of a projection's output, extended for its adapters, and its 8-bit codes where there are any.

    Args:
        shape: constants of the layer.
        gradient_TE: gradient of the output of the projection, or of the norm after it.
        weight_H: weight of that norm; None: there is none, and the gradient itself is returned unless the stack is
            about to scale it.
        projected_TH: output of the projection, which the norm read.
        inverse_T: inverse root mean square that `post_norm` returned.
        stack: stack of the projection.
        codes: codes of the gradient given, for the stack, where what made it wrote them.
    """
    if weight_H is None and not stack.is_dora:
        return gradient_TE[:, : stack.outputs + stack.rank], codes
    dy_TE = stack.new_gradient(len(gradient_TE), gradient_TE)
    if weight_H is None:
        dy_TE[:, : stack.outputs] = gradient_TE[:, : stack.outputs]
        return dy_TE, codes
    codes = stack.new_gradient_codes(len(gradient_TE))
    assert projected_TH is not None
    assert inverse_T is not None
    rms_norm.backward(
        gradient_TE[:, : stack.outputs],
        projected_TH,
        weight_H,
        inverse_T,
        one_plus_weight=shape.one_plus,
        out=dy_TE[:, : stack.outputs],
        codes_out=codes,
        factor_H=stack.frozen.gradient_factor_N,
    )
    return dy_TE, codes


def post_norm_gradient(
    shape: DecoderLayerShape,
    gradient_TH: torch.Tensor,
    weight_H: torch.Tensor | None,
    out_TH: torch.Tensor | None,
    inverse_T: torch.Tensor | None,
) -> torch.Tensor:
    """Return the gradient of a half's output; without a norm after it, the given gradient itself.

    Args:
        shape: constants of the layer.
        gradient_TH: gradient of the half's output, or of the norm after it.
        weight_H: weight of that norm; None: there is none.
        out_TH: output of the half, which the norm read.
        inverse_T: inverse root mean square that `post_norm` returned.
    """
    if weight_H is None:
        return gradient_TH
    assert out_TH is not None
    assert inverse_T is not None
    dout_TH = torch.empty_like(out_TH)
    rms_norm.backward(gradient_TH, out_TH, weight_H, inverse_T, one_plus_weight=shape.one_plus, out=dout_TH)
    return dout_TH
