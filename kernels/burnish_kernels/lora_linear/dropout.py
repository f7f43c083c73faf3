"""Dropout on the adapters' input, recomputed from its seed wherever it is needed: no mask is ever stored."""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.lora_linear import reference


def dropout(
    x_TK: torch.Tensor, seed: torch.Tensor, stream: int, probability: float, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the input over 1 - p where it is kept, 0 elsewhere.

    Args:
        x_TK: input `[T, K]`, rows may be strided.
        seed: one int64 on the same device.
        stream: number that makes masks of the same seed independent.
        probability: probability that an element is dropped.
        out: tensor `[T, K]` to write to, rows may be strided. Allocated if None.
    """
    _validate(x_TK, seed, stream, probability)
    if out is None:
        out = x_TK.new_empty(x_TK.shape)
    if out.shape != x_TK.shape or out.dtype != x_TK.dtype or out.stride(1) != 1:
        raise ValueError(f"out must be {tuple(x_TK.shape)} {x_TK.dtype}, not {tuple(out.shape)} {out.dtype}")
    if use_kernels(x_TK):
        _launch(x_TK, seed, stream, probability, out, add=False)
    else:
        out.copy_(reference.dropout(x_TK, seed, stream, probability))
    return out


def add_dropped_(
    dx_TK: torch.Tensor, g_TK: torch.Tensor, seed: torch.Tensor, stream: int, probability: float
) -> torch.Tensor:
    """Add g over 1 - p to dx where `dropout` of the same seed and stream kept the element.

    Args:
        dx_TK: gradient `[T, K]`, rows may be strided; changed in place.
        g_TK: addend `[T, K]`, rows may be strided.
        seed: same as in `dropout`.
        stream: same as in `dropout`.
        probability: same as in `dropout`.
    """
    _validate(g_TK, seed, stream, probability)
    if dx_TK.shape != g_TK.shape or dx_TK.dtype != g_TK.dtype or dx_TK.stride(1) != 1:
        raise ValueError(f"dx must be {tuple(g_TK.shape)} {g_TK.dtype}, not {tuple(dx_TK.shape)} {dx_TK.dtype}")
    if use_kernels(dx_TK):
        _launch(g_TK, seed, stream, probability, dx_TK, add=True)
        return dx_TK
    return dx_TK.add_(reference.dropout(g_TK, seed, stream, probability))


def _launch(
    x_TK: torch.Tensor, seed: torch.Tensor, stream: int, probability: float, out: torch.Tensor, *, add: bool
) -> None:
    from burnish_kernels.lora_linear.launch_kernels import launch_dropout

    scale = 1.0 / (1.0 - probability)
    launch_dropout(x_TK, seed, stream, reference.threshold(probability), scale, out, add)


def _validate(x_TK: torch.Tensor, seed: torch.Tensor, stream: int, probability: float) -> None:
    if x_TK.ndim != 2 or x_TK.stride(1) != 1:
        raise ValueError(f"x must be [T, K] with its columns side by side, not {tuple(x_TK.shape)}")
    if seed.dtype != torch.int64 or seed.numel() != 1 or seed.device != x_TK.device:
        raise ValueError(f"seed must be one int64 on {x_TK.device}, not {tuple(seed.shape)} {seed.dtype}")
    if not 0.0 <= probability < 1.0:
        raise ValueError(f"dropout must be at least 0 and under 1, not {probability}")
    if not 0 <= stream < 2**31:
        raise ValueError(f"stream must be under 2^31, not {stream}")
