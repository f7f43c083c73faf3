"""Unpacking of experts: validate, allocate, choose. Triton on CUDA (or in its interpreter), the reference elsewhere.

There is no gradient: a quantized weight is frozen.

Shapes: E experts, G experts of a group, N rows and K columns of one expert's weight, b = N·K / 64 blocks of NF4.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.moe_unpack import reference
from burnish_kernels.moe_unpack.stacks import Mxfp4Experts, Nf4Experts, Packed, empty_nf4, stack_nf4
from burnish_kernels.nf4 import op as nf4
from burnish_kernels.nf4.state import Nf4

__all__ = ["Mxfp4Experts", "Nf4Experts", "Packed", "empty_nf4", "nf4_scales", "stack_nf4", "unpack_group"]

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def nf4_scales(
    stack: Nf4Experts, first: int = 0, count: int | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the scales `[G, b]` fp32 of some experts, dequantized if they are quantized.

    Args:
        stack: quantized experts.
        first: first expert.
        count: number of experts, G; None: all from the first.
        out: contiguous tensor `[G, b]` fp32 to write to. Allocated if None; unused where scales are not quantized.

    Raises:
        ValueError: Sizes do not fit.
    """
    stack.check()
    count = _count(stack, first, count)
    shape = (count, stack.absmax.shape[1])
    if not stack.double:
        return stack.absmax[first : first + count]
    if out is None:
        out = torch.empty(shape, dtype=torch.float32, device=stack.packed.device)
    if out.shape != shape or out.dtype != torch.float32 or not out.is_contiguous():
        raise ValueError(f"out must be {shape} fp32 and contiguous, not {tuple(out.shape)} {out.dtype}")
    if not use_kernels(stack.packed):
        return out.copy_(reference.nf4_scales(stack, first, count))
    from burnish_kernels.moe_unpack.kernel import launch_nf4_scales

    launch_nf4_scales(stack, first, out)
    return out


def unpack_group(
    stack: Packed, first: int, count: int, *, dtype: torch.dtype, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the weights of a group of experts, with the bits that a product decodes on the fly.

    Args:
        stack: quantized experts.
        first: first expert.
        count: number of experts, G.
        dtype: type of the result.
        out: tensor `[G, N, K]` to write to, each expert contiguous. Allocated if None.

    Raises:
        ValueError: Sizes or types do not fit.
    """
    stack.check()
    count = _count(stack, first, count)
    shape = (count, *stack.shape)
    if dtype not in FLOATS:
        raise ValueError(f"dtype must be one of {FLOATS}, not {dtype}")
    packed = stack.blocks if isinstance(stack, Mxfp4Experts) else stack.packed
    if out is None:
        out = torch.empty(shape, dtype=dtype, device=packed.device)
    if out.shape != shape or out.dtype != dtype or out.stride()[1:] != (shape[2], 1):
        raise ValueError(f"out must be {shape} {dtype}, each expert contiguous, not {tuple(out.shape)} {out.dtype}")
    if not use_kernels(packed):
        return out.copy_(reference.unpack(stack, first, count, dtype))
    if isinstance(stack, Mxfp4Experts):
        from burnish_kernels.moe_unpack.kernel import launch_unpack_mxfp4

        launch_unpack_mxfp4(stack, first, out)
    else:  # each expert as a row of one weight
        group = packed[first : first + count].view(-1)
        scales = nf4_scales(stack, first, count).view(-1)
        nf4.dequantize(Nf4(group, (count, shape[1] * shape[2]), absmax=scales), dtype=dtype, out=out.view(count, -1))
    return out


def _count(stack: Packed, first: int, count: int | None) -> int:
    count = stack.experts - first if count is None else count
    if not 0 <= first < first + count <= stack.experts:
        raise ValueError(f"experts {first} to {first + count} are not among the stack's {stack.experts}")
    return count
