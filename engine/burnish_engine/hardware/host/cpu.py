"""Counts the CPU cores that this process may compute on. Loads no torch."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Linux, cgroup v2: "QUOTA PERIOD" in microseconds of CPU time, or "max PERIOD" (kernel docs, cgroup-v2, cpu.max)."""


def usable_cores() -> int:
    """Count the physical cores, limited by affinity, a container's quota and OMP_NUM_THREADS.

    More threads than that only wait for each other: each parallel section is as slow as its last thread.
    """
    physical = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    limits = [physical, _affinity(), _quota(), _openmp()]
    return max(1, min(limit for limit in limits if limit is not None))


def _affinity() -> int | None:
    """Count the CPUs this process may be scheduled on; None where the system does not say (macOS, Windows)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else None


def _quota() -> int | None:
    """Count the whole CPUs that the cgroup's quota amounts to, at least 1; None without a quota."""
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        return None if quota == "max" else max(1, int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):  # not Linux, cgroup v1, or not what the kernel documents
        return None


def _openmp() -> int | None:
    """Read the thread count that the person or batch system set in OMP_NUM_THREADS; None where it is unset or invalid.

    OpenMP 5.2, section 21.1.2: positive numbers for nested levels, separated by commas; the first is the outermost's.
    """
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None
