"""Settings that the kernels of the gated delta rule are launched with: tiles, warps, pipeline depths, segments."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from burnish_kernels.delta_rule.sizes import Sizes
from burnish_kernels.dispatch import interpreted

SEGMENT, WARMUP = 32, 16
"""Chunks of a segment of the scans; most chunks that a scan computes before its segment, a power of two."""
_FEW_CHUNKS = 2, 1
"""The same for Triton's interpreter, so that small tests have several segments."""


@dataclass(frozen=True)
class Config:
    """Settings of a launch.

    Attributes:
        block: columns of values, or of a state, at a time; 0: no constant of the kernel.
        slice: numbers of a key at a time; 0: no constant of the kernel.
        warps: warps of a program.
        stages: depth of the software pipeline.
    """

    block: int
    slice: int
    warps: int
    stages: int

    def constants(self, sizes: Sizes) -> dict[str, int]:
        """Return the tile as constants of the kernel, no larger than the heads."""
        found = {"BLOCK": min(self.block, sizes.value_size), "SLICE": min(self.slice, sizes.key_size)}
        return {name: value for name, value in found.items() if value}


_16_BITS = {
    "solve": Config(0, 0, 4, 1),
    "project": Config(128, 128, 4, 1),
    "states": Config(32, 0, 4, 2),
    "output": Config(64, 128, 4, 1),
    "dstates": Config(32, 0, 4, 2),
    "dvalues": Config(32, 64, 8, 1),
    "ddecays": Config(32, 64, 4, 1),
    "dkeys": Config(64, 0, 8, 1),
    "last_states": Config(32, 0, 4, 1),
    "step": Config(32, 0, 4, 1),
}
_HOPPER = _16_BITS | {
    "dvalues": Config(64, 64, 4, 1),
    "ddecays": Config(64, 128, 4, 1),
    "dkeys": Config(64, 0, 4, 1),
}
"""The same for compute capability 9.0; there Triton 3.6 multiplies transposed tiles of less than 64 columns wrongly."""
_32_BITS = {
    "solve": Config(0, 0, 4, 1),
    "project": Config(32, 32, 8, 1),
    "states": Config(16, 0, 8, 1),
    "output": Config(32, 32, 8, 1),
    "dstates": Config(16, 0, 8, 1),
    "dvalues": Config(16, 32, 8, 1),
    "ddecays": Config(16, 32, 8, 1),
    "dkeys": Config(16, 0, 8, 1),
    "last_states": Config(16, 0, 8, 1),
    "step": Config(32, 0, 4, 1),
}
KERNELS = tuple(_16_BITS)


def config(kernel: str, dtype: torch.dtype, capability: int) -> Config:
    """Return a kernel's configuration for inputs of a type on a compute capability, such as 90."""
    if dtype == torch.float32:
        return _32_BITS[kernel]
    return (_HOPPER if capability == 90 else _16_BITS)[kernel]


def capability_of(device: torch.device) -> int:
    """Return a GPU's compute capability; 80 for the interpreter."""
    if device.type != "cuda":
        return 80
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def segments() -> dict[str, int]:
    """Return how the scans are cut into segments, as constants of the kernels."""
    segment, warmup = _FEW_CHUNKS if interpreted() else (SEGMENT, WARMUP)
    return {"SEGMENT": segment, "WARMUP": warmup}


def precision() -> str:
    """Return how fp32 matrices are multiplied: as three products in TF32, which is as exact; see `attention.dot`."""
    return "interpreted" if interpreted() else "tf32x3"
