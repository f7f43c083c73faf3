"""Formats sizes for people: memory in GiB, as GPUs are sold; files and disks in GB, as file managers show them.

Everything from about 10 million bytes on has the same unit, so that the sizes of a list can be compared at a glance.
"""

from __future__ import annotations

import math

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30


def memory_size(count: float) -> str:
    """Format a size of memory, such as "0.50 GiB" or "22.7 GiB".

    Args:
        count: bytes of main memory or of a GPU's memory.
    """
    if count >= 99.95 * _GIB:
        return f"{count / _GIB:,.0f} GiB"
    if count >= 9.95 * _MIB:
        return f"{_number(count / _GIB, 1)} GiB"
    if count >= 1023.5 * _KIB:
        return f"{count / _MIB:.1f} MiB"
    return f"{count / _KIB:.0f} KiB" if count >= _KIB else f"{count:.0f} bytes"


def file_size(count: float) -> str:
    """Format the size of a file, a download or disk space, such as "0.092 GB", "0.40 GB" or "12.50 GB".

    Args:
        count: bytes on a disk.
    """
    if count >= 9.95e6:
        return f"{_number(count / 1e9, 2)} GB"
    if count >= 999_950:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e3:.1f} kB" if count >= 1000 else f"{count:.0f} bytes"


def _number(value: float, decimals: int) -> str:
    """Format a number with at least two significant digits."""
    return f"{value:,.{max(decimals, 1 - math.floor(math.log10(value)))}f}"
