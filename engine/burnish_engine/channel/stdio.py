"""Reserve standard input and output for the protocol, and read bounded lines from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

_BLOCK = 65536


def take_input() -> int:
    """Take a private copy of standard input, and leave an empty one to everything else, child processes included.

    On Windows, a C library that asks for the kind of standard input would wait as long as a thread reads from it.

    Returns:
        File descriptor to read from. Child processes do not inherit it.
    """
    source, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return source


def take_stdio() -> tuple[int, int]:
    """Take private copies of standard input and output, and redirect the public ones.

    A later reader of standard input (a child process) finds it empty, and everything printed, by C libraries and child
    processes too, goes to standard error, so that only the protocol reaches the real output.

    Returns:
        File descriptors to read requests from and to write messages to. Child processes do not inherit them.
    """
    source, target = take_input(), os.dup(1)
    try:
        os.dup2(2, 1)
    except OSError:  # started without a standard error
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.close(nothing)
    for descriptor in (source, target):
        _as_bytes(descriptor)
    with suppress(AttributeError, ValueError, OSError):
        sys.stdout.flush()
    return source, target


def _as_bytes(descriptor: int) -> None:
    """Switch the descriptor to binary: Windows would change line ends and stop at a Ctrl-Z."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(descriptor, os.O_BINARY)


def read_lines(descriptor: int, longest: int) -> Iterator[bytes | None]:
    """Yield lines without their end, as they arrive; None stands for a line that was too long and is skipped.

    A last line without an end counts as a line. The generator ends when the other side closes.

    Args:
        descriptor: file descriptor to read from.
        longest: limit on a line, bytes.
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
