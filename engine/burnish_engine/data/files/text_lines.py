"""Decodes a text part line by line, so that an error concerns one line and names it."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import IO

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.units import file_size
from burnish_engine.data.files.discover import DatasetPart
from burnish_engine.data.files.problems import BrokenRowError
from burnish_engine.data.files.unpack import opened

LONGEST_LINE_BYTES = 64 * 2**20
"""Longest line that is read; a longer one is an error."""

Line = tuple[int, str | BrokenRowError]
"""A line's number, from 1, and the line or its error."""

_INT64_COLUMNS = {"utf-16": 2, "utf-32": 4}
_MARKS = (  # UTF-32 first: its little-endian mark begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32", "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32", "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16", "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16", "utf-16-be"),
)
_SAVE_AS_UTF8 = (
    "Save it as UTF-8 (Excel: file type CSV UTF-8; Notepad: Save as, encoding UTF-8), or name what it is in "
    "data.encoding."
)


def text_lines(part: DatasetPart, encoding: str = "utf-8") -> Iterator[Line]:
    """Yield the lines of a text with their numbers from 1, streaming. Only a line feed ends a line; it is kept.

    A byte order mark at the start is accepted and removed.

    Args:
        part: part to read.
        encoding: encoding of the text: utf-8, utf-16, utf-32 or a single-byte or multi-byte encoding that Python knows.

    Raises:
        DataError: The part cannot be read, a line is too long, or a byte order mark shows another encoding.
    """
    with opened(part) as stream:
        first = stream.read(4)
        mark = next((found for found in _MARKS if first.startswith(found[0])), None)
        if mark and encoding not in _INT64_COLUMNS:
            raise DataError(
                f"The data file {part.name} is not UTF-8: line 1 begins with the bytes {mark[0].hex(' ').upper()}, so "
                f"it looks like {mark[1].upper()}.",
                _SAVE_AS_UTF8,
            )
        if encoding in _INT64_COLUMNS:
            exact = mark[2] if mark and mark[1] == encoding else f"{encoding}-le"
            kept = first[len(mark[0]) :] if mark else first
            yield from _decoded(part, _wide_lines(part, stream, kept, exact), exact)
        else:
            yield from _decoded(part, _lines(part, stream, first), encoding)


def _lines(part: DatasetPart, stream: IO[bytes], first: bytes) -> Iterator[bytes]:
    """Yield the raw lines; `first` holds the bytes that were read already."""
    begun = first.split(b"\n")
    for whole in begun[:-1]:
        yield whole + b"\n"
    number = len(begun) - 1
    rest = begun[-1] + stream.readline(LONGEST_LINE_BYTES)
    while rest:
        number += 1
        if len(rest) >= LONGEST_LINE_BYTES and not rest.endswith(b"\n"):
            raise _too_long(part, number)
        yield rest
        rest = stream.readline(LONGEST_LINE_BYTES)


def _wide_lines(part: DatasetPart, stream: IO[bytes], first: bytes, encoding: str) -> Iterator[bytes]:
    """Yield the raw lines of an encoding with two or four bytes per unit; `first` holds the bytes read already."""
    feed = "\n".encode(encoding)
    held, number, looked = first, 0, 0
    while piece := stream.read(2**16):
        held += piece
        at = 0
        while (end := _aligned(held, feed, max(at, looked))) >= 0:
            number += 1
            yield held[at : end + len(feed)]
            at = end + len(feed)
        held = held[at:]
        looked = max(0, len(held) - len(feed))
        if len(held) >= LONGEST_LINE_BYTES:
            raise _too_long(part, number + 1)
    if held:
        yield held


def _aligned(held: bytes, feed: bytes, start: int) -> int:
    """Find the first line feed that begins on a whole unit; -1 where there is none."""
    at = held.find(feed, start)
    while at >= 0 and at % len(feed):
        at = held.find(feed, at + 1)
    return at


def _too_long(part: DatasetPart, number: int) -> DataError:
    return DataError(
        f"Line {number} of {part.name} is longer than {file_size(LONGEST_LINE_BYTES)}.",
        "Check that this is a text file with one row a line.",
    )


def _decoded(part: DatasetPart, lines: Iterator[bytes], encoding: str) -> Iterator[Line]:
    decode = _decode_utf8 if encoding == "utf-8" else _decode_other
    for number, raw in enumerate(lines, start=1):
        try:
            yield number, decode(part, number, raw, encoding)
        except BrokenRowError as error:
            yield number, error


def _decode_utf8(part: DatasetPart, number: int, raw: bytes, _encoding: str) -> str:
    if number == 1:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    if b"\0" in raw:
        position = raw.index(0) + 1
        # ASCII text in UTF-16 without a mark is half NULs.
        guess = "it looks like UTF-16" if raw.count(0) * 3 >= len(raw) else "it is binary or damaged"
        raise BrokenRowError(
            f"The data file {part.name} has a NUL byte in line {number} (byte {position}): {guess}.",
            _SAVE_AS_UTF8,
            "a NUL byte in the line",
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BrokenRowError(
            f"The data file {part.name} is not UTF-8: line {number}, byte {error.start + 1} is "
            f"0x{raw[error.start]:02X}.",
            _SAVE_AS_UTF8,
            "not UTF-8",
        ) from None


def _decode_other(part: DatasetPart, number: int, raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise BrokenRowError(
            f"Line {number} of {part.name} is not {encoding.upper()} (data.encoding): byte {error.start + 1} is "
            f"0x{raw[error.start]:02X}.",
            "Check data.encoding.",
            f"not {encoding.upper()}",
        ) from None
