"""Formats sizes for people: memory in GiB, as GPUs are sold; files and disks in GB, as file managers show them."""

from __future__ import annotations

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30


def memory_size(count: float) -> str:
    """Format a size of memory, such as "512 MiB" or "1.9 GiB".

    Args:
        count: bytes of main memory or of a GPU's memory.
    """
    if count >= 99.95 * _GIB:
        return f"{count / _GIB:,.0f} GiB"
    if count >= 1023.5 * _MIB:
        return f"{count / _GIB:.1f} GiB"
    if count >= 9.95 * _MIB:
        return f"{count / _MIB:.0f} MiB"
    if count >= 1023.5 * _KIB:
        return f"{count / _MIB:.1f} MiB"
    return f"{count / _KIB:.0f} KiB" if count >= _KIB else f"{count:.0f} bytes"


def file_size(count: float, *, beside: float = 0.0) -> str:
    """Format the size of a file, a download or disk space, such as "87.3 MB", "0.40 GB" or "12.50 GB".

    Args:
        count: bytes on a disk.
        beside: largest size of the list that this one stands in, so that all of it has one unit.
    """
    if max(count, beside) >= 99.95e6 and count >= 5e6:
        return f"{count / 1e9:,.2f} GB"
    if count >= 999_950:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e3:.1f} kB" if count >= 1000 else f"{count:.0f} bytes"
