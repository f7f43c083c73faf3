"""Makes buttons of three kinds (primary, secondary, quiet) and rows of widgets."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from burnish_app.look.theme import BODY_PX, UNIT, font

Slot = Callable[[], object]


def _button(text: str, slot: Slot | None, tone: str, *, bold: bool = False) -> QPushButton:
    button = QPushButton(text)
    button.setProperty("look", tone)
    button.setFont(font(BODY_PX, bold=bold))
    button.setCursor(Qt.CursorShape.PointingHandCursor)
    button.setAccessibleName(text)
    button.setAutoDefault(False)
    if slot is not None:
        button.clicked.connect(lambda _checked=False: slot())
    return button


def primary(text: str, slot: Slot | None = None) -> QPushButton:
    """Make a primary button: the one next action of a page, in the accent color."""
    return _button(text, slot, "primary", bold=True)


def secondary(text: str, slot: Slot | None = None) -> QPushButton:
    """Make a secondary button, for any other action."""
    return _button(text, slot, "secondary")


def quiet(text: str, slot: Slot | None = None) -> QPushButton:
    """Make a quiet button, which reads as a link."""
    return _button(text, slot, "quiet")


def row(*widgets: QWidget | None, spacing_px: int = UNIT) -> QWidget:
    """Put widgets side by side without margins; None stands for a stretch."""
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
