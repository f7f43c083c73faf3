"""Reads zip archives: the directory is read once for all members, and archives that unpack to too much are refused."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import IO

from burnish_engine.contract.errors import DataError

FREE_BYTES = 2**30
"""Bytes that any packed file may unpack to, however small it is."""
MOST_RATIO = 200
"""Largest ratio of unpacked to packed bytes beyond `FREE_BYTES`. Text has ratios of 3 to 20, logs of up to 100."""

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, ..., length of the name, length of the extra field
_LOCAL_SIGNATURE = b"PK\x03\x04"  # both from PKWARE's APPNOTE.TXT, 4.3.7


def zip_members(path: Path) -> dict[str, zipfile.ZipInfo]:
    """List the files of an archive by name; of files with the same name, the last counts.

    Args:
        path: path of the archive.

    Raises:
        zipfile.BadZipFile: The file is no zip archive, or it is damaged.
        OSError: The file cannot be read.
    """
    state = path.stat()
    return _members(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=8)
def _members(path: Path, _size_bytes: int, _changed_ns: int) -> dict[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: info for info in archive.infolist() if not info.is_dir()}


def open_member(path: Path, raw: IO[bytes], name: str) -> IO[bytes]:
    """Open a file of an archive as a stream, without reading the directory again as `zipfile.ZipFile` would.

    Args:
        path: path of the archive.
        raw: stream of the archive's bytes.
        name: name of the file in the archive.

    Raises:
        zipfile.BadZipFile: The archive is damaged, or the file is packed in a way that Python cannot unpack.
        KeyError: The archive has no such file.
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
    """Refuse an archive that unpacks to more than real data of its size would (a zip bomb).

    Args:
        name: name of the archive in messages.
        packed_bytes: size of the archive, bytes.
        unpacked_bytes: unpacked size of each file in it, bytes.

    Raises:
        DataError: The files unpack to too much.
    """
    if sum(unpacked_bytes) > FREE_BYTES + MOST_RATIO * packed_bytes:
        raise DataError(
            f"{name} has {packed_bytes:,} bytes and unpacks to more than {MOST_RATIO} times that, which no real "
            "dataset does.",
            "If it is one, unpack it first and give the unpacked files.",
        )
