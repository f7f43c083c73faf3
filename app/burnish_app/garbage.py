"""Collects cyclic garbage in the window's thread, between events, and nowhere else.

Python by itself collects wherever an allocation happens to be one too many: in a thread that parses lines, or in a
virtual method that Qt calls while it goes through all widgets, as a change of the style sheet does. Widgets in cycles
are destroyed then (those that another thread found at the next Python instruction of the window's), and Qt continues
with pointers to nothing.
"""

from __future__ import annotations

import gc

from PySide6.QtCore import QObject, QTimer

_EVERY_MS = 500


class GarbageCollector(QObject):
    """Collects garbage in place of Python, until it is stopped. It must be made in the window's thread.

    Args:
        parent: parent in Qt's object tree.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        gc.disable()
        self._timer = QTimer(self, interval=_EVERY_MS)
        self._timer.setObjectName("collect")
        self._timer.timeout.connect(self.collect)

    def start(self) -> None:
        """Start collecting. Before that nothing is collected: the imports of the start would be walked in vain."""
        self._timer.start()

    def freeze_and_start(self) -> None:
        """Exclude all present objects, most of which stay for good (a walk takes some 50 ms), and start collecting."""
        gc.freeze()
        self.start()

    def stop(self) -> None:
        """Collect everything, then let Python collect again."""
        self._timer.stop()
        gc.collect()
        gc.enable()

    def collect(self) -> None:
        """Collect the oldest generation that is beyond its threshold, if there is one."""
        grown = [count > limit > 0 for count, limit in zip(gc.get_count(), gc.get_threshold(), strict=True)]
        if any(grown):
            gc.collect(max(generation for generation, is_due in enumerate(grown) if is_due))
