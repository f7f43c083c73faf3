"""A process that works through the queue of downloads (`burnish models downloads --work`) and ends when it is empty."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from burnish_engine.advise.facts.catalog import find_model
from burnish_engine.contract.errors import BurnishError, StoppedError
from burnish_engine.contract.facts.downloads import Download
from burnish_engine.contract.wording.tables import DOWNLOAD_STAGES, recognize
from burnish_engine.hub.download_queue import (
    download_log,
    has_token,
    is_listed,
    next_download,
    slot_locks,
    take_next,
    update_own,
)
from burnish_engine.hub.fetch import discard, fetch

_REPORT_EVERY_S = 0.5
_SPEED_OVER_S = 5.0
_WAIT_S = 0.5
_RECEIVING = {"fetch": DOWNLOAD_STAGES["fetch"]}
"""The stage whose bytes come from the hub and count for the speed."""


def work_through() -> int:
    """Carry out downloads, one after another, until none is left for this process.

    A process without an access token ends where others already do the work; one with a token waits for its turn, as
    nobody else has it.

    Returns:
        Number of downloads that were begun.
    """
    slot = _take_slot()
    if slot is None:
        return 0
    begun = 0
    try:
        while (entry := take_next()) is not None:
            begun += 1
            _download(entry)
    finally:
        slot.release()
    return begun


def _take_slot() -> FileLock | None:
    locks = slot_locks()
    while True:
        for lock in locks:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            return lock
        if not has_token() or next_download(with_token=True) is None:
            return None
        time.sleep(_WAIT_S)


def _download(entry: Download) -> None:
    report = _Report(entry.name)
    try:
        _fetch(entry, report)
    except StoppedError:
        if not is_listed(entry.name):
            with suppress(StoppedError):
                discard(entry.name)
    except BurnishError as error:
        update_own(entry.name, status="failed", what="", bytes_per_s=0.0, message=error.what, remedy=error.remedy)
    except Exception as error:
        update_own(entry.name, status="failed", what="", bytes_per_s=0.0,
                   message=f"This is a bug in Burnish: {type(error).__name__}.",
                   remedy=f"Where it happened is in {download_log()}: please report it.")  # fmt: skip
        raise


def _fetch(entry: Download, report: _Report) -> Path:
    folder = fetch(
        entry.name,
        progress=report.progress,
        canceled=report.is_unwanted,
        catalog_entry=find_model(entry.name),
    )
    update_own(entry.name, status="finished", what="", bytes_per_s=0.0, done=report.total, total=report.total)
    return folder


class _Report:
    """Writes the progress of a download into the queue, and learns there whether it is still wanted.

    Args:
        name: name of the model.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._what, self._done, self.total = "", 0, 0
        self._wanted = True
        self._next_s = 0.0
        self._received: deque[tuple[float, int]] = deque()

    def progress(self, what: str, done: int, total: int) -> None:
        """Keep what is done; a file that is only checked adds no speed."""
        now = time.monotonic()
        self._what, self._done, self.total = what, done, total or self.total
        if recognize(what, _RECEIVING) is None:
            self._received.clear()
        else:
            self._received.append((now, done))
            while now - self._received[0][0] > _SPEED_OVER_S:
                self._received.popleft()
        self._write(now)

    def is_unwanted(self) -> bool:
        """Whether the download shall stop: it was paused or taken out of the queue."""
        self._write(time.monotonic())
        return not self._wanted

    @property
    def bytes_per_s(self) -> float:
        """Speed of the last seconds."""
        if len(self._received) < 2:
            return 0.0
        (since, before), (now, done) = self._received[0], self._received[-1]
        return (done - before) / (now - since) if now > since else 0.0

    def _write(self, now: float) -> None:
        if self._wanted and now >= self._next_s:
            self._next_s = now + _REPORT_EVERY_S
            known = {"done": self._done, "total": self.total} if self.total else {}
            self._wanted = update_own(self._name, what=self._what, bytes_per_s=self.bytes_per_s, **known)
