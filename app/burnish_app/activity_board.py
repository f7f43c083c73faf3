"""One place for all that is running: each source reports its own, and the time left is estimated where none is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from burnish_app.state.time_left import ShareClock
from burnish_app.wording.activity import Activity


class ActivityBoard(QObject):
    """Gathers what is running from any number of sources.

    Args:
        parent: parent in Qt's object tree.
        clock: function that returns the time, seconds.

    Attributes:
        changed: signal without arguments, emitted after a source reported.
        activities: all that is running, source by source.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(parent)
        self._clock = clock
        self._sources: dict[str, list[Activity]] = {}
        self._left: dict[tuple[str, str, str], ShareClock] = {}
        self.activities: list[Activity] = []

    def put(self, source: str, activities: Sequence[Activity]) -> None:
        """Replace what one source reports.

        Args:
            source: name of the source, such as the key of a page.
            activities: all of its activities; empty: nothing is running.
        """
        self._sources[source] = list(activities)
        found = [one for activities in self._sources.values() for one in activities]
        keys = {one.key for one in found}
        self._left = {key: left for key, left in self._left.items() if key in keys}
        self.activities = [self._timed(one) for one in found]
        self.changed.emit()

    def _timed(self, one: Activity) -> Activity:
        if one.left is not None or one.share is None or not one.moves:
            return one
        left = self._left.setdefault(one.key, ShareClock())
        return replace(one, left=left.note(self._clock(), one.share))
