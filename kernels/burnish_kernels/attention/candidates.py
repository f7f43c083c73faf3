"""Alternatives to the configurations in `config.py`, and the lookup of the fastest one on a device."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import torch

from burnish_kernels import tuning
from burnish_kernels.attention.config import AttentionConfig, KernelConfig, choose_config, padded

KERNELS = ("forward", "dq", "dkdv")

CANDIDATES: dict[tuple[int, str], tuple[tuple[int, ...], ...]] = {
    (64, "forward"): (
        (2, 64, 8, 2, 128, 1),
        (2, 64, 8, 2, 128, 0),
        (2, 64, 8, 3, 128, 1),
        (2, 32, 8, 3, 128, 0),
        (2, 128, 8, 2, 0, 1),
        (1, 64, 4, 2, 128, 1),
        (1, 64, 4, 2, 128, 0),
        (1, 64, 4, 3, 128, 1),
        (1, 32, 4, 3, 96, 0),
        (1, 128, 4, 2, 168, 1),
    ),
    (64, "dq"): (
        (2, 64, 8, 2, 128, 1),
        (2, 64, 8, 2, 128, 0),
        (2, 32, 8, 3, 128, 0),
        (4, 32, 8, 2, 168, 0),
        (1, 64, 4, 2, 128, 1),
        (1, 64, 4, 2, 128, 0),
        (1, 64, 4, 3, 168, 0),
        (1, 32, 4, 2, 168, 0),
        (1, 128, 4, 2, 0, 1),
    ),
    (64, "dkdv"): (
        (4, 64, 4, 2, 168, 0),
        (4, 64, 4, 2, 168, 1),
        (4, 64, 4, 2, 0, 0),
        (2, 64, 4, 2, 168, 0),
        (1, 64, 4, 2, 168, 0),
        (4, 64, 4, 3, 168, 0),
        (4, 32, 4, 2, 128, 0),
        (4, 32, 4, 3, 128, 0),
        (4, 128, 4, 2, 0, 0),
        (1, 64, 4, 3, 0, 0),
        (1, 32, 4, 2, 0, 0),
        (1, 32, 4, 3, 168, 0),
        (1, 64, 8, 2, 0, 0),
        (1, 64, 8, 3, 128, 0),
        (1, 128, 8, 2, 0, 0),
    ),
    (128, "forward"): (
        (2, 32, 8, 3, 128, 1),
        (2, 32, 8, 3, 128, 0),
        (2, 32, 8, 2, 128, 0),
        (2, 64, 8, 2, 0, 1),
        (2, 64, 8, 2, 128, 1),
        (1, 64, 4, 2, 168, 1),
        (1, 64, 4, 2, 168, 0),
        (1, 64, 4, 1, 168, 0),
        (1, 32, 4, 3, 128, 1),
        (1, 32, 4, 2, 128, 0),
        (1, 32, 4, 3, 0, 1),
    ),
    (128, "dq"): (
        (2, 32, 8, 2, 128, 1),
        (2, 32, 8, 2, 128, 0),
        (2, 64, 8, 1, 0, 0),
        (2, 64, 8, 1, 128, 0),
        (1, 64, 4, 2, 0, 1),
        (1, 64, 4, 2, 0, 0),
        (1, 64, 4, 1, 168, 0),
        (1, 32, 4, 2, 168, 1),
        (1, 32, 4, 2, 168, 0),
        (1, 32, 4, 3, 0, 0),
    ),
    (128, "dkdv"): (
        (4, 32, 4, 2, 0, 0),
        (4, 32, 4, 2, 0, 1),
        (2, 32, 4, 2, 0, 0),
        (1, 32, 4, 2, 0, 0),
        (4, 32, 4, 3, 0, 0),
        (4, 64, 4, 2, 0, 0),
        (4, 64, 4, 2, 0, 1),
        (2, 64, 4, 2, 0, 0),
        (4, 64, 4, 1, 0, 0),
        (4, 64, 8, 2, 0, 0),
        (4, 32, 4, 1, 0, 0),
    ),
    (256, "forward"): ((1, 32, 4, 2), (2, 64, 8, 2), (1, 64, 4, 2), (1, 32, 4, 3)),
    (256, "dq"): ((1, 16, 4, 2), (2, 32, 8, 2), (1, 16, 4, 3)),
    (256, "dkdv"): (
        (4, 64, 8, 2, 0, 0),
        (4, 32, 8, 2, 0, 0),
        (4, 32, 8, 3, 0, 0),
        (2, 32, 8, 2, 0, 0),
        (2, 32, 8, 3, 0, 0),
        (2, 32, 8, 1, 0, 0),
        (2, 64, 8, 1, 0, 0),
        (2, 64, 8, 2, 0, 0),
        (2, 16, 8, 3, 0, 0),
        (1, 32, 8, 2, 0, 0),
        (1, 16, 8, 2, 0, 0),
    ),
}
"""Fields of the `KernelConfig`s to try, by padded head size and kernel, for tiles of 64 rows and 16-bit types.

On compute capability 9.0 the assembler serializes asynchronous products where registers are short ("wgmma.mma_async
instructions are serialized"), which no spill shows: two waits a product in the machine code do.
"""


def tuning_key(kernel: str, head_dim: int, dtype: torch.dtype, group: int) -> str:
    """Return the name of a kernel's choice in the tables of `tuning`."""
    return f"{kernel}-{str(dtype).removeprefix('torch.')}-{padded(head_dim)}-group{math.gcd(group, 4)}"


def candidates(kernel: str, head_dim: int, dtype: torch.dtype, capability: int, group: int) -> list[KernelConfig]:
    """List the configurations that may replace the chosen one, that one first; all have tiles of its height."""
    config = choose_config(head_dim, dtype, capability, group)
    default = getattr(config, kernel)
    fields = CANDIDATES.get((padded(head_dim), kernel), ()) if config.tile_rows == 64 else ()
    listed = [KernelConfig(*one) for one in fields]
    if kernel == "dkdv":  # a block of queries is as high with fewer heads
        listed = [replace(one, heads=math.gcd(group, one.heads)) for one in listed]
    listed = [one for one in listed if group % one.heads == 0]
    return list(dict.fromkeys([default, *listed]))


@functools.cache
def tuned_config(
    head_dim: int, dtype: torch.dtype, capability: int | None, group: int, device: torch.device
) -> AttentionConfig:
    """Return the configuration that was found fastest on the device, where it was tuned."""
    config = choose_config(head_dim, dtype, capability, group)
    if capability is None:
        return config
    return replace(
        config,
        **{
            kernel: tuning.choose(
                "attention",
                tuning_key(kernel, head_dim, dtype, group),
                getattr(config, kernel),
                allowed=candidates(kernel, head_dim, dtype, capability, group),
                device=device,
            )
            for kernel in KERNELS
        },
    )
