"""Opens the bytes of a part, unpacked as they are read, with a limit on the unpacked size."""

from __future__ import annotations

import io
import lzma
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from burnish_engine.contract.errors import DataError
from burnish_engine.data.files import archive
from burnish_engine.data.files.discover import DatasetPart
from burnish_engine.data.files.file_kinds import unreadable

_BUFFER_BYTES = 2**20
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError)


@contextmanager
def opened(part: DatasetPart, offset: int = 0) -> Iterator[IO[bytes]]:
    """Open a part's bytes, unpacked, as a buffered stream.

    Args:
        part: part to read.
        offset: first byte to read; ignored for packed files.

    Raises:
        DataError: The part cannot be opened. Reading raises it too: for damage, and for data that unpacks to too much.
    """
    try:
        with part.path.open("rb") as raw, _unpacked(part, raw) as stream:
            if part.packing:
                bounded = _Bounded(part, stream)
                yield cast("IO[bytes]", io.BufferedReader(bounded, _BUFFER_BYTES))
            else:
                raw.seek(offset)
                yield stream
    except OSError as error:
        raise _damaged(part, error) if part.packing else unreadable(part.path, error) from error
    except (zipfile.BadZipFile, KeyError) as error:
        raise _damaged(part, error) from error


@contextmanager
def seekable(part: DatasetPart) -> Iterator[IO[bytes]]:
    """Open a part's bytes as a seekable stream; a packed part is unpacked into a temporary file.

    Raises:
        DataError: The part cannot be opened, is damaged, or unpacks to too much.
    """
    with opened(part) as stream:
        if not part.packing:
            yield stream
            return
        with tempfile.TemporaryFile() as whole:
            shutil.copyfileobj(stream, whole, _BUFFER_BYTES)
            whole.seek(0)
            yield whole


@contextmanager
def _unpacked(part: DatasetPart, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    if not part.packing:
        yield raw
    elif part.packing == "zip":
        with archive.open_member(part.path, raw, part.member) as stream:
            yield stream
    elif part.packing == "zst":
        import pyarrow

        with pyarrow.input_stream(pyarrow.PythonFile(raw, mode="r"), compression="zstd") as stream:
            yield stream
    else:
        import bz2
        import gzip

        opener: Any = {"gz": gzip.GzipFile, "bz2": bz2.BZ2File, "xz": lzma.LZMAFile}[part.packing]
        with opener(fileobj=raw) if part.packing == "gz" else opener(raw) as stream:
            yield stream


class _Bounded(io.RawIOBase):
    """Limits the unpacked size of a stream, and raises `DataError` where the packed data is damaged."""

    def __init__(self, part: DatasetPart, stream: Any) -> None:
        self._part, self._stream = part, stream
        self._result = 0

    def readable(self) -> bool:
        """Whether the stream can be read: always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read unpacked bytes into a buffer, and return their number.

        Raises:
            DataError: The data is damaged, or unpacks to too much.
        """
        import pyarrow

        try:
            piece = self._stream.read(len(buffer))
        except (*_DAMAGED, OSError, pyarrow.ArrowException) as error:
            raise _damaged(self._part, error) from error
        self._result += len(piece)
        archive.refuse_bomb(self._part.name, self._part.size_bytes, [self._result])
        buffer[: len(piece)] = piece
        return len(piece)


def _damaged(part: DatasetPart, error: BaseException) -> DataError:
    return DataError(
        f"{part.name} could not be unpacked: {str(error).splitlines()[0] if str(error) else type(error).__name__}.",
        "Pack or download it again.",
    )
