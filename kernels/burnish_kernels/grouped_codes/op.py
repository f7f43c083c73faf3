"""The experts' linear maps with operands of E4M3 codes: validate, allocate, choose.

Triton on GPUs that multiply such codes (or in its interpreter), else PyTorch.

For each sorted row i of expert e, with rows quantized to codes q and scales s
(`eight_bit_linear.op.quantize_rows`), the expert's codes q_e and its one scale s_e:

    y[i] = s_x q_x s_e q_eᵀ + (x A_eᵀ)[i] (s B_e)ᵀ + bias_e        dx[i] = s_d q_d s_e q_e + (dy s B_e)[i] A_e

Weights are kept as codes, or in 16 bits or four and made codes group by group; and they are transposed for dx, because
a product that reads codes across their rows would be slower.

Shapes: T tokens, P = T·k sorted rows, E experts, G experts of a group, N outputs and K inputs of an expert, R ranks.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from burnish_kernels.eight_bit_linear.op import CODES, OUTPUTS
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.eight_bit_linear.tiles import EightBitTile, use_eight_bit_kernels
from burnish_kernels.grouped_codes import reference
from burnish_kernels.grouped_codes.stack import CodedExperts, empty_codes
from burnish_kernels.grouped_codes.tiles import choose_tile
from burnish_kernels.moe_sort.order import ExpertOrder
from burnish_kernels.moe_unpack.op import Nf4Experts, Packed, nf4_scales

__all__ = ["CodedExperts", "ExpertWeight", "empty_codes", "expert_scales", "grouped_codes", "unpack_codes"]

ExpertWeight: TypeAlias = "torch.Tensor | Packed | CodedExperts"
"""Weights of experts: `[E, N, K]` in a float type, each contiguous, packed in four bits, or codes."""


def expert_scales(weight: ExpertWeight, device: torch.device | str | None = None) -> torch.Tensor:
    """Return the scale of each expert's codes, `[E]` fp32: its largest weight becomes 448, MXFP4's at most 384.

    Args:
        weight: weights `[E, N, K]` in a float type, packed ones, or codes, which have theirs.
        device: device of the result; None: that of the weights.
    """
    if not isinstance(weight, torch.Tensor):
        weight.check()
    found = reference.expert_scales(weight)
    return found if device is None else found.to(device)


def unpack_codes(
    weight: ExpertWeight,
    scale_E: torch.Tensor,
    first: int,
    count: int,
    *,
    transposed: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the codes of a group of experts.

    Args:
        weight: weights `[E, N, K]` in a float type, each expert contiguous, packed ones, or codes.
        scale_E: scales from `expert_scales`.
        first: first expert.
        count: number of experts, G.
        transposed: whether the codes of each expert are transposed.
        out: contiguous tensor `[G, N, K]`, or `[G, K, N]` if transposed, of codes. Allocated if None.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    experts, rows, columns = _sizes(weight)
    if not 0 <= first < first + count <= experts:
        raise ValueError(f"experts {first} to {first + count} are not among the stack's {experts}")
    shape = (count, columns, rows) if transposed else (count, rows, columns)
    if out is None:
        out = torch.empty(shape, dtype=CODES, device=scale_E.device)
    if out.shape != shape or out.dtype != CODES or not out.is_contiguous():
        raise ValueError(f"out must be {shape} {CODES} and contiguous, not {tuple(out.shape)} {out.dtype}")
    _require_scales(scale_E, experts)
    if not use_eight_bit_kernels(out):
        codes = reference.unpack_codes(weight, scale_E, first, count)
        return out.copy_(codes.transpose(1, 2) if transposed else codes)
    if isinstance(weight, Nf4Experts):
        from burnish_kernels.grouped_codes.nf4.kernel import launch_nf4_codes

        launch_nf4_codes(weight, nf4_scales(weight, first, count), scale_E, first, out, transposed=transposed)
    else:
        from burnish_kernels.grouped_codes.kernel import launch_unpack_codes

        launch_unpack_codes(weight, scale_E, first, out, transposed=transposed)
    return out


def grouped_codes(
    x: EightBitRows,
    weight: ExpertWeight,
    scale_E: torch.Tensor,
    order: ExpertOrder,
    *,
    by_token: bool,
    transposed: bool = False,
    narrow_PR: torch.Tensor | None = None,
    adapter_ENR: torch.Tensor | None = None,
    bias_EN: torch.Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    out: torch.Tensor | None = None,
    scratch: torch.Tensor | None = None,
    tile: EightBitTile | None = None,
) -> torch.Tensor:
    """Multiply each sorted row with its expert's weight, and add its narrow row times the expert's adapter.

    Args:
        x: quantized rows `[T, K]` with `by_token`, else `[P, K]`; of N instead of K columns if `transposed`.
        weight: weights of all experts, `[E, N, K]` in a float type, each contiguous, packed, or codes.
        scale_E: scales from `expert_scales`.
        order: rows by expert.
        by_token: whether x has a row for each token rather than for each sorted row.
        transposed: whether to multiply with W instead of Wᵀ, as for the input's gradient.
        narrow_PR: input times the adapter's first matrix, `[P, R]` of the result's type; None: no adapter.
        adapter_ENR: second matrix of each expert's adapter, any strides: scaled B `[E, N, R]`, or Aᵀ `[E, K, R]` if
            `transposed`.
        bias_EN: bias of each expert `[E, N]` of the result's type, contiguous; None: none.
        dtype: type of the result, fp16 or bf16; that of `out` if given.
        out: tensor `[P, N]`, or `[P, K]` if `transposed`; rows may be strided. Allocated if None.
        scratch: one-dimensional memory for the codes of at least one expert. Allocated if None; unused without a GPU.
        tile: configuration; None: the one for the device.

    Returns:
        The products `[P, N]`, or `[P, K]` if `transposed`.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    x.check()
    experts, rows, columns = _sizes(weight)
    outputs, reduction = (columns, rows) if transposed else (rows, columns)
    height = order.positions // order.slots if by_token else order.positions
    if x.codes.shape != (height, reduction) or x.codes.dtype != CODES:
        raise ValueError(f"x must be {(height, reduction)} {CODES}, not {tuple(x.codes.shape)} {x.codes.dtype}")
    if experts != order.experts:
        raise ValueError(f"the weights are of {experts} experts, the order of {order.experts}")
    _require_scales(scale_E, experts)
    if out is None:
        out = torch.empty(order.positions, outputs, dtype=dtype, device=x.codes.device)
    _validate_product(out, order, outputs, narrow_PR, adapter_ENR, bias_EN)
    adapter: dict[str, Any] = {"narrow_PR": narrow_PR, "adapter_ENR": adapter_ENR, "bias_EN": bias_EN}
    if not use_eight_bit_kernels(out):
        way = {"by_token": by_token, "transposed": transposed}
        reference.grouped_codes(x.codes, x.scale, weight, scale_E, order, out, **way, **adapter)
        return out
    if not order.positions:
        return out
    from burnish_kernels.grouped_codes.kernel import launch_grouped_codes

    size = rows * columns
    if scratch is None:
        scratch = torch.empty(experts * size, dtype=CODES, device=out.device)
    if scratch.ndim != 1 or scratch.dtype != CODES or len(scratch) < size:
        raise ValueError(f"the scratch must be {CODES} of at least {size}, not {tuple(scratch.shape)} {scratch.dtype}")
    tile = tile or choose_tile(out.device)
    is_there = isinstance(weight, CodedExperts) and not transposed
    step = experts if is_there else min(len(scratch) // size, experts)
    for first in range(0, experts, step):
        count = min(step, experts - first)
        if isinstance(weight, CodedExperts) and not transposed:
            group = weight.codes
        else:
            group = scratch[: count * size].view(count, outputs, reduction)
            unpack_codes(weight, scale_E, first, count, transposed=transposed, out=group)
        launch_grouped_codes(
            x=x,
            codes_GNC=group,
            scale_E=scale_E,
            **adapter,
            out_PN=out,
            order=order,
            by_token=by_token,
            first_expert=first,
            tile=tile,
        )
    return out


def _sizes(weight: ExpertWeight) -> tuple[int, int, int]:
    """Return experts, rows and columns."""
    if not isinstance(weight, torch.Tensor):
        weight.check()
        return (weight.experts, *weight.shape)
    if weight.ndim != 3 or weight.shape[1] * weight.shape[2] >= 1 << 31 or not weight[0].is_contiguous():
        raise ValueError(f"weights must be [E, N, K] with under 2^31 values each, not {tuple(weight.shape)}")
    experts, rows, columns = weight.shape
    return experts, rows, columns


def _require_scales(scale_E: torch.Tensor, experts: int) -> None:
    if scale_E.shape != (experts,) or scale_E.dtype != torch.float32 or not scale_E.is_contiguous():
        raise ValueError(f"scales must be [{experts}] fp32, not {tuple(scale_E.shape)} {scale_E.dtype}")


def _validate_product(
    out: torch.Tensor,
    order: ExpertOrder,
    outputs: int,
    narrow_PR: torch.Tensor | None,
    adapter_ENR: torch.Tensor | None,
    bias_EN: torch.Tensor | None,
) -> None:
    shape = (order.positions, outputs)
    if out.shape != shape or out.dtype not in OUTPUTS or (outputs > 1 and out.stride(1) != 1):
        raise ValueError(f"out must be {shape}, one of {OUTPUTS}, not {tuple(out.shape)} {out.dtype}")
    if (narrow_PR is None) != (adapter_ENR is None):
        raise ValueError("an adapter needs both its narrow rows and its matrix")
    if narrow_PR is not None and adapter_ENR is not None:
        ranks = narrow_PR.shape[1]
        if narrow_PR.shape != (order.positions, ranks) or narrow_PR.dtype != out.dtype or narrow_PR.stride(1) != 1:
            raise ValueError(f"narrow must be [{order.positions}, R] {out.dtype}, not {tuple(narrow_PR.shape)}")
        if adapter_ENR.shape != (order.experts, outputs, ranks) or adapter_ENR.dtype != out.dtype:
            wanted = (order.experts, outputs, ranks)
            raise ValueError(f"the adapter must be {wanted} {out.dtype}, not {tuple(adapter_ENR.shape)}")
    if bias_EN is not None and (bias_EN.shape != (order.experts, outputs) or not bias_EN.is_contiguous()):
        raise ValueError(f"the bias must be {(order.experts, outputs)} and contiguous, not {tuple(bias_EN.shape)}")
