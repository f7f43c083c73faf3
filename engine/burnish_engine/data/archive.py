"""Zip archives: the directory is read once for all members, and what they unpack to is bounded beforehand."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import IO

from burnish_engine.contract.errors import DataError

FREE_BYTES = 2**30
"""What any packed file may unpack to, however small it is."""
MOST_RATIO = 200
"""How many times its size a packed file may unpack to beyond that. Text packs by 3 to 20, logs by up to 100."""

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, ..., length of the name, length of the extra field
_LOCAL_SIGNATURE = b"PK\x03\x04"  # both from PKWARE's APPNOTE.TXT, 4.3.7


def zip_members(path: Path) -> dict[str, zipfile.ZipInfo]:
    """The files in an archive by name; where a name comes twice, the last one.

    Args:
        path: the archive.

    Raises:
        zipfile.BadZipFile: It is no zip archive, or it is damaged.
        OSError: It cannot be read.
    """
    state = path.stat()
    return _members(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=8)
def _members(path: Path, _size_bytes: int, _changed_ns: int) -> dict[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: info for info in archive.infolist() if not info.is_dir()}


def open_member(path: Path, raw: IO[bytes], name: str) -> IO[bytes]:
    """A file of an archive as a stream; `zipfile.ZipFile` would read the whole directory again for each.

    Args:
        path: the archive.
        raw: the same, opened.
        name: the file's name in it.

    Raises:
        zipfile.BadZipFile: The archive is damaged, or the file is packed in a way that Python cannot unpack.
        KeyError: It has no such file.
    """
    info = zip_members(path)[name]
    raw.seek(info.header_offset)
    header = raw.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size or not header.startswith(_LOCAL_SIGNATURE):
        raise zipfile.BadZipFile(f"the file {name!r} does not begin where the directory says")
    _, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
    raw.seek(name_bytes + extra_bytes, 1)
    try:
        return zipfile.ZipExtFile(raw, "r", info)  # type: ignore[return-value]
    except NotImplementedError as error:  # such as Deflate64, with which Windows packs large files
        raise zipfile.BadZipFile(str(error)) from error


def refuse_bomb(name: str, packed_bytes: int, unpacked_bytes: Iterable[int]) -> None:
    """Refuse what unpacks to more than an honest file of its size.

    Args:
        name: what to call it.
        packed_bytes: its size.
        unpacked_bytes: what its files unpack to.

    Raises:
        DataError: That is too much.
    """
    if sum(unpacked_bytes) > FREE_BYTES + MOST_RATIO * packed_bytes:
        raise DataError(
            f"{name} has {packed_bytes:,} bytes and unpacks to more than {MOST_RATIO} times that, which no real "
            "dataset does.",
            "If it is one, unpack it first and give the unpacked files.",
        )
