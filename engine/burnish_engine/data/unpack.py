"""The bytes of a part, unpacked as they are read, and bounded: a small file cannot become an endless one."""

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
from burnish_engine.data import archive
from burnish_engine.data.checks import unreadable
from burnish_engine.data.places import Part

_BUFFER_BYTES = 2**20
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError)


@contextmanager
def opened(part: Part, offset: int = 0) -> Iterator[IO[bytes]]:
    """A part's bytes, unpacked, as a buffered stream.

    Args:
        part: What to read.
        offset: Where to begin, bytes; only of files that are not packed.

    Raises:
        DataError: It cannot be opened. Reading raises it too: for damage, and for more bytes than an honest file has.
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
def seekable(part: Part) -> Iterator[IO[bytes]]:
    """A part's bytes as a stream that can be read from any place; a packed one is unpacked into a nameless file.

    Raises:
        DataError: As `opened`.
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
def _unpacked(part: Part, raw: IO[bytes]) -> Iterator[IO[bytes]]:
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
    """Counts what is unpacked, ends it where it grows out of proportion, and turns damage into errors of ours."""

    def __init__(self, part: Part, stream: Any) -> None:
        self._part, self._stream = part, stream
        self._done = 0

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer.

        Raises:
            DataError: The data is damaged, or there is too much of it.
        """
        import pyarrow

        try:
            piece = self._stream.read(len(buffer))
        except (*_DAMAGED, OSError, pyarrow.ArrowException) as error:
            raise _damaged(self._part, error) from error
        self._done += len(piece)
        archive.refuse_bomb(self._part.name, self._part.size_bytes, [self._done])
        buffer[: len(piece)] = piece
        return len(piece)


def _damaged(part: Part, error: BaseException) -> DataError:
    return DataError(
        f"{part.name} could not be unpacked: {str(error).splitlines()[0] if str(error) else type(error).__name__}.",
        "Pack or download it again.",
    )
