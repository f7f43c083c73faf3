"""The window's question at its first start: set the engine up."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.engine_setup.engine_work import EngineWork
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.widgets.basic.card import CardGround
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import body, title
from burnish_app.widgets.engine.engine_card import EngineCard

_WIDTH_PX = 620


class FirstStart(QWidget):
    """Asks whether to set the engine up, and shows how far that is.

    Args:
        work: the engine's set-up.
        parent: window that it belongs to.

    Attributes:
        done: signal without arguments, emitted when an engine is in use.
    """

    done = Signal()

    def __init__(self, work: EngineWork, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Dialog)
        self.setWindowTitle(tr("Set Burnish up"))
        self.card = EngineCard(work)
        ground = CardGround()
        inner = fill(QVBoxLayout(ground), spacing_px=2 * UNIT, margins_px=GAP_PX)
        inner.addWidget(title(tr("One thing is missing: the engine")))
        inner.addWidget(body(tr("You can look around meanwhile, and close this window: what came is kept."), "muted"))
        inner.addWidget(self.card)
        inner.addStretch(1)
        fill(QVBoxLayout(self), ground)
        self.setMinimumWidth(scaled(_WIDTH_PX))
        self._work = work
        work.switched.connect(self._switched)

    def _switched(self) -> None:
        if self._work.facts.in_use:
            self.done.emit()
            self.close()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Pause the set-up."""
        self._work.pause()
        super().closeEvent(event)
