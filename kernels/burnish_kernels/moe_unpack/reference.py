"""Unpacking of experts in plain PyTorch: the definition of the kernels' result, and the path without a GPU.

NF4 as in `nf4.reference`. MXFP4 (OCP Microscaling Formats specification 1.0): the eight magnitudes of E2M1 times a
power of two, which is exact in fp32 and bf16.
"""

from __future__ import annotations

import torch

from burnish_kernels.moe_unpack.stacks import MXFP4_BLOCK, Mxfp4Experts, Nf4Experts, Packed
from burnish_kernels.nf4 import reference as nf4

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def nf4_scales(stack: Nf4Experts, first: int, count: int) -> torch.Tensor:
    """Return the scales `[count, b]` fp32 of some experts."""
    if stack.nested_absmax is None or stack.code256 is None or stack.offset is None:
        return stack.absmax[first : first + count]
    return torch.stack(
        [
            nf4.dequantize_scales(
                stack.absmax[index], stack.nested_absmax[index], stack.code256, stack.offset[index : index + 1]
            )
            for index in range(first, first + count)
        ]
    )


def unpack(stack: Packed, first: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the weights `[count, N, K]` of some experts."""
    own = slice(first, first + count)
    if isinstance(stack, Mxfp4Experts):
        return mxfp4_values(stack.blocks[own], stack.scales[own]).to(dtype)
    rows, columns = stack.shape
    scales = nf4_scales(stack, first, count)
    values = [
        nf4.dequantize(packed, scale, rows * columns, dtype).view(rows, columns)
        for packed, scale in zip(stack.packed[own], scales, strict=True)
    ]
    return torch.stack(values)


def mxfp4_values(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return the values `[..., K]` fp32 of blocks `[..., K / 32, 16]` and exponents `[..., K / 32]`."""
    level = torch.tensor(MAGNITUDES + tuple(-one for one in MAGNITUDES), device=blocks.device)
    pairs = torch.stack((blocks & 15, blocks >> 4), dim=-1)
    values = level[pairs.int().flatten(-2)]
    return torch.ldexp(values, scales.int()[..., None] - 127).view(*scales.shape[:-1], scales.shape[-1] * MXFP4_BLOCK)
