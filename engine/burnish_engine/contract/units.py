"""Formats sizes and counts for people: memory in GiB, as GPUs are sold; files and disks in GB; energy in watt hours.

Everything from about 10 million bytes on has the same unit, so that the sizes of a list can be compared at a glance.
"""

from __future__ import annotations

import math
from typing import Final

KWH_J: Final = 3.6e6
"""Joules of a kilowatt hour."""
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


def memory_of(used: float, total: float) -> str:
    """Format used memory beside all of it, in one unit where both are large, such as "10.3 / 24.0 GiB".

    Args:
        used: bytes in use.
        total: bytes of the whole memory.
    """
    if total >= _GIB:
        return f"{used / _GIB:.1f} / {total / _GIB:.1f} GiB"
    return f"{memory_size(used)} / {memory_size(total)}"


def file_size(count: float) -> str:
    """Format the size of a file, a download or disk space, such as "0.092 GB", "0.40 GB", "12.50 GB" or "442 GB".

    Args:
        count: bytes on a disk.
    """
    if count >= 99.95e9:
        return f"{count / 1e9:,.0f} GB"
    if count >= 9.95e6:
        return f"{_number(count / 1e9, 2)} GB"
    if count >= 999_950:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e3:.1f} kB" if count >= 1000 else f"{count:.0f} bytes"


def energy_size(joules: float) -> str:
    """Format an energy, such as "0.15 Wh", "12.5 Wh" or "1.34 kWh".

    Args:
        joules: energy, J.
    """
    hours = joules / KWH_J * 1000
    if hours >= 999.5:
        return f"{hours / 1000:.2f} kWh"
    return f"{hours:.0f} Wh" if hours >= 99.95 else f"{hours:.1f} Wh" if hours >= 0.995 else f"{hours:.2f} Wh"


def short_time(seconds: float) -> str:
    """Format a time from fractions of a millisecond up, such as "0.35 ms", "3.7 ms", "120 ms" or "1.8 s".

    Args:
        seconds: time, s.
    """
    if seconds >= 0.9995:
        return f"{seconds:.1f} s"
    digits = 2 if seconds < 0.000995 else 1 if seconds < 0.00995 else 0
    return f"{seconds * 1e3:.{digits}f} ms"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun, such as "1 row" or "1,200 rows".

    Args:
        count: number of things.
        noun: singular noun, whose plural ends in s.
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(share: float, digits: int = 0) -> str:
    """Format a share as percent, such as "94 %". A share below 1 is never rounded up to 100 %.

    Args:
        share: share, 0 to 1.
        digits: number of decimals.
    """
    scaled = share * 100
    if share < 1.0:
        scaled = min(scaled, 100 - 10**-digits)
    return f"{scaled:.{digits}f} %"


def _number(value: float, decimals: int) -> str:
    """Format a number with at least two significant digits."""
    return f"{value:,.{max(decimals, 1 - math.floor(math.log10(value)))}f}"
