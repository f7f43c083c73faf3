"""Published FP8 weights: E4M3 codes beside scales, for a matrix, for each row, or for each block of 128 x 128.

A checkpoint of transformers' fine-grained FP8 (DeepSeek-V3, Qwen3-FP8) holds for the weight `name` the codes `name` and
`name_scale_inv`, a scale for each block. One of compressed-tensors holds `name_scale`: one number, or one for each row.
Either way a value is its code times its scale.
"""

from __future__ import annotations

from collections.abc import Container

import torch

from burnish_engine.contract.errors import SetupError

BLOCK = 128
"""Rows and columns of a block that shares a scale."""
SUFFIXES = ("_scale_inv", "_scale")
"""Endings of the name of a weight's scales."""


def scale_name(name: str, names: Container[str]) -> str:
    """Return the name of a weight's scales; empty where there are none."""
    return next((name + suffix for suffix in SUFFIXES if name + suffix in names), "")


def row_scales(name: str, codes_NK: torch.Tensor, scales: torch.Tensor) -> torch.Tensor | None:
    """Return one scale for each row, `[N]` fp32, that gives the same values; None where blocks have their own.

    Args:
        name: name of the weight, for messages.
        codes_NK: codes of the weight.
        scales: its scales as stored.

    Raises:
        SetupError: The scales are not finite and above 0, or do not fit the weight.
    """
    rows, columns = codes_NK.shape
    blocks = -(-rows // BLOCK), -(-columns // BLOCK)
    wide = scales.float()
    if not bool((wide.isfinite() & (wide > 0)).all()):
        raise SetupError(f"Scales of the FP8 weight {name} are not finite numbers above 0.", "Download it again.")
    if wide.numel() == 1:
        return wide.reshape(1).repeat(rows)
    if wide.numel() == rows and wide.shape in {(rows,), (rows, 1)}:
        return wide.reshape(rows)
    if tuple(wide.shape) == blocks:
        return None
    raise SetupError(
        f"The FP8 weight {name} of shape {[rows, columns]} has scales of shape {list(scales.shape)}; known are one, "
        f"one for each row, and one for each block of {BLOCK} x {BLOCK}.",
        "Use the model's original, not quantized files.",
    )


def values(name: str, codes_NK: torch.Tensor, scales: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return the weight's values, `[N, K]` fp32: codes times scales, rounded once.

    Args:
        name: name of the weight, for messages.
        codes_NK: codes of the weight.
        scales: its scales as stored.
        device: device to compute on.

    Raises:
        SetupError: Same as in `row_scales`.
    """
    of_rows = row_scales(name, codes_NK, scales)
    found_NK = codes_NK.to(device).float()
    if of_rows is not None:
        return found_NK.mul_(of_rows.to(device)[:, None])
    rows, columns = codes_NK.shape
    expanded = scales.to(device, torch.float32).repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)
    return found_NK.mul_(expanded[:, :columns])
