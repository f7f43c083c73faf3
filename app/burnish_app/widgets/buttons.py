"""Buttons in the three looks, and rows of widgets."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from burnish_app.theme import BODY_PX, UNIT, font

Slot = Callable[[], object]


def _button(text: str, slot: Slot | None, look: str, *, bold: bool = False) -> QPushButton:
    button = QPushButton(text)
    button.setProperty("look", look)
    button.setFont(font(BODY_PX, bold=bold))
    button.setCursor(Qt.CursorShape.PointingHandCursor)
    button.setAccessibleName(text)
    button.setAutoDefault(False)
    if slot is not None:
        button.clicked.connect(lambda _checked=False: slot())
    return button


def primary(text: str, slot: Slot | None = None) -> QPushButton:
    """The one next action of a page, in the accent."""
    return _button(text, slot, "primary", bold=True)


def secondary(text: str, slot: Slot | None = None) -> QPushButton:
    """Any other action."""
    return _button(text, slot, "secondary")


def quiet(text: str, slot: Slot | None = None) -> QPushButton:
    """An action that reads as a link."""
    return _button(text, slot, "quiet")


def row(*widgets: QWidget | None, spacing_px: int = UNIT) -> QWidget:
    """Widgets side by side without margins; None stands for the space that stretches."""
    holder = QWidget()
    line = QHBoxLayout(holder)
    line.setContentsMargins(0, 0, 0, 0)
    line.setSpacing(spacing_px)
    for widget in widgets:
        if widget is None:
            line.addStretch()
        else:
            line.addWidget(widget)
    return holder
