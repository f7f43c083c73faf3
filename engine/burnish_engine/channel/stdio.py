"""Standard input and output kept for the protocol alone, and lines read from it that cannot fill the memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

_BLOCK = 65536


def take_stdio() -> tuple[int, int]:
    """Private copies of standard input and output; what others read or print from now on is something else.

    Whoever reads standard input (a child process) finds it empty, and whatever is printed, by C libraries and child
    processes too, goes to standard error, so that nothing but the protocol ever stands on the real output.

    Returns:
        File descriptors to read requests from and to write messages to. Child processes do not inherit them.
    """
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # started without a standard error
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
    os.close(nothing)
    for descriptor in (source, target):
        _as_bytes(descriptor)
    with suppress(AttributeError, ValueError, OSError):
        sys.stdout.flush()
    return source, target


def _as_bytes(descriptor: int) -> None:
    """Windows would otherwise change line ends and stop at a Ctrl-Z."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(descriptor, os.O_BINARY)


def read_lines(descriptor: int, longest: int) -> Iterator[bytes | None]:
    """Lines without their end, as they arrive; None stands for a line that was too long and is skipped.

    A last line without an end is a line too. Ends when the other side closes.

    Args:
        descriptor: To read from.
        longest: Most bytes of a line.
    """
    line, skipping = bytearray(), False
    while block := _read(descriptor):
        first, *others = block.split(b"\n")
        for more, part in enumerate([first, *others]):
            if more:  # the line before this part is whole
                yield None if skipping else bytes(line)
                line, skipping = bytearray(), False
            if not skipping:
                line += part
            if len(line) > longest:
                line, skipping = bytearray(), True
    if line or skipping:
        yield None if skipping else bytes(line)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _BLOCK)
    except OSError:  # the other side is gone
        return b""
