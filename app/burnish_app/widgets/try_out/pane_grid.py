"""The panes of the page Try it, and the wanted reply beside them, in as many columns as there is room for."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QTextEdit, QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import caption, set_tone
from burnish_app.widgets.try_out.chat_pane import ChatPane

_COLUMNS_PX = (416, 640, 900)  # widths from which two, three and four stand side by side, at 100 % text size
_WANTED_PX = 104  # height of the wanted reply below the panes


class WantedReply(Card):
    """Shows the reply that the data holds."""

    def __init__(self) -> None:
        super().__init__()
        self._text = QTextEdit()
        self._text.setReadOnly(True)
        self._text.setAccessibleName(tr("Wanted reply"))
        self._text.setMinimumHeight(5 * UNIT)
        set_tone(self._text, "plain")
        fill(self.body, caption(tr("Wanted: the reply in the data")), (self._text, 1))
        self.hide()

    @property
    def text(self) -> str:
        """The wanted reply."""
        return self._text.toPlainText()

    def show_reply(self, text: str) -> None:
        """Show a reply; an empty one hides the card."""
        self._text.setPlainText(text)
        self.setVisible(bool(text))


class PaneGrid(QWidget):
    """Arranges the panes that are shown.

    Attributes:
        panes: panes from left to right, hidden ones too.
        wanted: wanted reply, after the panes.
    """

    def __init__(self, panes: list[ChatPane]) -> None:
        super().__init__()
        self.panes, self.wanted = panes, WantedReply()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(2 * UNIT)
        # Else a row of panes would keep the width that it needs, and never become two rows.
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        for card in (*panes, self.wanted):
            self._grid.addWidget(card)  # until then a pane counts as hidden
        self.arrange()

    @property
    def shown(self) -> list[ChatPane]:
        """The panes that are shown, from left to right."""
        return [pane for pane in self.panes if not pane.isHidden()]

    def show_wanted(self, text: str) -> None:
        """Show the wanted reply beside the panes; empty: none."""
        self.wanted.show_reply(text)
        self.arrange()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Arrange the panes for the new width."""
        super().resizeEvent(event)
        self.arrange()

    def arrange(self) -> None:
        """Put what is shown into rows; what is alone in the last row takes all of it."""
        items: list[QWidget] = [*self.shown, *([] if self.wanted.isHidden() else [self.wanted])]
        room = 1 + sum(self.width() >= scaled(least_px) for least_px in _COLUMNS_PX)
        widest, gap = max((item.minimumSizeHint().width() for item in items), default=1), self._grid.spacing()
        columns = max(min(room, (self.width() + gap) // (widest + gap), len(items)), 1)
        for card in (*self.panes, self.wanted):
            self._grid.removeWidget(card)
        for at, item in enumerate(items):
            line, column = divmod(at, columns)
            last = at == len(items) - 1
            self._grid.addWidget(item, line, column, 1, columns - column if last else 1)
        lines = -(-len(items) // columns)
        alone = not self.wanted.isHidden() and len(items) > columns and len(items) % columns == 1
        self.wanted.setMaximumHeight(_WANTED_PX if alone else 16_777_215)
        for column in range(4):
            self._grid.setColumnStretch(column, 1 if column < columns else 0)
        for line in range(3):
            self._grid.setRowStretch(line, 1 if line < lines - alone else 0)
        self._grid.setAlignment(Qt.AlignmentFlag(0))
