"""A place for cards beside the column of a wide page, where they are always in view."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout

from burnish_app.look.tokens import GAP_PX, MARGIN_PX, SCROLL_BAR_PX, UNIT
from burnish_app.widgets.basic.card import CardGround

_WIDTH_PX, _FROM_PX = 372, 960  # width; least width of a page that has it beside its column


class SideColumn(QScrollArea):
    """Holds cards beside the column on wide pages, and at the column's top on narrow ones.

    Attributes:
        moved: signal with whether the cards are beside the column now.
        column: layout for the cards.
        on_top: layout of the place at the column's top, which the page puts there.
    """

    moved = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.column, self.on_top = QVBoxLayout(), QVBoxLayout()
        self.column.setSpacing(GAP_PX)
        self._content = CardGround()
        self._ground = QVBoxLayout(self._content)
        self._ground.addLayout(self.column)
        self._ground.addStretch(1)
        self._is_beside: bool | None = None
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFixedWidth(_WIDTH_PX)
        self.verticalScrollBar().rangeChanged.connect(self._fit)
        self.hide()

    @property
    def is_beside(self) -> bool:
        """Whether the cards are beside the column, not at its top."""
        return bool(self._is_beside)

    def place(self, page_px: int) -> None:
        """Put the cards where there is room for them.

        Args:
            page_px: width of the page, device-independent pixels.
        """
        beside = page_px >= _FROM_PX
        if self._is_beside == beside:
            return
        self._is_beside = beside
        if beside:
            self.on_top.removeWidget(self._content)
            self.setWidget(self._content)
        else:
            self.takeWidget()
            self.on_top.addWidget(self._content)
        self._fit()
        self.setVisible(beside)
        self._content.show()
        self.moved.emit(beside)

    def _fit(self) -> None:
        """Let the cards beside the column end above the foot's last button, with a scroll bar and without."""
        if self._is_beside:
            scrolls = self.verticalScrollBar().maximum() > 0
            right = MARGIN_PX if scrolls else MARGIN_PX + SCROLL_BAR_PX
            self._ground.setContentsMargins(UNIT, MARGIN_PX, right, MARGIN_PX)
        else:
            self._ground.setContentsMargins(0, 0, 0, 0)
