"""Fetches the files of a release into a folder: several at once, continued after a cut, and checked by their hashes.

A file under its own name is whole. What came of an unfinished one is under its name with `.part`, and is continued by
the next fetch, also after the process or the machine ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from burnish_engine.contract.errors import BurnishError, StoppedError
from burnish_engine.contract.files import is_full, replace_with_retry
from burnish_engine.install.files.meter import Meter
from burnish_engine.install.files.reasons import WrongAnswerError, cut_short, fetch_problem, other_content
from burnish_engine.install.files.sources import Source
from burnish_engine.install.release.description import ReleaseFile

if TYPE_CHECKING:
    from hashlib import _Hash

_AT_ONCE = 4
_BLOCK_BYTES = 2**18
_ENOUGH_BYTES = 2**20  # a connection that brought this much before it was cut may be cut again
PART = ".part"


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
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetch") as pool:
            jobs = [pool.submit(self.fetch, file) for file in files]
            done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
            failed = [error for job in done if (error := job.exception()) is not None]
            if failed:
                self.meter.end()
                pool.shutdown(cancel_futures=True)
                raise next((error for error in failed if not isinstance(error, StoppedError)), failed[0])

    def fetch(self, file: ReleaseFile) -> Path:
        """Fetch one file if it is not there; returns its path."""
        path = self.folder / file.name
        self.meter.check()
        if self._is_whole(path, file):
            return path
        problem: BurnishError | None = None
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
        part = self.folder / f"{file.name}{PART}"
        kept = part.stat().st_size if part.is_file() else 0
        self.meter.found(kept)
        failed_at: int | None = None
        while True:
            try:
                self._continue(source, file, part)
                return
            except StoppedError:
                raise
            except (OSError, ValueError, WrongAnswerError) as error:
                now = part.stat().st_size if part.is_file() else 0
                hopeless = isinstance(error, OSError) and is_full(error)
                if hopeless or (failed_at is not None and now - failed_at < _ENOUGH_BYTES):
                    raise fetch_problem(file.name, source.place, error, part) from error
                failed_at = now

    def _continue(self, source: Source, file: ReleaseFile, part: Path) -> None:
        """Fetch what is missing of a file, check its hash, and give it its name."""
        kept = part.stat().st_size if part.is_file() else 0
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


def _hash_of(path: Path) -> _Hash:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
