"""One recent run in two lines; a press opens it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.item_models.runs import moment_text
from burnish_app.look.language import tr
from burnish_app.look.tokens import RING_PX, SMALL_PX, UNIT
from burnish_app.widgets.basic.buttons import link
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.pill import Pill
from burnish_app.widgets.basic.text import ElidedLabel, caption
from burnish_app.wording.activity import run_title
from burnish_app.wording.plain_words import model_name
from burnish_app.wording.run_text import RUN_STATUS_TEXT, RUN_TONES
from burnish_engine.contract.serve.replies import RunSummary

_PADDING_PX = 2 * 8  # inner space and frame of a quiet button


class RecentRun(QWidget):
    """Shows name, status, model, steps and time of a run.

    Args:
        run: summary of the run.

    Attributes:
        opened: signal with the folder of the run.
        parts: what stands right of the name: the status and the time.
    """

    opened = Signal(str)

    def __init__(self, run: RunSummary) -> None:
        super().__init__()
        self._title = run_title(run)
        self.name = link(self._title, lambda: self.opened.emit(run.folder))
        self.name.setAccessibleName(self._title)
        self.name.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        facts = ElidedLabel(run_facts(run), Qt.TextElideMode.ElideMiddle, SMALL_PX, tone="muted")
        facts.setContentsMargins(RING_PX, 0, 0, 0)  # below the text of the button
        pill = Pill()
        pill.set(RUN_STATUS_TEXT[run.standing], RUN_TONES.get(run.standing, "plain"))
        when = caption(moment_text(run.state.created, time.time()))
        when.setWordWrap(False)
        when.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        marked = QWidget()
        fill(QHBoxLayout(marked), (pill, 0, Qt.AlignmentFlag.AlignLeft))
        self._words = QWidget()
        fill(QVBoxLayout(self._words), (self.name, 0, Qt.AlignmentFlag.AlignLeft), facts, spacing_px=0)
        fill(QHBoxLayout(self), (self._words, 1), marked, when, spacing_px=2 * UNIT)
        self.parts: tuple[QWidget, ...] = (marked, when)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Shorten the name to its room; the tooltip has all of it."""
        super().resizeEvent(event)
        room = self._words.width() - _PADDING_PX
        shown = self.name.fontMetrics().elidedText(self._title, Qt.TextElideMode.ElideMiddle, room)
        if shown != self.name.text():
            self.name.setText(shown)
            self.name.setToolTip("" if shown == self._title else self._title)


def line_up(lines: Sequence[RecentRun]) -> None:
    """Make the statuses and the times of lines under each other as wide as the widest, so that they are columns."""
    for column in zip(*(line.parts for line in lines), strict=True):
        width = max(part.sizeHint().width() for part in column)
        for part in column:
            part.setMinimumWidth(width)


def run_facts(run: RunSummary) -> str:
    """Return the model, by the last part of its name, and the steps."""
    steps = ""
    if run.state.total_steps:
        steps = tr("{step} of {total} steps").format(step=f"{run.state.step:,}", total=f"{run.state.total_steps:,}")
    return "  ·  ".join(part for part in (model_name(run.model), steps) if part)
