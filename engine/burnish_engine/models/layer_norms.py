"""The norms of a decoder layer, fused with the sums around them. Shapes as in `decoder_layer`."""

from __future__ import annotations

import torch

from burnish_engine.models.layer_types import Shape
from burnish_engine.models.stacked_linear import StackedLinear
from burnish_kernels.rms_norm import op as rms_norm


def norm(
    shape: Shape,
    x_TH: torch.Tensor,
    weight_H: torch.Tensor,
    out_TE: torch.Tensor,
    residual_TH: torch.Tensor | None = None,
    *,
    in_place: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalize x plus the residual into the first columns of `out_TE`; returns the sum and the inverse.

    Args:
        shape: Of the layer.
        x_TH: As in `rms_norm.forward`.
        weight_H: As there.
        out_TE: The normalized values go to its first H columns.
        residual_TH: As there.
        in_place: The sum takes the place of x.
    """
    _, total, inverse = rms_norm.forward(
        x_TH,
        weight_H,
        eps=shape.eps,
        residual_TH=residual_TH,
        one_plus_weight=shape.one_plus,
        out=out_TE[:, : len(weight_H)],
        sum_out=x_TH if in_place and residual_TH is not None else None,
    )
    return total, inverse


def norm_backward(
    shape: Shape,
    dx_TH: torch.Tensor | None,
    sum_TH: torch.Tensor,
    weight_H: torch.Tensor,
    inverse_T: torch.Tensor,
    stream_gradient_TH: torch.Tensor,
    x_TE: torch.Tensor | None,
) -> torch.Tensor:
    """Add the norm's gradient to the stream's in place; returns the norm's output, recomputed where not kept.

    Args:
        shape: Of the layer.
        dx_TH: Gradient of the norm's output; None: it is not wanted.
        sum_TH: What was normalized.
        weight_H: Of the norm.
        inverse_T: As `norm` returned it.
        stream_gradient_TH: Gradient of the stream, changed.
        x_TE: The norm's output, where it was kept.
    """
    if dx_TH is None:
        if x_TE is not None:
            return x_TE
        return rms_norm.forward(sum_TH, weight_H, eps=shape.eps, one_plus_weight=shape.one_plus)[0]
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
    )
    if x_TE is not None:
        return x_TE
    assert y_out is not None
    return y_out


def post_norm(
    shape: Shape, projected_TH: torch.Tensor, weight_H: torch.Tensor, out_TH: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm that some families put behind a projection: its output and the inverse.

    Args:
        shape: Of the layer.
        projected_TH: Output of the projection.
        weight_H: Of the norm.
        out_TH: Where to write; None: somewhere new.
    """
    y, _, inverse = rms_norm.forward(projected_TH, weight_H, eps=shape.eps, one_plus_weight=shape.one_plus, out=out_TH)
    return y, inverse


def post_norm_backward(
    shape: Shape,
    gradient_TE: torch.Tensor,
    weight_H: torch.Tensor | None,
    projected_TH: torch.Tensor | None,
    inverse_T: torch.Tensor | None,
    stack: StackedLinear,
) -> torch.Tensor:
    """The gradient of a projection's output, extended for its adapters.

    Args:
        shape: Of the layer.
        gradient_TE: Gradient of what the projection, or the norm behind it, hands on.
        weight_H: Of that norm; None: there is none.
        projected_TH: What it normalized.
        inverse_T: As `post_norm` returned it.
        stack: The projection.
    """
    if weight_H is None:
        return gradient_TE[:, : stack.outputs + stack.rank]
    assert projected_TH is not None
    assert inverse_T is not None
    dy_TE = stack.new_gradient(len(gradient_TE), gradient_TE)
    rms_norm.backward(
        gradient_TE[:, : stack.outputs],
        projected_TH,
        weight_H,
        inverse_T,
        one_plus_weight=shape.one_plus,
        out=dy_TE[:, : stack.outputs],
    )
    return dy_TE
