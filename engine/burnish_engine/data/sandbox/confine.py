"""Lets a process limit its own memory and processor time, enforced by the operating system.

POSIX systems use RLIMIT_AS, a timer of processor time whose signal ends the process, and RLIMIT_CPU. Windows uses a job
object, see `windows_job`.
"""

from __future__ import annotations

import signal
import sys

_WINDOWS_TIME_UP = 1816  # ERROR_NOT_ENOUGH_QUOTA, the exit code of a process ended by its job's time limit

if sys.platform == "win32":
    from burnish_engine.data.sandbox import windows_job

    def limit_memory(limit_bytes: int) -> int:
        """Limit what this process may allocate; allocations beyond fail.

        Args:
            limit_bytes: the limit, bytes.

        Returns:
            The limit that holds, bytes.
        """
        windows_job.limit_memory(limit_bytes)
        return limit_bytes

    def limit_time(seconds: float) -> None:
        """End this process when it has used some more processor time.

        Args:
            seconds: processor time from now, seconds; 0 lifts the limit.
        """
        windows_job.limit_time(seconds)

    def limit_time_for_good(seconds: float) -> None:
        """End this process when it has used some more processor time; it cannot lift the limit.

        Args:
            seconds: processor time from now, seconds.
        """
        windows_job.limit_time(seconds)

    def limit_processes() -> None:
        """Let this process start no other, as far as the system can see to it."""
        windows_job.limit_processes()

    def limit_output(limit_bytes: int) -> None:
        """Limit the size of files that this process writes, bytes; Windows has no such limit."""

    def ended_for_time(status: int) -> bool:
        """Whether a process ended because of `limit_time`.

        Args:
            status: the process's return code, as `subprocess` gives it.
        """
        return status & 0xFFFFFFFF == _WINDOWS_TIME_UP

else:
    import math
    import resource
    import time

    def limit_memory(limit_bytes: int) -> int:
        """Limit the address space of this process; allocations beyond fail.

        Args:
            limit_bytes: the limit, bytes. A hard limit from outside stays.

        Returns:
            The limit that holds, bytes.
        """
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            limit_bytes = min(limit_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, hard))
        return limit_bytes

    def limit_time(seconds: float) -> None:
        """End this process when it has used some more processor time.

        Args:
            seconds: processor time from now, seconds; 0 lifts the limit.
        """
        signal.setitimer(signal.ITIMER_PROF, seconds)

    def limit_time_for_good(seconds: float) -> None:
        """End this process when it has used some more processor time; it cannot lift the limit.

        The first process of a namespace takes no signal of `limit_time`; of this limit it does.

        Args:
            seconds: processor time from now, seconds; rounded up, since the system counts whole seconds.
        """
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        limit_s = math.ceil(time.process_time() + seconds)
        if hard != resource.RLIM_INFINITY:
            limit_s = min(limit_s, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))

    def limit_processes() -> None:
        """Let this process start no other, as far as the system can see to it; the superuser's are not limited."""
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

    def limit_output(limit_bytes: int) -> None:
        """Limit the size of files that this process writes, bytes."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    def ended_for_time(status: int) -> bool:
        """Whether a process ended because of `limit_time`.

        Args:
            status: the process's return code, as `subprocess` gives it.
        """
        return status == -signal.SIGPROF
