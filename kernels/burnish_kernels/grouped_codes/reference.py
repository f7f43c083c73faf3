"""Experts' products of E4M3 codes in plain PyTorch: the definition of the kernels' results, and the path without a GPU.

All weights of an expert share a scale: E4M3 has an exponent of its own in each code, and weights of an expert are not
so far apart that more scales would save a bit. So one payload serves both directions. MXFP4's scale is a power of two,
with which its values are exact in E4M3 wherever their block is at most 14 powers of two below the expert's largest.

Shapes: P sorted rows, E experts, N outputs, C columns of the reduction, R ranks.
"""

from __future__ import annotations

import torch

from burnish_kernels.eight_bit_linear.reference import encode, row_scale
from burnish_kernels.grouped_codes.stack import CodedExperts
from burnish_kernels.grouped_linear.reference import rows_read
from burnish_kernels.moe_sort.order import ExpertOrder
from burnish_kernels.moe_unpack import reference as unpacked
from burnish_kernels.moe_unpack.stacks import Mxfp4Experts, Nf4Experts, Packed

MXFP4_BELOW = 127 + 6
"""Difference of an expert's largest stored exponent and that of its scale: MXFP4's largest value, 6, becomes 384."""


def expert_scales(weight: torch.Tensor | Packed | CodedExperts) -> torch.Tensor:
    """Return the scale of each expert's codes, `[E]` fp32; in NF4 the largest value of a block is its scale."""
    if isinstance(weight, CodedExperts):
        return weight.scale
    if isinstance(weight, Mxfp4Experts):
        exponent_E = weight.scales.flatten(1).amax(dim=1).int() - MXFP4_BELOW
        return torch.ldexp(torch.ones(len(exponent_E), device=exponent_E.device), exponent_E.clamp(min=-126))
    if isinstance(weight, Nf4Experts):
        held = [unpacked.nf4_scales(weight, one, 1) for one in range(weight.experts)]
    else:
        held = list(weight)
    return row_scale(torch.stack([one.abs().amax() for one in held]).float())


def unpack_codes(
    weight: torch.Tensor | Packed | CodedExperts, scale_E: torch.Tensor, first: int, count: int
) -> torch.Tensor:
    """Return the codes `[count, N, K]` of some experts."""
    if isinstance(weight, CodedExperts):
        return weight.codes[first : first + count]
    if isinstance(weight, torch.Tensor):
        wide = weight[first : first + count].float()
    else:
        wide = unpacked.unpack(weight, first, count, torch.float32)
    scale = scale_E[first : first + count]
    return torch.stack([encode(one, own.expand(len(one))) for one, own in zip(wide, scale, strict=True)])


def grouped_codes(
    codes: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor | Packed | CodedExperts,
    scale_E: torch.Tensor,
    order: ExpertOrder,
    out_PN: torch.Tensor,
    *,
    by_token: bool,
    transposed: bool,
    narrow_PR: torch.Tensor | None,
    adapter_ENR: torch.Tensor | None,
    bias_EN: torch.Tensor | None,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Fill `out_PN`, computed in `dtype`, one expert after another; see `op.grouped_codes`."""
    read, edges = rows_read(order, by_token=by_token), order.offsets.tolist()
    for expert in range(order.experts):
        own = slice(edges[expert], edges[expert + 1])
        rows = read[own] if isinstance(read, torch.Tensor) else own
        weight_NC = unpack_codes(weight, scale_E, expert, 1)[0]
        weight_NC = weight_NC.t() if transposed else weight_NC
        y = codes[rows].to(dtype) @ weight_NC.to(dtype).t()
        y = y * (x_scale[rows].to(dtype) * scale_E[expert].to(dtype))[:, None]
        if narrow_PR is not None and adapter_ENR is not None:
            y = y + narrow_PR[own].to(dtype) @ adapter_ENR[expert].to(dtype).t()
        out_PN[own] = (y if bias_EN is None else y + bias_EN[expert].to(dtype)).to(out_PN.dtype)
