"""Cards (surfaces with a heading), icons, and the empty state of a page or card."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QFrame, QLabel, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.look.icons import pixmap
from burnish_app.look.theme import UNIT, colors_of
from burnish_app.widgets.basic.buttons import Slot, secondary
from burnish_app.widgets.basic.text import body, caption, heading
from burnish_app.widgets.basic.wrapping import FlowLayout


class Card(QFrame):
    """A surface that groups the widgets of one topic.

    Args:
        heading_text: heading of the card; empty: none.
        hint: small text under the heading; empty: none.

    Attributes:
        body: layout for the content.
        corner: layout at the right of the heading, for small actions or a status.
    """

    def __init__(self, heading_text: str = "", hint: str = "") -> None:
        super().__init__()
        self.setProperty("look", "card")
        self.setAccessibleName(heading_text)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(2 * UNIT, 2 * UNIT, 2 * UNIT, 2 * UNIT)
        outer.setSpacing(UNIT)
        self.corner = FlowLayout()
        self._heading_label = heading(heading_text)
        if heading_text:
            top = FlowLayout()
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
        """Replace the heading of a card that was made with one."""
        self._heading_label.setText(text)
        self.setAccessibleName(text)


class IconLabel(QLabel):
    """An icon whose color follows the theme.

    Args:
        name: file name in `assets/icons` without its ending.
        size_px: edge length, device-independent pixels.
        color: name of a color of `theme.Colors`.
    """

    def __init__(self, name: str, size_px: int = 20, color: str = "muted") -> None:
        super().__init__()
        self._name, self._size_px, self._color = name, size_px, color
        self.setFixedSize(size_px, size_px)
        self._draw()

    def changeEvent(self, event: QEvent) -> None:
        """Redraw the icon when the palette changes."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._draw()

    def _draw(self) -> None:
        color = getattr(colors_of(self), self._color)
        self.setPixmap(pixmap(self._name, color, self._size_px, pixel_ratio=self.devicePixelRatioF()))


class EmptyState(QWidget):
    """The placeholder of an empty page or card: an icon, a sentence, and a button that leads on.

    Args:
        icon_name: file name in `assets/icons` without its ending.
        text: sentence that says what is missing.
        action: text of the button; empty: none.
        slot: function that the button calls.
        detail: second, smaller sentence; empty: none.
    """

    def __init__(
        self, icon_name: str, text: str, action: str = "", slot: Slot | None = None, *, detail: str = ""
    ) -> None:
        super().__init__()
        column = QVBoxLayout(self)
        column.setContentsMargins(3 * UNIT, 5 * UNIT, 3 * UNIT, 5 * UNIT)
        column.setSpacing(2 * UNIT)
        center = Qt.AlignmentFlag.AlignHCenter
        column.addWidget(IconLabel(icon_name, 40, "faint"), alignment=center)
        for label in (body(text), caption(detail)):
            label.setAlignment(center)
            column.addWidget(label)  # first: shown without a parent it would be a window
            label.setVisible(bool(label.text()))
        if action:
            column.addWidget(secondary(action, slot), alignment=center)
