"""Which tiles, warps and pipeline depths the kernels of the gated delta rule are launched with."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from burnish_kernels.dispatch import interpreted
from burnish_kernels.tuning import choose

SEGMENT, WARMUP = 32, 16
"""Chunks of a segment of the scans; most chunks that a scan computes before its segment, a power of two."""
_FEW_CHUNKS = 2, 1
"""The same for Triton's interpreter, so that small tests have several segments."""


def segments() -> dict[str, int]:
    """Return how the scans are cut into segments, as constants of the kernels."""
    segment, warmup = _FEW_CHUNKS if interpreted() else (SEGMENT, WARMUP)
    return {"SEGMENT": segment, "WARMUP": warmup}


@dataclass(frozen=True)
class Config:
    """How a kernel is launched.

    Attributes:
        block: columns of values, or of a state, at a time; 0 where a kernel takes them whole.
        warps: warps of a program.
        stages: depth of the software pipeline.
    """

    block: int
    warps: int
    stages: int


KERNELS = ("solve", "project", "states", "output", "dstates", "gradients", "last_states", "step")
_NARROW = {
    "solve": Config(0, 4, 1),
    "project": Config(0, 4, 1),
    "states": Config(32, 4, 2),
    "output": Config(64, 4, 1),
    "dstates": Config(32, 4, 2),
    "gradients": Config(32, 8, 1),
    "last_states": Config(32, 4, 1),
    "step": Config(32, 4, 1),
}
_WIDE = {
    "solve": Config(0, 4, 1),
    "project": Config(0, 8, 1),
    "states": Config(16, 4, 1),
    "output": Config(32, 8, 1),
    "dstates": Config(16, 4, 1),
    "gradients": Config(16, 8, 1),
    "last_states": Config(16, 4, 1),
    "step": Config(32, 4, 1),
}


def candidates(kernel: str, dtype: torch.dtype) -> list[Config]:
    """Return the configurations of a kernel that are compiled ahead, the default first."""
    if dtype == torch.float32:
        return [_WIDE[kernel]]
    found = [_NARROW[kernel]]
    if kernel in {"states", "dstates"}:
        found += [Config(block, 4, stages) for block in (16, 32, 64) for stages in (2, 3)]
    return list(dict.fromkeys(found))


def config(kernel: str, dtype: torch.dtype, value_size: int, device: torch.device) -> Config:
    """Return a kernel's configuration for inputs of a type on a device."""
    default, *others = candidates(kernel, dtype)
    key = f"{kernel}-{str(dtype).removeprefix('torch.')}"
    found = choose("delta_rule", key, default, allowed=[default, *others], device=device)
    return Config(min(found.block, value_size), found.warps, found.stages)
