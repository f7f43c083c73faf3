"""Surfaces: a card with a heading, and what a page shows while it has nothing."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QFrame, QLabel, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.icons import pixmap
from burnish_app.theme import UNIT, colors_of
from burnish_app.widgets.buttons import Slot, secondary
from burnish_app.widgets.text import body, caption, heading
from burnish_app.widgets.wrapping import Flow


class Card(QFrame):
    """A quiet surface that holds one matter.

    Args:
        heading_text: Its heading; empty: none.
        hint: Small text under the heading.

    Attributes:
        body: Layout for the content.
        corner: Layout at the right of the heading, for a small action or state.
    """

    def __init__(self, heading_text: str = "", hint: str = "") -> None:
        super().__init__()
        self.setProperty("look", "card")
        self.setAccessibleName(heading_text)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(2 * UNIT, 2 * UNIT, 2 * UNIT, 2 * UNIT)
        outer.setSpacing(UNIT)
        self.corner = Flow()
        self._heading_label = heading(heading_text)
        if heading_text:
            top = Flow()
            self._heading_label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
            top.addWidget(self._heading_label)
            top.add_layout(self.corner)
            outer.addLayout(top)
        if hint:
            outer.addWidget(caption(hint))
        self.body = QVBoxLayout()
        self.body.setSpacing(UNIT)
        outer.addLayout(self.body)

    def set_heading(self, text: str) -> None:
        """Show another heading (on a card that was made with one)."""
        self._heading_label.setText(text)
        self.setAccessibleName(text)


class IconLabel(QLabel):
    """An icon that follows the theme.

    Args:
        name: File name in `assets/icons` without its ending.
        size_px: Edge, device-independent pixels.
        color: Name of a color of `theme.Colors`.
    """

    def __init__(self, name: str, size_px: int = 20, color: str = "muted") -> None:
        super().__init__()
        self._name, self._size_px, self._color = name, size_px, color
        self.setFixedSize(size_px, size_px)
        self._draw()

    def changeEvent(self, event: QEvent) -> None:
        """Draw again in the colors of the new palette."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._draw()

    def _draw(self) -> None:
        color = getattr(colors_of(self), self._color)
        self.setPixmap(pixmap(self._name, color, self._size_px, pixel_ratio=self.devicePixelRatioF()))


class EmptyState(QWidget):
    """What a page or a card shows while there is nothing: an icon, a sentence, and the way on.

    Args:
        icon_name: File name in `assets/icons` without its ending.
        words: What is missing, in a sentence.
        action: Text of a button; empty: none.
        slot: What the button does.
        detail: A second, smaller sentence.
    """

    def __init__(
        self, icon_name: str, words: str, action: str = "", slot: Slot | None = None, *, detail: str = ""
    ) -> None:
        super().__init__()
        column = QVBoxLayout(self)
        column.setContentsMargins(3 * UNIT, 5 * UNIT, 3 * UNIT, 5 * UNIT)
        column.setSpacing(2 * UNIT)
        center = Qt.AlignmentFlag.AlignHCenter
        column.addWidget(IconLabel(icon_name, 40, "faint"), alignment=center)
        for label in (body(words), caption(detail)):
            label.setAlignment(center)
            column.addWidget(label)  # first: shown without a parent it would be a window
            label.setVisible(bool(label.text()))
        if action:
            column.addWidget(secondary(action, slot), alignment=center)
