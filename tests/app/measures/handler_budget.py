"""Measures how long handlers of the window take, against work of a fixed size on the same machine at once."""

import gc
import time

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtGui import QImage, QPainter, QTextDocument

from burnish_app.instrument import HandlerTimes, MeasuredApplication

_YARDS = 11.0
"""A handler may take as long as this many screens of text. One takes about 6 ms where this was set, so these are 64,
which are 32 in the studio: that every event passes through `MeasuredApplication` makes a handler with many events, such
as the making of a page, about twice as slow (41 against 22 ms for the Export page). What people notice are 50 ms."""
_PARAGRAPHS = 30
_ATTEMPTS = 3


def _text_ms():
    """CPU time that this thread takes for a screen of text, laid out, measured and drawn without any event; ms."""
    begun = time.thread_time()
    image = QImage(480, 120, QImage.Format.Format_ARGB32_Premultiplied)
    painter = QPainter(image)
    for number in range(_PARAGRAPHS):
        words = [f"{number}: ", *("a line of words that is long enough to be broken somewhere",) * 3]
        document = QTextDocument()
        document.setPlainText(" ".join(words))
        document.setTextWidth(480)
        heights = {place: document.size().height() + place for place in range(200)}
        painter.drawText(0, int(max(heights.values())) % 120, words[1])
    painter.end()
    return (time.thread_time() - begun) * 1e3


def _yard_ms():
    """The median of several, so that neither a first one nor a neighbor on the same core counts."""
    texts = sorted(_text_ms() for _ in range(5))
    return texts[len(texts) // 2]


class HandlerBudget:
    """Measures the handlers of an application from its making on.

    Args:
        app: A `MeasuredApplication`.
    """

    def __init__(self, app):
        assert isinstance(app, MeasuredApplication), "the test is not marked as measured"
        gc.collect()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)  # the end of earlier tests' windows
        self._yard_ms = _yard_ms()
        app.times = self._times = HandlerTimes()

    def used(self):
        """Return the time of the slowest handler, as a share of the budget, and which it was."""
        times = self._times
        yard_ms = max(self._yard_ms, _yard_ms())
        share = times.slowest_cpu_ms / (_YARDS * yard_ms)
        print(
            f"{len(times.wall_ms):,} handlers: wall p99 {times.wall_p99_ms:.1f} ms, slowest "
            f"{max(times.wall_ms, default=0):.0f} ms; most thread CPU {times.slowest_cpu_ms:.0f} ms "
            f"({times.slowest}), {share:.0%} of the budget (a screen of text takes {yard_ms:.1f} ms)"
        )
        return share, times.slowest


def assert_within_budget(app, scenario):
    """Whatever the scenario does, no handler is over the budget, in the best of a few attempts.

    Neighbors on the same core inflate even thread CPU time now and then; what is slow by itself is so each time.

    Args:
        app: A `MeasuredApplication`.
        scenario: Called with the number of the attempt.
    """
    shares = []
    for attempt in range(_ATTEMPTS):
        budget = HandlerBudget(app)
        scenario(attempt)
        share, slowest = budget.used()
        if share < 1:
            return
        shares.append((share, slowest))
    raise AssertionError(f"over the budget each time: {', '.join(f'{what} {share:.0%}' for share, what in shares)}")
