"""What one process holds of a GPU's memory, as the driver or Windows counts it. Loads no torch.

torch's allocator knows its own tensors only; the context, kernels, graphs and what libraries take come on top. Windows'
driver model gives no figure for a process through NVML, but its performance counters do, and they tell as well what the
driver put into system memory because the card was full.
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


class _Value(ctypes.Structure):
    """PDH_FMT_COUNTERVALUE, of whose union only the 64-bit number is asked for."""

    _fields_ = (("status", ctypes.c_uint32), ("large", ctypes.c_int64))


class _Item(ctypes.Structure):
    """PDH_FMT_COUNTERVALUE_ITEM_W."""

    _fields_ = (("name", ctypes.c_wchar_p), ("value", _Value))


@dataclass(frozen=True)
class WindowsUsage:
    """Bytes that Windows counts for a process over all GPUs.

    Attributes:
        dedicated: On the cards; None where the counter does not answer.
        shared: In system memory: page-locked buffers, and what did not fit on the card.
    """

    dedicated: int | None
    shared: int | None


class ProcessMemory:
    """Reads how much of a GPU's memory this process holds.

    Made before the process uses the GPU: where the driver does not tell one process from another (in containers), what
    is used since then counts, which is right as long as no other process starts or ends.

    Args:
        uuid: The GPU's, such as "GPU-1b4e28ba-2fa1-11d2-883f-0016d3cca427".
        nvml: pynvml, or an object with its functions.
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
        """Bytes now; None where nothing says."""
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
    """What Windows counts for a process; None where there are no such counters. Takes some tens of milliseconds.

    Args:
        pid: The process; by default this one.
        library: pdh.dll, or an object with its functions.
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
            # By its English name, whatever language Windows speaks.
            if not pdh.PdhAddEnglishCounterW(query, _PATH.format(kind), None, ctypes.byref(counter)):
                counters[kind] = counter
        if not counters or pdh.PdhCollectQueryData(query):
            return None
        found = {kind: _sum_of(pdh, counter, pid) for kind, counter in counters.items()}
    finally:
        pdh.PdhCloseQuery(query)
    return WindowsUsage(dedicated=found.get(DEDICATED), shared=found.get(SHARED))


def _sum_of(pdh: Any, counter: ctypes.c_void_p, pid: int) -> int | None:
    """Sum over the instances of a process, one a card: pid_1234_luid_0x00000000_0x0000c0a1_phys_0. None without any."""
    size, count = ctypes.c_uint32(0), ctypes.c_uint32(0)
    arguments = (counter, _PDH_FMT_LARGE, ctypes.byref(size), ctypes.byref(count))
    if _code(pdh.PdhGetFormattedCounterArrayW(*arguments, None)) != _PDH_MORE_DATA:
        return None
    # The buffer begins with the items, and the names they point to follow.
    buffer = ctypes.create_string_buffer(size.value)
    if pdh.PdhGetFormattedCounterArrayW(*arguments, buffer):
        return None
    items = (_Item * count.value).from_buffer(buffer)
    own = [
        int(item.value.large)
        for item in items
        if (item.name or "").startswith(f"pid_{pid}_") and item.value.status in _PDH_VALID
    ]
    return sum(own) if own else None


def _code(status: int) -> int:
    """A PDH_STATUS, which ctypes may return as a signed number."""
    return status & 0xFFFFFFFF


def _pdh() -> Any:
    """pdh.dll with its functions declared; None elsewhere than on Windows."""
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
