"""Reads how much of a GPU's memory one process holds, as the driver or Windows counts it. Loads no torch.

torch's allocator knows its own tensors only; the context, kernels, graphs and libraries come on top. Under Windows NVML
gives no figure for a process, but performance counters do; they also count what the driver moved into system memory
because the card was full.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

DEDICATED, SHARED = "Dedicated Usage", "Shared Usage"
_PATH = r"\GPU Process Memory(*)\{}"

# pdh.h and winperf.h
_PDH_FMT_LARGE = 0x00000400
_PDH_MORE_DATA = 0x800007D2
_PDH_VALID = (0x00000000, 0x00000001)  # PDH_CSTATUS_VALID_DATA, PDH_CSTATUS_NEW_DATA


class _CounterValue(ctypes.Structure):
    """The C structure PDH_FMT_COUNTERVALUE; only the 64-bit member of its union is declared."""

    _fields_ = (("status", ctypes.c_uint32), ("large", ctypes.c_int64))


class _CounterItem(ctypes.Structure):
    """The C structure PDH_FMT_COUNTERVALUE_ITEM_W."""

    _fields_ = (("name", ctypes.c_wchar_p), ("value", _CounterValue))


@dataclass(frozen=True)
class WindowsUsage:
    """The bytes that Windows counts for a process over all GPUs.

    Attributes:
        dedicated: bytes on the cards; None where the counter does not answer.
        shared: bytes in system memory: page-locked buffers, and what did not fit on the card.
    """

    dedicated: int | None
    shared: int | None


class ProcessMemory:
    """Reads how much of a GPU's memory this process holds.

    Create it before the process uses the GPU: where the driver does not tell one process from another (in containers),
    the memory used since then counts, which is right as long as no other process starts or ends.

    Args:
        uuid: UUID of the GPU, such as "GPU-1b4e28ba-2fa1-11d2-883f-0016d3cca427".
        nvml: pynvml module, or an object with its functions.
    """

    def __init__(self, uuid: str, nvml: Any = None) -> None:
        self._nvml: Any = None
        self._before: int | None = None
        try:
            self._nvml = nvml or import_module("pynvml")
            self._nvml.nvmlInit()
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        except Exception:  # noqa: BLE001  no library, no driver, an unknown name: then there is no figure
            self._nvml = None
        else:
            self._before = self._used()

    def read(self) -> int | None:
        """Read the bytes held now; None where no source tells them."""
        if sys.platform == "win32" and (usage := read_windows()) is not None and usage.dedicated is not None:
            return usage.dedicated
        own = self._own()
        if own is not None:
            return own
        used = self._used()
        return None if used is None or self._before is None else max(0, used - self._before)

    def _own(self) -> int | None:
        if self._nvml is None:
            return None
        with suppress(Exception):
            for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle):
                if process.pid == os.getpid() and process.usedGpuMemory is not None:
                    return int(process.usedGpuMemory)
        return None

    def _used(self) -> int | None:
        if self._nvml is None:
            return None
        with suppress(Exception):
            return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
        return None


def read_windows(pid: int | None = None, library: Any = None) -> WindowsUsage | None:
    """Read Windows' counters for a process; None where there are none. Takes some tens of milliseconds.

    Args:
        pid: process id; by default this process.
        library: library pdh.dll, or an object with its functions.
    """
    library = library or _pdh()
    if library is None:
        return None
    with suppress(OSError, AttributeError, ValueError, ctypes.ArgumentError):
        return _read_counters(library, os.getpid() if pid is None else pid)
    return None


def _read_counters(pdh: Any, pid: int) -> WindowsUsage | None:
    query = ctypes.c_void_p()
    if pdh.PdhOpenQueryW(None, None, ctypes.byref(query)):
        return None
    try:
        counters: dict[str, ctypes.c_void_p] = {}
        for kind in (DEDICATED, SHARED):
            counter = ctypes.c_void_p()
            # The counter's English name, which works in every language of Windows.
            if not pdh.PdhAddEnglishCounterW(query, _PATH.format(kind), None, ctypes.byref(counter)):
                counters[kind] = counter
        if not counters or pdh.PdhCollectQueryData(query):
            return None
        found = {kind: _sum_of(pdh, counter, pid) for kind, counter in counters.items()}
    finally:
        pdh.PdhCloseQuery(query)
    return WindowsUsage(dedicated=found.get(DEDICATED), shared=found.get(SHARED))


def _sum_of(pdh: Any, counter: ctypes.c_void_p, pid: int) -> int | None:
    """Sum a counter over a process's instances, one a card, such as pid_1234_luid_0x00000000_0x0000c0a1_phys_0.

    The answer is None where the process has no instance.
    """
    size, count = ctypes.c_uint32(0), ctypes.c_uint32(0)
    arguments = (counter, _PDH_FMT_LARGE, ctypes.byref(size), ctypes.byref(count))
    if _code(pdh.PdhGetFormattedCounterArrayW(*arguments, None)) != _PDH_MORE_DATA:
        return None
    # The buffer begins with the items, and the names they point to follow.
    buffer = ctypes.create_string_buffer(size.value)
    if pdh.PdhGetFormattedCounterArrayW(*arguments, buffer):
        return None
    items = (_CounterItem * count.value).from_buffer(buffer)
    own = [
        int(item.value.large)
        for item in items
        if (item.name or "").startswith(f"pid_{pid}_") and item.value.status in _PDH_VALID
    ]
    return sum(own) if own else None


def _code(status: int) -> int:
    """Convert a PDH_STATUS, which ctypes may return signed, to an unsigned number."""
    return status & 0xFFFFFFFF


def _pdh() -> Any:
    """Load pdh.dll with its functions declared; None elsewhere than on Windows."""
    if sys.platform == "win32":
        with suppress(OSError, AttributeError):
            return _declared(ctypes.WinDLL("pdh"))
    return None


def _declared(library: Any) -> Any:
    handle, number = ctypes.c_void_p, ctypes.c_uint32
    numbers = ctypes.POINTER(number)
    declarations = {
        "PdhOpenQueryW": (ctypes.c_wchar_p, ctypes.c_void_p, ctypes.POINTER(handle)),
        "PdhAddEnglishCounterW": (handle, ctypes.c_wchar_p, ctypes.c_void_p, ctypes.POINTER(handle)),
        "PdhCollectQueryData": (handle,),
        "PdhGetFormattedCounterArrayW": (handle, number, numbers, numbers, ctypes.c_void_p),
        "PdhCloseQuery": (handle,),
    }
    for name, arguments in declarations.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, number
    return library
