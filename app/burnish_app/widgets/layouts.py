"""Small helpers for layouts: emptying one, and a line of a fact with its name."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLayout, QWidget

from burnish_app.theme import UNIT
from burnish_app.widgets.text import body

_NAME_PX = 140


def clear(layout: QLayout) -> None:
    """Take everything out of a layout and destroy it."""
    while (item := layout.takeAt(0)) is not None:
        widget, inner = item.widget(), item.layout()
        if widget is not None:
            widget.hide()
            widget.deleteLater()
        elif inner is not None:
            clear(inner)


def fact_line(name: str, words: str, *, hint: str = "", name_px: int = _NAME_PX) -> QWidget:
    """A fact in words behind its name.

    Args:
        name: What it is.
        words: The fact.
        hint: Shown on hover.
        name_px: Width of the name's column.
    """
    holder = QWidget()
    line = QHBoxLayout(holder)
    line.setContentsMargins(0, 0, 0, 0)
    line.setSpacing(2 * UNIT)
    label = body(name, "muted")
    label.setFixedWidth(name_px)
    line.addWidget(label, alignment=Qt.AlignmentFlag.AlignTop)
    line.addWidget(body(words), 1)
    holder.setToolTip(hint)
    return holder
