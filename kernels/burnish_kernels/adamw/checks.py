"""What flat buffers, arena and small tensors of an optimizer step must be like."""

from __future__ import annotations

import torch

from burnish_kernels.adamw.layout import FlatLayout

ARENA_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def validate_flat(layout: FlatLayout, *buffers: torch.Tensor) -> None:
    """Raise ValueError unless they are `[layout.total]` fp32 where the layout is."""
    for buffer in buffers:
        if buffer.shape != (layout.total,) or buffer.dtype != torch.float32 or not buffer.is_contiguous():
            raise ValueError(
                f"flat buffers must be [{layout.total}] fp32, contiguous, not {tuple(buffer.shape)} {buffer.dtype}"
            )
        if buffer.device != layout.tables.block_segments.device:
            raise ValueError(
                f"the layout is on {layout.tables.block_segments.device}, the flat buffer on {buffer.device}"
            )


def validate_arena(layout: FlatLayout, arena: torch.Tensor, param: torch.Tensor) -> None:
    """Raise ValueError unless every shadow has its place in it."""
    if arena.ndim != 1 or arena.dtype not in ARENA_DTYPES or not arena.is_contiguous():
        raise ValueError(f"the arena must be one-dimensional fp32, fp16 or bf16, not {arena.ndim}-d {arena.dtype}")
    if arena.numel() < layout.shadow_end:
        raise ValueError(f"the arena has {arena.numel()} elements; the shadows end at {layout.shadow_end}")
    if arena.device != param.device:
        raise ValueError(f"the arena is on {arena.device}, the flat buffer on {param.device}")


def validate_small(like: torch.Tensor, *buffers: tuple[torch.Tensor, int, torch.dtype]) -> None:
    """Raise ValueError unless each has its number of elements and dtype, on the device of `like`."""
    for buffer, elements, dtype in buffers:
        if buffer.shape != (elements,) or buffer.dtype != dtype or not buffer.is_contiguous():
            raise ValueError(f"expected [{elements}] {dtype}, contiguous, not {tuple(buffer.shape)} {buffer.dtype}")
        if buffer.device != like.device:
            raise ValueError(f"expected a tensor on {like.device}, not on {buffer.device}")
