"""The experts' linear maps: validate, allocate, choose. Triton on CUDA (or in its interpreter), else the reference.

For each sorted row i of expert e, with x's row i or that of its token:

    y[i] = x W_eᵀ + (x A_eᵀ)[i] (s B_e)ᵀ + bias_e        dx[i] = dy W_e + (dy s B_e)[i] A_e

Both are one product of a wide and a narrow part; `grouped_skinny` computes the narrow operands.

Shapes: T tokens, P = T·k sorted rows, E experts, N outputs and K inputs of an expert, R ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.grouped_linear import reference
from burnish_kernels.grouped_linear.tiles import DTYPES, LinearTile, Storage, choose_tile
from burnish_kernels.moe_sort.order import ExpertOrder
from burnish_kernels.moe_unpack.op import Mxfp4Experts, Packed, nf4_scales, unpack_group

__all__ = ["LinearTile", "grouped_linear"]


def grouped_linear(
    x: torch.Tensor,
    weight: torch.Tensor | Packed,
    order: ExpertOrder,
    *,
    by_token: bool,
    transposed: bool = False,
    narrow_PR: torch.Tensor | None = None,
    adapter_ENR: torch.Tensor | None = None,
    bias_EN: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    first: int = 0,
    scales: torch.Tensor | None = None,
    scratch_GNK: torch.Tensor | None = None,
    tile: LinearTile | None = None,
) -> torch.Tensor:
    """Multiply each sorted row with its expert's weight, and add its narrow row times the expert's adapter.

    With a scratch, packed weights are unpacked into it before, in groups of experts; it may be so small that the
    second-level cache holds a group. With one tile the bits are those of decoding in the product. It pays where an
    expert has so many rows that decoding its weights again for every tile of them takes longer than a detour through
    memory: `tiles.unpacking_pays`.

    Args:
        x: input `[T, K]` with `by_token`, else `[P, K]`; of the outputs' width N instead of K if `transposed`. Rows may
            be strided.
        weight: weights `[E, N, K]` of x's type, any strides, or packed ones; of fewer experts, those from `first` on.
        order: rows by expert.
        by_token: whether x has a row for each token rather than for each sorted row.
        transposed: whether to multiply with W instead of Wᵀ, as for the input's gradient.
        narrow_PR: x times the adapter's first matrix, `[P, R]` of x's type in sorted order; None: no adapter.
        adapter_ENR: second matrix of each expert's adapter, any strides: scaled B `[E, N, R]`, or Aᵀ `[E, K, R]` if
            `transposed`.
        bias_EN: bias of each expert `[E, N]`, contiguous; None: none.
        out: tensor `[P, N]`, or `[P, K]` if `transposed`, of x's type or fp32; rows may be strided. Allocated if None.
            Only rows of the given experts are written.
        first: expert that `weight` begins with.
        scales: scales that `moe_unpack.nf4_scales` made for all of an NF4 stack; made here if None, or with a scratch.
        scratch_GNK: memory for G experts, `[G, N, K]` of x's type; unused by weights that are not packed. None: packed
            weights are decoded in the product.
        tile: configuration; None: the one tuned for the device.

    Returns:
        The products `[P, N]`, or `[P, K]` if `transposed`.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    experts, outputs, columns = _sizes(weight, transposed=transposed)
    rows = order.positions // order.slots if by_token else order.positions
    if out is None:
        out = x.new_empty(order.positions, outputs)
    _validate(x, (rows, columns), out, (order.positions, outputs))
    if not 0 <= first < first + experts <= order.experts:
        raise ValueError(f"weights of experts {first} to {first + experts} do not fit an order of {order.experts}")
    if isinstance(weight, torch.Tensor) and weight.dtype != x.dtype:
        raise ValueError(f"the weights are {weight.dtype}, x is {x.dtype}")
    _validate_adapter(narrow_PR, adapter_ENR, bias_EN, x, order, outputs)
    if scratch_GNK is not None and not isinstance(weight, torch.Tensor):
        for begin, group_GNK in _unpacked_groups(weight, scratch_GNK, x.dtype):
            grouped_linear(
                x,
                group_GNK,
                order,
                by_token=by_token,
                transposed=transposed,
                narrow_PR=narrow_PR,
                adapter_ENR=adapter_ENR,
                bias_EN=bias_EN,
                out=out,
                first=first + begin,
                tile=tile,
            )
        return out
    if not use_kernels(x):
        dense = weight if isinstance(weight, torch.Tensor) else unpack_group(weight, 0, experts, dtype=x.dtype)
        reference.grouped_linear(
            x,
            dense.transpose(1, 2) if transposed else dense,
            order,
            out,
            by_token=by_token,
            narrow_PR=narrow_PR,
            adapter_ENR=adapter_ENR,
            bias_EN=bias_EN,
            first=first,
        )
        return out
    from burnish_kernels.grouped_linear.kernel import launch_grouped_linear

    storage: Storage = "dense"
    if isinstance(weight, torch.Tensor):
        packed, scales = (weight.transpose(1, 2) if transposed else weight), None
    elif isinstance(weight, Mxfp4Experts):
        storage, packed, scales = "mxfp4", weight.blocks, weight.scales
    else:
        storage, packed = "nf4", weight.packed
        scales = nf4_scales(weight) if scales is None else _checked(scales, (experts, weight.absmax.shape[1]))
    if order.positions:
        launch_grouped_linear(
            x=x,
            weight=packed,
            scales=scales,
            narrow_PR=narrow_PR,
            adapter_ENR=adapter_ENR,
            bias_EN=bias_EN,
            out_PN=out,
            order=order,
            storage=storage,
            transposed=transposed,
            by_token=by_token,
            first_expert=first,
            experts=experts,
            tile=tile or choose_tile(storage, x.dtype, transposed=transposed, device=x.device),
        )
    return out


