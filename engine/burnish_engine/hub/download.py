"""Downloads one file with resume and checksum: the rest of a partial file is requested with Range, then all is hashed.

A partial file is named by the checksum of the whole file. A file that changed on the hub therefore starts over, and an
unchanged one is resumed, from whichever commit it is requested.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.files import cannot_write, replace_with_retry
from burnish_engine.contract.wording.tables import DOWNLOAD_STAGES
from burnish_engine.hub.client import Canceled, HubClient, TransientError, raise_if_canceled
from burnish_engine.hub.files import HubFile

OnAdvance = Callable[[str, int], None]
"""Callback that is given the current activity and the downloaded bytes of the file."""

FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 120.0  # where a hub asks for more, the download ends with an error
_ATTEMPTS = 6  # failures in a row without a new byte
_BLOCK_BYTES = 2**20


class RetryPolicy:
    """Waits between attempts with exponential backoff, until too many failed without progress.

    Args:
        canceled: function that is asked while waiting; True stops the download.
        attempts: number of failures without progress after which the error is raised.
    """

    def __init__(self, canceled: Canceled, attempts: int = _ATTEMPTS) -> None:
        self._canceled = canceled
        self._attempts = attempts
        self._failures = 0

    def reset(self) -> None:
        """Reset the count of failures after progress."""
        self._failures = 0

    def wait(self, failure: TransientError) -> None:
        """Wait before the next attempt.

        Raises:
            BurnishError: The retries are used up; the error is the failure's own.
            StoppedError: The download was canceled.
        """
        self._failures += 1
        pause_s = failure.wait_s if failure.wait_s is not None else FIRST_WAIT_S * 2 ** (self._failures - 1)
        if self._failures >= self._attempts or pause_s > _LONGEST_WAIT_S:
            raise failure.problem from None
        until = time.monotonic() + pause_s
        while (left := until - time.monotonic()) > 0:
            raise_if_canceled(self._canceled)
            time.sleep(min(left, 0.1))


class _Digest:
    """The running checksums of a file: SHA-256, and git's SHA-1 where the hub identifies the file by it."""

    def __init__(self, file: HubFile) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._git = None if file.lfs else hashlib.sha1(b"blob %d\0" % file.bytes, usedforsecurity=False)

    def update(self, data: bytes) -> None:
        self._sha256.update(data)
        if self._git:
            self._git.update(data)

    def matches(self) -> bool:
        """Whether the checksum is the one that the hub announced."""
        return self._file.identity == (self._git or self._sha256).hexdigest()

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes so far."""
        return self._sha256.hexdigest()


def part_path(folder: Path, file: HubFile) -> Path:
    """Return the path of a file's partial download."""
    return folder / f"{file.identity}.part"


def sha256_if_whole(path: Path, file: HubFile, canceled: Canceled) -> str:
    """Return the SHA-256 of a downloaded file; empty where it is missing or differs from the hub's.

    Raises:
        StoppedError: The download was canceled.
    """
    if not path.is_file() or path.stat().st_size != file.bytes:
        return ""
    digest = _Digest(file)
    with path.open("rb") as stream:
        _read_into(digest, stream, canceled)
    return digest.sha256 if digest.matches() else ""


@dataclass(frozen=True)
class FileDownload:
    """The download of one file of a model.

    Attributes:
        client: client of the hub.
        model: name of the model.
        commit: commit that the file is taken from.
        file: file to download.
        part: path of the partial download, on the volume of the target.
        on_advance: callback for progress.
        canceled: function that is asked between chunks; True stops the download.
    """

    client: HubClient
    model: str
    commit: str
    file: HubFile
    part: Path
    on_advance: OnAdvance
    canceled: Canceled

    def run(self, target: Path) -> str:
        """Download the file, or the rest of its part, check it, and move it to `target`.

        Returns:
            SHA-256 of the file.

        Raises:
            SetupError: The bytes are not the ones that the hub announced, or the hub could not be reached.
            StoppedError: The download was canceled; the part stays.
            NoSpaceError: The file could not be written; the part stays.
        """
        try:
            resumed = self.part.exists() and self.part.stat().st_size > 0
            digest = self._get()
            if (
                not digest.matches() and resumed
            ):  # the part may have been damaged, so download it once more from the start
                self.part.unlink()
                digest = self._get()
            if not digest.matches():
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
        """Append to the part until it is as long as the file, and return the checksums of the whole."""
        retries, most = RetryPolicy(self.canceled), 0
        with self.part.open("ab+") as stream:
            digest = self._digest_of_part(stream)
            while stream.tell() < self.file.bytes:
                try:
                    self._append(stream, digest)
                except _StartOver:
                    digest = self._emptied(stream)
                except TransientError as failure:
                    self.on_advance(DOWNLOAD_STAGES["resume"].format(name=self.file.name), stream.tell())
                    if stream.tell() > most:
                        most = stream.tell()
                        retries.reset()
                    retries.wait(failure)
            os.fsync(stream.fileno())
        return digest

    def _append(self, stream: BinaryIO, digest: _Digest) -> None:
        """Append the bytes of one request to the part."""
        name, offset = self.file.name, stream.tell()
        with self.client.file(self.model, self.commit, name, offset) as body:
            if len(body.checksum) == len(self.file.identity) and body.checksum != self.file.identity:
                raise SetupError(
                    f"{name} of {self.model} changed on the hub during the download.",
                    "Start it again to get the new one.",
                )
            if body.start != offset:
                if not offset:
                    raise self._other_range(body.start)
                raise _StartOver
            for chunk in body.chunks:
                raise_if_canceled(self.canceled)
                stream.write(chunk)
                stream.flush()  # so that a killed process leaves all that it had
                digest.update(chunk)
                self.on_advance(DOWNLOAD_STAGES["fetch"].format(name=name), min(stream.tell(), self.file.bytes))
                if stream.tell() > self.file.bytes:
                    return
        if stream.tell() < self.file.bytes:
            problem = f"The connection ended after {stream.tell():,} of {self.file.bytes:,} bytes of {name}."
            raise TransientError(SetupError(problem, "Check the network, then start it again; it continues there."))

    def _other_range(self, start: int) -> SetupError:
        return SetupError(
            f"{self.client.host} sent {self.file.name} of {self.model} from byte {start:,} on, and was asked for the "
            "whole file.",
            "Check HF_ENDPOINT, and whether a proxy stands in the way; then start it again.",
        )

    def _digest_of_part(self, stream: BinaryIO) -> _Digest:
        """Hash the part and leave the stream at its end; a part longer than the file is emptied."""
        if stream.seek(0, os.SEEK_END) > self.file.bytes:
            return self._emptied(stream)
        digest = _Digest(self.file)
        stream.seek(0)
        self.on_advance(DOWNLOAD_STAGES["check_part"].format(name=self.file.name), 0)
        _read_into(digest, stream, self.canceled)
        return digest

    def _emptied(self, stream: BinaryIO) -> _Digest:
        stream.seek(0)
        stream.truncate()
        return _Digest(self.file)


class _StartOver(Exception):  # noqa: N818  not an error: the server has the file only from its start
    """The part cannot be continued."""


def _read_into(digest: _Digest, stream: BinaryIO, canceled: Canceled) -> None:
    while block := stream.read(_BLOCK_BYTES):
        raise_if_canceled(canceled)
        digest.update(block)
