"""Decoding of GGUF's blocks: validate, allocate, choose. Triton on CUDA (or in its interpreter), else the reference.

There is no gradient: a quantized weight is frozen.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.gguf_blocks import reference
from burnish_kernels.gguf_blocks.blocks import GgufBlocks, empty
from burnish_kernels.gguf_blocks.types import BLOCK_TYPES, BlockType, row_bytes

__all__ = ["BLOCK_TYPES", "BlockType", "GgufBlocks", "dequantize", "empty", "row_bytes"]

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def dequantize(weight: GgufBlocks, *, dtype: torch.dtype, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the weight's values `[N, K]`: scale times code, plus an offset, in fp32; rounded once.

    Args:
        weight: weight in blocks.
        dtype: dtype of the result.
        out: tensor to write to; rows may be strided, columns not. Allocated if None.

    Raises:
        ValueError: Sizes or types do not fit.
    """
    weight.check()
    if dtype not in FLOATS:
        raise ValueError(f"dtype must be one of {FLOATS}, not {dtype}")
    if out is None:
        out = torch.empty(weight.shape, dtype=dtype, device=weight.data.device)
    if out.shape != weight.shape or out.dtype != dtype or out.device != weight.data.device or out.stride(1) != 1:
        raise ValueError(
            f"out must be {weight.shape} {dtype} on {weight.data.device} with its columns side by side, "
            f"not {tuple(out.shape)} {out.dtype} on {out.device} with strides {out.stride()}"
        )
    if not use_kernels(weight.data):
        return reference.dequantize(weight, out)
    from burnish_kernels.gguf_blocks.kernel import launch_dequantize

    launch_dequantize(weight, out)
    return out
