"""Limits this process's memory and processor time on Windows with a job object.

https://learn.microsoft.com/windows/win32/procthread/job-objects. A process may be in several jobs, one inside the
other, since Windows 8; each of their limits holds.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
_PROCESS_TIME, _PROCESS_COUNT, _PROCESS_MEMORY, _DIE_ON_EXCEPTION = 0x2, 0x8, 0x100, 0x400  # JOB_OBJECT_LIMIT_...
_TICKS_PER_S = 10_000_000


class _BasicLimits(ctypes.Structure):
    """The structure JOBOBJECT_BASIC_LIMIT_INFORMATION of the Windows API."""

    _fields_ = (
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("least_working_set", ctypes.c_size_t),
        ("most_working_set", ctypes.c_size_t),
        ("most_processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority", ctypes.c_uint32),
        ("scheduling", ctypes.c_uint32),
    )


class _ExtendedLimits(ctypes.Structure):
    """The structure JOBOBJECT_EXTENDED_LIMIT_INFORMATION of the Windows API."""

    _fields_ = (
        ("basic", _BasicLimits),
        ("io_counters", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


class _JobObject:
    def __init__(self, kernel32: Any) -> None:
        self._kernel32 = kernel32
        self._limits = _ExtendedLimits()
        self._limits.basic.flags = _DIE_ON_EXCEPTION
        self._job = ctypes.c_void_p(kernel32.CreateJobObjectW(None, None))
        self._process = ctypes.c_void_p(kernel32.GetCurrentProcess())
        _check(bool(self._job) and kernel32.AssignProcessToJobObject(self._job, self._process))

    def limit_memory(self, limit_bytes: int) -> None:
        self._limits.basic.flags |= _PROCESS_MEMORY
        self._limits.process_memory = limit_bytes
        self._set()

    def limit_processes(self) -> None:
        self._limits.basic.flags |= _PROCESS_COUNT
        self._limits.basic.most_processes = 1
        self._set()

    def limit_time(self, seconds: float) -> None:
        # Windows counts user time from the start of the process.
        if seconds:
            self._limits.basic.flags |= _PROCESS_TIME
            self._limits.basic.process_time = self._user_ticks() + int(seconds * _TICKS_PER_S)
        else:
            self._limits.basic.flags &= ~_PROCESS_TIME
            self._limits.basic.process_time = 0
        self._set()

    def _user_ticks(self) -> int:
        times = [ctypes.c_uint64() for _ in range(4)]  # creation, exit, kernel, user
        _check(self._kernel32.GetProcessTimes(self._process, *map(ctypes.byref, times)))
        return times[3].value

    def _set(self) -> None:
        size = ctypes.sizeof(self._limits)
        done = self._kernel32.SetInformationJobObject(self._job, _EXTENDED_LIMITS, ctypes.byref(self._limits), size)
        _check(done)


def limit_memory(limit_bytes: int) -> None:
    """Limit the memory that this process may commit, bytes."""
    _job().limit_memory(limit_bytes)


def limit_time(seconds: float) -> None:
    """End this process when it has used this much more user time, seconds; 0 lifts the limit."""
    _job().limit_time(seconds)


def limit_processes() -> None:
    """Let this process start no other."""
    _job().limit_processes()


@cache
def _job() -> _JobObject:
    kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined,unused-ignore]  # Windows
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    declared: dict[str, tuple[Any, ...]] = {
        "CreateJobObjectW": (pointer, pointer, ctypes.c_wchar_p),
        "GetCurrentProcess": (pointer,),
        "AssignProcessToJobObject": (ctypes.c_int, pointer, pointer),
        "GetProcessTimes": (ctypes.c_int, pointer, pointer, pointer, pointer, pointer),
        "SetInformationJobObject": (ctypes.c_int, pointer, ctypes.c_int, pointer, number),
    }
    for name, (result, *arguments) in declared.items():
        function = getattr(kernel32, name)
        function.restype, function.argtypes = result, arguments
    return _JobObject(kernel32)


def _check(succeeded: Any) -> None:
    if not succeeded:
        raise OSError(f"the job object failed with the error {ctypes.get_last_error()}")  # type: ignore[attr-defined,unused-ignore]
