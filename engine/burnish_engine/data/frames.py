"""Messages between two processes: JSON behind its length.

JSON, not pickles: the process that renders templates from strangers must not be able to hand objects to its parent.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

_LENGTH = struct.Struct("<Q")


def frame(value: Any) -> bytes:
    """A message as bytes.

    Args:
        value: the message, of values that JSON can say. Half surrogate pairs survive.

    Raises:
        ValueError: It refers to itself, or holds an integer of thousands of digits.
        TypeError: JSON cannot say it.
        RecursionError: It is nested too deep.
    """
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(body)) + body


def read_length(stream: BinaryIO) -> int | None:
    """The length of the next message, bytes; None where the stream ends."""
    head = stream.read(_LENGTH.size)
    return int(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else None


def read_body(stream: BinaryIO, length: int) -> Any:
    """The message whose length was read.

    Raises:
        EOFError: The stream ends within it.
        ValueError: It is not JSON.
    """
    body = stream.read(length)
    if len(body) < length:
        raise EOFError
    return json.loads(body)
