"""One line about a recent run; a press opens it."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from burnish_app.item_models.runs import moment_text, steps_text
from burnish_app.look.tokens import SMALL_PX, UNIT
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.pill import Pill
from burnish_app.widgets.basic.text import ElidedLabel, caption
from burnish_app.wording.activity import run_title
from burnish_app.wording.run_text import RUN_STATUS_TEXT, RUN_TONES
from burnish_engine.contract.serve.replies import RunSummary

_NAME_PX, _PILL_PX = 152, 96


class RecentRun(QWidget):
    """Shows name, status, model and time of a run.

    Args:
        run: summary of the run.

    Attributes:
        opened: signal with the folder of the run.
    """

    opened = Signal(str)

    def __init__(self, run: RunSummary) -> None:
        super().__init__()
        name = quiet(run_title(run), lambda: self.opened.emit(run.folder))
        pill = Pill()
        words = "  ·  ".join(part for part in (run.model, steps_text(run)) if part)
        facts = ElidedLabel(words, Qt.TextElideMode.ElideRight, SMALL_PX, tone="muted")
        when = caption(moment_text(run.state.created, time.time()))
        when.setWordWrap(False)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(2 * UNIT)
        named, marked = QWidget(), QWidget()
        for holder, inner, width in ((named, name, _NAME_PX), (marked, pill, _PILL_PX)):
            around = QHBoxLayout(holder)
            around.setContentsMargins(0, 0, 0, 0)
            around.addWidget(inner, alignment=Qt.AlignmentFlag.AlignLeft)
            holder.setMinimumWidth(width)
            line.addWidget(holder)
        pill.set(RUN_STATUS_TEXT[run.standing], RUN_TONES.get(run.standing, "plain"))
        line.addWidget(facts, 1)
        line.addWidget(when)
