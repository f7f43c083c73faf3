"""Fetches the files of a release into a folder: several at once, continued after a cut, and checked by their hashes.

A file under its own name is whole. What came of an unfinished one is under its name with `.part`, and is continued by
the next fetch, also after the process or the machine ended.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from burnish_engine.contract.errors import BurnishError, StoppedError
from burnish_engine.contract.files import is_full, replace_with_retry
from burnish_engine.install.files.meter import Meter
from burnish_engine.install.files.reasons import BAD_ANSWERS, WrongAnswerError, cut_short, fetch_problem, other_content
from burnish_engine.install.files.sources import Source
from burnish_engine.install.release.description import ReleaseFile

if TYPE_CHECKING:
    from hashlib import _Hash

_AT_ONCE = 4
_BLOCK_BYTES = 2**18
_ENOUGH_BYTES = 2**20  # a connection that brought this much before it was cut may be cut again
_POLL_S, _GRACE_S = 0.1, 2.0
_PART = ".part"


@dataclass(frozen=True)
class Fetcher:
    """Fetches files.

    Attributes:
        folder: folder that they go to.
        sources: places that they come from, the first that has one first.
        meter: counter of their bytes.
    """

    folder: Path
    sources: Sequence[Source]
    meter: Meter

    def fetch_all(self, files: Iterable[ReleaseFile]) -> None:
        """Fetch files that are not there yet.

        Raises:
            StoppedError: The meter's stop was set.
            BurnishError: A file could not be had; the message says why.
        """
        waiting, failed = deque(files), deque[BaseException]()
        threads = [
            threading.Thread(target=self._fetch_next, args=(waiting, failed), name=f"fetch {number}", daemon=True)
            for number in range(_AT_ONCE)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive() and not failed:
                    self.meter.check()
                    thread.join(_POLL_S)
            if failed:
                raise next((error for error in failed if not isinstance(error, StoppedError)), failed[0])
        except BaseException:
            self.meter.end()
            end_s = time.monotonic() + _GRACE_S
            for thread in threads:  # one that waits for its server ends later, and writes nothing any more
                thread.join(max(end_s - time.monotonic(), 0.0))
            raise

    def _fetch_next(self, waiting: deque[ReleaseFile], failed: deque[BaseException]) -> None:
        """Fetch one file after the other until none is left, or one failed."""
        while not failed:
            try:
                file = waiting.popleft()
            except IndexError:
                return
            try:
                self.fetch(file)
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                failed.append(error)

    def fetch(self, file: ReleaseFile) -> Path:
        """Fetch one file if it is not there; returns its path."""
        path = self.folder / file.name
        self.meter.check()
        if self._is_whole(path, file):
            return path
        problem: BurnishError | None = None
        self.meter.found(_size_of(self.folder / f"{file.name}{_PART}"))
        local = [source for source in self.sources if source.is_local and source.has(file)]
        for source in [*local, *(source for source in self.sources if not source.is_local)]:
            try:
                self._fetch_from(source, file)
            except StoppedError:
                raise
            except BurnishError as error:
                problem = error
                continue
            return path
        missing = FileNotFoundError("it is in none of the places")
        places = ", ".join(source.place for source in self.sources)
        raise problem or fetch_problem(file.name, places, missing, path)

    def _is_whole(self, path: Path, file: ReleaseFile) -> bool:
        """Whether a file is there; one that was changed since is removed."""
        if not path.is_file():
            return False
        if path.stat().st_size == file.size_bytes and _hash_of(path).hexdigest() == file.sha256:
            self.meter.found(file.size_bytes)
            return True
        path.unlink()
        return False

    def _fetch_from(self, source: Source, file: ReleaseFile) -> None:
        """Fetch a file from a source, with one silent retry for each stretch that came."""
        part = self.folder / f"{file.name}{_PART}"
        failed_at: int | None = None
        while True:
            try:
                self._continue(source, file, part)
                return
            except StoppedError:
                raise
            except (*BAD_ANSWERS, WrongAnswerError) as error:
                now = _size_of(part)
                hopeless = isinstance(error, OSError) and is_full(error)
                if hopeless or (failed_at is not None and now - failed_at < _ENOUGH_BYTES):
                    raise fetch_problem(file.name, source.place, error, part) from error
                failed_at = now

    def _continue(self, source: Source, file: ReleaseFile, part: Path) -> None:
        """Fetch what is missing of a file, check its hash, and give it its name."""
        kept = _size_of(part)
        if kept > file.size_bytes:
            self._drop(part)
            kept = 0
        digest = _hash_of(part) if kept else hashlib.sha256()
        if kept < file.size_bytes:
            digest = self._receive(source, file, part, kept, digest)
        if digest.hexdigest() != file.sha256:
            self._drop(part)
            raise other_content()
        replace_with_retry(part, self.folder / file.name)

    def _receive(self, source: Source, file: ReleaseFile, part: Path, kept: int, digest: _Hash) -> _Hash:
        with source.open(file, kept) as (stream, offset):
            if offset != kept:  # the server cannot continue
                self._drop(part)
                kept, digest = 0, hashlib.sha256()
            with part.open("ab") as sink:
                while block := stream.read(_BLOCK_BYTES):
                    self.meter.check()
                    sink.write(block)
                    digest.update(block)
                    kept += len(block)
                    self.meter.came(len(block))
                    if kept > file.size_bytes:
                        break
        if kept > file.size_bytes:
            self._drop(part)
            raise other_content()
        if kept < file.size_bytes:
            raise cut_short(kept, file.size_bytes)
        return digest

    def _drop(self, part: Path) -> None:
        with suppress(FileNotFoundError):
            size = part.stat().st_size
            part.unlink()
            self.meter.lost(size)


def missing_bytes(folder: Path, file: ReleaseFile) -> int:
    """Return the bytes of a file that still have to come into a folder."""
    there = max(_size_of(folder / name) for name in (file.name, f"{file.name}{_PART}"))
    return max(file.size_bytes - there, 0)


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _hash_of(path: Path) -> _Hash:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
