"""One file, resumable and checked: a part named by its checksum, the rest asked for with Range, then the hash.

A part is found again by the checksum of the file it belongs to, so a file that changed on the hub starts over and one
that did not goes on, whichever commit it is asked for at.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from burnish_engine.contract.errors import SetupError, StoppedError
from burnish_engine.contract.files import cannot_write, replace_with_retry
from burnish_engine.hub.client import HubClient, TryAgainError
from burnish_engine.hub.files import HubFile

Cancelled = Callable[[], bool]
Advanced = Callable[[str, int], None]
"""Called with what is being done and the bytes of the file that are there."""

FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 120.0  # a hub that asks for more is not waited for in silence
_ATTEMPTS = 6  # without a new byte
_BLOCK_BYTES = 2**20


class Patience:
    """Waits between attempts, longer each time, until there were too many without progress.

    Args:
        cancelled: Asked while waiting.
        attempts: How many fail without progress before patience ends.
    """

    def __init__(self, cancelled: Cancelled, attempts: int = _ATTEMPTS) -> None:
        self._cancelled = cancelled
        self._attempts = attempts
        self._failures = 0

    def renew(self) -> None:
        """There was progress."""
        self._failures = 0

    def wait(self, failure: TryAgainError) -> None:
        """Wait before the next attempt.

        Raises:
            BurnishError: The failure itself, when patience is at its end.
            StoppedError: It was canceled.
        """
        self._failures += 1
        pause_s = failure.wait_s if failure.wait_s is not None else FIRST_WAIT_S * 2 ** (self._failures - 1)
        if self._failures >= self._attempts or pause_s > _LONGEST_WAIT_S:
            raise failure.problem from None
        until = time.monotonic() + pause_s
        while (left := until - time.monotonic()) > 0:
            stop_if(self._cancelled)
            time.sleep(min(left, 0.1))


def stop_if(cancelled: Cancelled) -> None:
    """Raise `StoppedError` where the person asked to stop."""
    if cancelled():
        raise StoppedError("The download was stopped.", "Start it again; it goes on where it stopped.")


class _Digest:
    """The checksums of a file that grows: SHA-256, and git's SHA-1 where the hub knows the file by that."""

    def __init__(self, file: HubFile) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._git = None if file.lfs else hashlib.sha1(b"blob %d\0" % file.bytes, usedforsecurity=False)

    def update(self, data: bytes) -> None:
        self._sha256.update(data)
        if self._git:
            self._git.update(data)

    def agrees(self) -> bool:
        """Whether it is the file that the hub announced."""
        return self._file.identity == (self._git or self._sha256).hexdigest()

    @property
    def sha256(self) -> str:
        """SHA-256 so far."""
        return self._sha256.hexdigest()


def part_path(folder: Path, file: HubFile) -> Path:
    """Where the beginning of a file waits for its rest."""
    return folder / f"{file.identity}.part"


def sha256_if_whole(path: Path, file: HubFile, cancelled: Cancelled) -> str:
    """The SHA-256 of a downloaded file; empty where it is missing or not what the hub has.

    Raises:
        StoppedError: It was canceled.
    """
    if not path.is_file() or path.stat().st_size != file.bytes:
        return ""
    digest = _Digest(file)
    with path.open("rb") as stream:
        _read_into(digest, stream, cancelled)
    return digest.sha256 if digest.agrees() else ""


@dataclass(frozen=True)
class FileDownload:
    """One file of one model.

    Attributes:
        client: The hub.
        model: The model's name.
        commit: The commit that the list of files is of.
        file: The file.
        part: Where its beginning waits for its rest, on the volume where the file will lie.
        advanced: Told how far it is.
        cancelled: Asked between chunks.
    """

    client: HubClient
    model: str
    commit: str
    file: HubFile
    part: Path
    advanced: Advanced
    cancelled: Cancelled

    def run(self, target: Path) -> str:
        """Get the file, going on with its part, check it, and put it at `target`.

        Returns:
            Its SHA-256.

        Raises:
            SetupError: The bytes are not the ones that the hub announced, or the hub could not be reached.
            StoppedError: It was canceled; the part stays.
            NoSpaceError: It could not be written; the part stays.
        """
        try:
            resumed = self.part.exists() and self.part.stat().st_size > 0
            digest = self._get()
            if not digest.agrees() and resumed:  # the part may have been damaged; the hub gets one fair chance
                self.part.unlink()
                digest = self._get()
            if not digest.agrees():
                self.part.unlink()
                raise SetupError(
                    f"{self.file.name} of {self.model} arrived with other content than the hub announced (SHA-256 "
                    f"{digest.sha256[:12]}..., expected {self.file.identity[:12]}...) and was deleted.",
                    "Start it again; if that repeats, something on the way changes files: a proxy, or the mirror in "
                    "HF_ENDPOINT.",
                )
            replace_with_retry(self.part, target)
        except OSError as error:
            raise cannot_write(target, error) from error
        return digest.sha256

    def _get(self) -> _Digest:
        """Append to the part until it is as long as the file; returns the checksums of all of it."""
        patience, most = Patience(self.cancelled), 0
        with self.part.open("ab+") as stream:
            digest = self._digest_of_part(stream)
            while stream.tell() < self.file.bytes:
                try:
                    self._append(stream, digest)
                except _StartOver:
                    digest = self._emptied(stream)
                except TryAgainError as failure:
                    self.advanced(f"waiting to go on with {self.file.name}", stream.tell())
                    if stream.tell() > most:
                        most = stream.tell()
                        patience.renew()
                    patience.wait(failure)
            os.fsync(stream.fileno())
        return digest

    def _append(self, stream: BinaryIO, digest: _Digest) -> None:
        """One request's worth of bytes."""
        name, offset = self.file.name, stream.tell()
        with self.client.file(self.model, self.commit, name, offset) as body:
            if len(body.checksum) == len(self.file.identity) and body.checksum != self.file.identity:
                raise SetupError(
                    f"{name} of {self.model} changed on the hub during the download.",
                    "Start it again to get the new one.",
                )
            if body.start != offset:
                raise _StartOver
            for chunk in body.chunks:
                stop_if(self.cancelled)
                stream.write(chunk)
                stream.flush()  # what a killed process leaves is what it had
                digest.update(chunk)
                self.advanced(f"downloading {name}", min(stream.tell(), self.file.bytes))
                if stream.tell() > self.file.bytes:
                    return
        if stream.tell() < self.file.bytes:
            problem = f"The connection ended after {stream.tell():,} of {self.file.bytes:,} bytes of {name}."
            raise TryAgainError(SetupError(problem, "Check the network, then start it again; it goes on there."))

    def _digest_of_part(self, stream: BinaryIO) -> _Digest:
        """Read the part from its start and stand at its end; a part longer than the file is emptied."""
        if stream.seek(0, os.SEEK_END) > self.file.bytes:
            return self._emptied(stream)
        digest = _Digest(self.file)
        stream.seek(0)
        self.advanced(f"checking what is there of {self.file.name}", 0)
        _read_into(digest, stream, self.cancelled)
        return digest

    def _emptied(self, stream: BinaryIO) -> _Digest:
        stream.seek(0)
        stream.truncate()
        return _Digest(self.file)


class _StartOver(Exception):  # noqa: N818  not an error: the server has the file only from its start
    """The part cannot be continued."""


def _read_into(digest: _Digest, stream: BinaryIO, cancelled: Cancelled) -> None:
    while block := stream.read(_BLOCK_BYTES):
        stop_if(cancelled)
        digest.update(block)
