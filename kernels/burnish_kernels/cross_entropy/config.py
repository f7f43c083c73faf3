"""Configurations that spread a row of logits over threads.

Each thread holds a few 16-byte accesses of a block, and as many of the next one: with the warps of one SM enough to
hide the memory's latency. A large vocabulary gets one program of 32 warps an SM: all rows in flight (132 of 304 KB on
an H100) should stay in L2 until the second pass. Small ones fit with more programs an SM.
"""

from __future__ import annotations

from dataclasses import dataclass

LARGE_VOCABULARY = 65536


@dataclass(frozen=True)
class CrossEntropyConfig:
    """One way to spread a row.

    Attributes:
        warps: warps of a program.
        accesses: number of 16-byte accesses of a thread in a block.
    """

    warps: int
    accesses: int

    def groups(self) -> int:
        """Number of accesses of all threads in a block."""
        return 32 * self.warps * self.accesses


CONFIGS = tuple(
    CrossEntropyConfig(warps, accesses)
    for warps, accesses in ((4, 2), (8, 1), (8, 2), (16, 1), (16, 2), (32, 1), (32, 2))
)
"""Configurations that may be launched."""


def default_config(vocabulary: int, element_bytes: int) -> CrossEntropyConfig:
    """Return a configuration for rows of this size, for devices where nothing was measured."""
    width = 16 // element_bytes
    warps = 32 if vocabulary > LARGE_VOCABULARY else 16
    while warps > 4 and 32 * warps * width >= vocabulary:
        warps //= 2
    return CrossEntropyConfig(warps, 2)


def tuning_key(vocabulary: int, element_bytes: int) -> str:
    """Return the name of the choice: vocabularies up to the same power of two share one."""
    return f"{1 << (vocabulary - 1).bit_length()}-{element_bytes}"