def _unpacked_groups(
    weight: Packed, scratch_GNK: torch.Tensor, dtype: torch.dtype
) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield groups of experts with the first one's number, each unpacked into the scratch when it is asked for."""
    if scratch_GNK.ndim != 3 or scratch_GNK.shape[1:] != weight.shape or not len(scratch_GNK):
        raise ValueError(f"the scratch must be [G, {weight.shape}], not {tuple(scratch_GNK.shape)}")
    for first in range(0, weight.experts, len(scratch_GNK)):
        count = min(len(scratch_GNK), weight.experts - first)
        yield first, unpack_group(weight, first, count, dtype=dtype, out=scratch_GNK[:count])


def _sizes(weight: torch.Tensor | Packed, *, transposed: bool) -> tuple[int, int, int]:
    """Return experts, outputs and columns of the product."""
    if isinstance(weight, torch.Tensor):
        if weight.ndim != 3 or weight.shape[1] * weight.shape[2] >= 1 << 31:
            raise ValueError(f"weights must be [E, N, K] with under 2^31 values each, not {tuple(weight.shape)}")
        experts, rows, columns = weight.shape
    else:
        weight.check()
        experts, (rows, columns) = weight.experts, weight.shape
    return (experts, columns, rows) if transposed else (experts, rows, columns)


def _validate(x: torch.Tensor, shape: tuple[int, int], out: torch.Tensor, out_shape: tuple[int, int]) -> None:
    if x.dtype not in DTYPES and use_kernels(x):
        raise ValueError(f"x must be fp32, fp16 or bf16, not {x.dtype}")
    if x.shape != shape or x.stride(1) != 1:
        raise ValueError(f"x must be {shape} with columns side by side, not {tuple(x.shape)} strided {x.stride()}")
    if out.shape != out_shape or out.dtype not in (x.dtype, torch.float32) or out.stride(1) != 1:
        raise ValueError(f"out must be {out_shape} {x.dtype} or fp32, not {tuple(out.shape)} {out.dtype}")


def _checked(scales: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    if scales.shape != shape or scales.dtype != torch.float32 or not scales.is_contiguous():
        raise ValueError(f"scales must be {shape} fp32 and contiguous, not {tuple(scales.shape)} {scales.dtype}")
    return scales


def _validate_adapter(
    narrow_PR: torch.Tensor | None,
    adapter_ENR: torch.Tensor | None,
    bias_EN: torch.Tensor | None,
    x: torch.Tensor,
    order: ExpertOrder,
    outputs: int,
) -> None:
    if (narrow_PR is None) != (adapter_ENR is None):
        raise ValueError("an adapter needs both its narrow rows and its matrix")
    if narrow_PR is not None and adapter_ENR is not None:
        ranks = narrow_PR.shape[1]
        if narrow_PR.shape != (order.positions, ranks) or narrow_PR.dtype != x.dtype or narrow_PR.stride(1) != 1:
            raise ValueError(f"narrow must be [{order.positions}, R] {x.dtype}, not {tuple(narrow_PR.shape)}")
        if adapter_ENR.shape != (order.experts, outputs, ranks) or adapter_ENR.dtype != x.dtype:
            wanted = (order.experts, outputs, ranks)
            raise ValueError(f"the adapter must be {wanted} {x.dtype}, not {tuple(adapter_ENR.shape)}")
    if bias_EN is not None and (bias_EN.shape != (order.experts, outputs) or not bias_EN.is_contiguous()):
        raise ValueError(f"the bias must be {(order.experts, outputs)} and contiguous, not {tuple(bias_EN.shape)}")
