"""Clicks in a real window, counted and timed."""

import time

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

LIMIT_S = 3600


class Clicks:
    """Clicks as a person does, but each as soon as it can, and notes when.

    Attributes:
        count: clicks so far.
        begun: the clock's time from which moments are counted.
    """

    def __init__(self):
        self.count, self.begun = 0, time.monotonic()

    def wait(self, condition):
        """Handle events until a condition holds."""
        end = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > end:
                raise SystemExit("It took too long.")
            QTest.qWait(20)

    def click(self, widget, what, pos=None):
        """Click a widget once it is visible and enabled, and note it.

        Args:
            widget: the widget.
            what: what it is, for the note.
            pos: function that returns the point in the widget then; None: its middle.
        """
        self.wait(lambda: widget.isVisible() and widget.isEnabled())
        QTest.mouseClick(widget, Qt.MouseButton.LeftButton, pos=pos() if pos else widget.rect().center())
        self.count += 1
        self.note(what)

    def note(self, what):
        """Print a moment."""
        print(f"{time.monotonic() - self.begun:7.1f} s  {self.count:2} clicks  {what}", flush=True)
