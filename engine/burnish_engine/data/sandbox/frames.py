"""Frames messages between two processes as JSON with its length in front.

The messages are JSON and not pickles, so that the process that renders untrusted templates cannot hand objects to its
parent.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

_LENGTH = struct.Struct("<Q")


def frame(value: Any) -> bytes:
    """Encode a message as bytes.

    Args:
        value: message of JSON values. Half surrogate pairs survive.

    Raises:
        ValueError: The message refers to itself, or holds an integer of thousands of digits.
        TypeError: The message holds a value that JSON lacks.
        RecursionError: The message is nested too deep.
    """
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(body)) + body


def read_length(stream: BinaryIO) -> int | None:
    """Read the length of the next message, bytes; None where the stream ends."""
    head = stream.read(_LENGTH.size)
    return int(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else None


def read_body(stream: BinaryIO, length: int) -> Any:
    """Read the message whose length was read before.

    Raises:
        EOFError: The stream ends within the message.
        ValueError: The message is not JSON.
    """
    body = stream.read(length)
    if len(body) < length:
        raise EOFError
    return json.loads(body)
