"""Describes how a child process ended, in text a person can act on."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress

_TELLING = ("GGML_ASSERT", "Error:", "error:", "terminate called", "Killed", "out of memory")
_MOST_CHARACTERS = 300


def exit_text(status: int, said: Sequence[str]) -> str:
    """Write a process's exit status and the most telling line of its standard error.

    Args:
        status: exit status from `subprocess`, negative for a signal.
        said: lines of standard error.
    """
    lines = [line.strip() for line in said if line.strip()]
    telling = [line for line in lines if any(word in line for word in _TELLING)] or lines
    reason = telling[-1][:_MOST_CHARACTERS].rstrip(".") if telling else ""
    return f"{_status(status)}{': ' + reason if reason else ''}"


def _status(status: int) -> str:
    if status < 0:
        with suppress(ValueError):
            return f"signal {signal.Signals(-status).name}"
    return f"exit status {status:#x}" if status > 255 else f"exit status {status}"  # Windows: NTSTATUS codes
