"""Validate the flat buffers, the compute buffer and the small tensors of an optimizer step."""

from __future__ import annotations

import torch

from burnish_kernels.adamw.layout import FlatLayout

COPY_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def validate_flat(layout: FlatLayout, *buffers: torch.Tensor) -> None:
    """Raise ValueError unless the buffers are `[layout.total]` fp32 on the layout's device."""
    for buffer in buffers:
        if buffer.shape != (layout.total,) or buffer.dtype != torch.float32 or not buffer.is_contiguous():
            raise ValueError(
                f"flat buffers must be [{layout.total}] fp32, contiguous, not {tuple(buffer.shape)} {buffer.dtype}"
            )
        if buffer.device != layout.tables.block_segments.device:
            raise ValueError(
                f"the layout is on {layout.tables.block_segments.device}, the flat buffer on {buffer.device}"
            )


def validate_compute_buffer(layout: FlatLayout, compute_buffer: torch.Tensor, param: torch.Tensor) -> None:
    """Raise ValueError unless every compute copy fits into the compute buffer."""
    if compute_buffer.ndim != 1 or compute_buffer.dtype not in COPY_DTYPES or not compute_buffer.is_contiguous():
        raise ValueError(
            f"the compute buffer must be one-dimensional fp32, fp16 or bf16, "
            f"not {compute_buffer.ndim}-d {compute_buffer.dtype}"
        )
    if compute_buffer.numel() < layout.copy_end:
        raise ValueError(
            f"the compute buffer has {compute_buffer.numel()} elements; the compute copies end at {layout.copy_end}"
        )
    if compute_buffer.device != param.device:
        raise ValueError(f"the compute buffer is on {compute_buffer.device}, the flat buffer on {param.device}")


def validate_small(like: torch.Tensor, *buffers: tuple[torch.Tensor, int, torch.dtype]) -> None:
    """Raise ValueError unless each buffer has its number of elements and dtype, on the device of `like`."""
    for buffer, elements, dtype in buffers:
        if buffer.shape != (elements,) or buffer.dtype != dtype or not buffer.is_contiguous():
            raise ValueError(f"expected [{elements}] {dtype}, contiguous, not {tuple(buffer.shape)} {buffer.dtype}")
        if buffer.device != like.device:
            raise ValueError(f"expected a tensor on {like.device}, not on {buffer.device}")
