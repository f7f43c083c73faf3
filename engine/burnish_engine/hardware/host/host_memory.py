"""Reads the host memory within a container's limits, and how much of it may be page-locked. Loads no torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

GIB = 2**30

_LOCKED_SHARE = 0.75
"""Largest share of all memory to lock on Linux. Locked pages cannot be swapped out, and the rest has to suffice for
loading and for everything else that runs."""
_LOCKED_SHARE_WINDOWS = 0.5
"""Largest share to lock where Windows' driver decides: WDDM lends graphics at most half of the system's memory (Windows
driver docs, "Calculating graphics memory":
TotalSystemMemoryAvailableForGraphics), and page-locked memory counts as lent. Under WSL2 the same driver decides, and
what it counts is the memory of the virtual machine."""
_LEFT_FREE_BYTES = 2 * GIB  # stays free for the step's own buffers, checkpoints being written, other programs
_LEAST_BYTES = 64 * 2**20  # less is not worth a ring of buffers


@dataclass(frozen=True)
class HostSystem:
    """The folders that facts are read from. Tests pass folders of their own.

    Attributes:
        proc: folder of Linux' process files.
        cgroup: folder where control groups are mounted, of version 1 or 2.
        platform: name of the platform, as `sys.platform`.
    """

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    platform: str = sys.platform


def host_memory(system: HostSystem | None = None) -> tuple[int, int]:
    """Read (total, free) bytes of memory that this process may use: the machine's, or a container's limit.

    Free memory is what can be taken without swapping, so the page cache counts as free.
    """
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    for limit, used in _limits(system or HostSystem()):
        total, free = min(total, limit), min(free, max(0, limit - used))
    return total, free


def lockable_bytes(*, integrated: bool, system: HostSystem | None = None) -> int:
    """Compute how much host memory may be page-locked now for offloading, bytes; 0: do not offload.

    Args:
        integrated: whether the GPU shares the system's memory (`GpuFacts.unified_memory`, torch's `is_integrated`), so
            that offloading would free nothing.
        system: folders to read from.
    """
    if integrated:
        return 0
    system = system or HostSystem()
    total, free = host_memory(system)
    return lockable_of(total, free, halved=system.platform == "win32" or is_wsl(system))


def lockable_of(total: int, free: int, *, halved: bool) -> int:
    """Compute the lockable memory of a system from its total and free memory, bytes.

    Args:
        total: bytes of all memory.
        free: bytes of free memory.
        halved: whether Windows manages the GPU's memory.
    """
    most = int((_LOCKED_SHARE_WINDOWS if halved else _LOCKED_SHARE) * total)
    found = max(0, min(most, free - _LEFT_FREE_BYTES))
    return found if found >= _LEAST_BYTES else 0


def is_wsl(system: HostSystem | None = None) -> bool:
    """Whether this is the Windows subsystem for Linux, where the driver of Windows manages the GPU's memory."""
    return "microsoft" in _read((system or HostSystem()).proc / "version").lower()


def _limits(system: HostSystem) -> Iterator[tuple[int, int]]:
    """Yield (limit, used) bytes of each control group with a limit that this process belongs to, directly or not.

    Within a container its own group is usually mounted as the root, so missing paths are skipped.
    """
    seen: set[Path] = set()
    for version, path in _groups(system):
        root = system.cgroup if version == 2 else system.cgroup / "memory"
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            if not folder.is_relative_to(root) or folder in seen:
                continue
            seen.add(folder)
            with suppress(OSError, ValueError):
                yield _limit_v2(folder) if version == 2 else _limit_v1(folder)


def _groups(system: HostSystem) -> list[tuple[int, str]]:
    """List (version, path) of the control groups that may limit this process's memory (man 7 cgroups)."""
    found = [(2, "/"), (1, "/")]
    for line in _read(system.proc / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if ".." in path:  # outside of what is mounted here
            continue
        if number == "0" and not controllers:
            found.append((2, path))
        elif "memory" in controllers.split(","):
            found.append((1, path))
    return found


def _limit_v2(folder: Path) -> tuple[int, int]:
    """Read (limit, used) bytes of a cgroup of version 2.

    Kernel docs, cgroup-v2: memory.max ("max" where there is none), memory.current, memory.stat.
    """
    limit = int((folder / "memory.max").read_text(encoding="ascii"))
    return limit, int((folder / "memory.current").read_text(encoding="ascii")) - _cache(folder, "inactive_file")


def _limit_v1(folder: Path) -> tuple[int, int]:
    """Read (limit, used) bytes of a cgroup of version 1.

    Kernel docs, cgroup-v1/memory: a limit beyond any machine where there is none, and usage with all children.
    """
    limit = int((folder / "memory.limit_in_bytes").read_text(encoding="ascii"))
    used = int((folder / "memory.usage_in_bytes").read_text(encoding="ascii"))
    return limit, used - _cache(folder, "total_inactive_file")


def _cache(folder: Path, key: str) -> int:
    """The bytes of cached files that the kernel drops when memory is asked for."""
    found = re.search(rf"^{key} (\d+)$", _read(folder / "memory.stat"), flags=re.MULTILINE)
    return int(found[1]) if found else 0


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
