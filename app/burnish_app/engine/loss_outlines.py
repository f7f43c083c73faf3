"""Reads rough outlines of runs' curves, for small drawings: a few dozen values of each run, in a thread.

The curve is that of the loss; of a run that learns from rewards, whose loss says nothing, it is that of the reward.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from burnish_app.engine.threads import start_thread
from burnish_engine.contract.files import is_file
from burnish_engine.contract.paths import RunPaths

_POINTS = 60
_PIECE_BYTES = 4096
_WHOLE_BYTES = 512 * 1024  # a file of this size is read as a whole
_MARK = b'"type":"step"'
_REWARD = re.compile(rb'"type":"rewards","step":\d+,"reward":(-?\d[^,]*),')


class LossOutlines(QObject):
    """Keeps the outlines of runs, and reads them again when their events have grown.

    Attributes:
        changed: signal without arguments, emitted after outlines were read.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._known: dict[str, tuple[int, tuple[float, ...]]] = {}
        self._thread: threading.Thread | None = None

    def of(self, folder: str) -> tuple[float, ...]:
        """Return the outline of a run; empty while it is unknown."""
        return self._known.get(folder, (0, ()))[1]

    def read(self, folders: Iterable[str]) -> None:
        """Read the outlines of these runs in a thread, unless it still works on the last ones."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = start_thread(self, self._work, tuple(folders), name="loss-outlines")

    def _work(self, folders: tuple[str, ...]) -> None:
        news = False
        for folder in folders:
            events = RunPaths(Path(folder)).events
            try:
                size = events.stat().st_size
                if size != self._known.get(folder, (-1, ()))[0]:
                    self._known[folder] = size, loss_outline(events)
                    news = True
            except (OSError, ValueError):
                continue  # not there yet, or gone
        try:
            if news:
                self.changed.emit()
        except RuntimeError:
            return  # the window is gone


def loss_outline(events: Path) -> tuple[float, ...]:
    """Read a few dozen losses, or rewards, of a run, evenly from its events file, without reading all of a long one.

    Args:
        events: path of the events file.

    Raises:
        OSError: The file cannot be read.
    """
    size = events.stat().st_size
    if not is_file(events):  # a pipe would never end
        return ()
    with events.open("rb") as file:
        if size <= _WHOLE_BYTES:
            content = file.read()
            values = _rewards(content) or list(_losses(content.split(b"\n")))
            return tuple(values[:: max(len(values) // _POINTS, 1)])
        losses, rewards = list[float](), list[float]()
        for number in range(_POINTS):
            file.seek(number * (size - _PIECE_BYTES) // (_POINTS - 1))
            piece = file.read(_PIECE_BYTES)
            rewards += _rewards(piece)[:1]
            losses += islice(_losses(piece.split(b"\n")[1:-1]), 1)
        return tuple(rewards or losses)


def _rewards(content: bytes) -> list[float]:
    """Return the mean rewards that are named in a piece of the events."""
    return [float(reward) for reward in _REWARD.findall(content)]


def _losses(lines: Iterable[bytes]) -> Iterator[float]:
    return (loss for line in lines if (loss := _loss_of(line)) is not None)


def _loss_of(line: bytes) -> float | None:
    if _MARK not in line:
        return None
    try:
        loss = json.loads(line).get("loss")
    except (ValueError, AttributeError):
        return None
    return float(loss) if isinstance(loss, int | float) else None  # text: it is not finite
