"""Layout helpers: empties a layout, and makes a line with a name and a fact."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLayout, QWidget

from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.text import body

_NAME_PX = 140


def clear(layout: QLayout) -> None:
    """Remove and destroy everything in a layout."""
    while (item := layout.takeAt(0)) is not None:
        widget, inner = item.widget(), item.layout()
        if widget is not None:
            widget.hide()
            widget.deleteLater()
        elif inner is not None:
            clear(inner)


def fact_line(name: str, text: str, *, hint: str = "", name_px: int = _NAME_PX) -> QWidget:
    """Make a line with a name and, behind it, a fact.

    Args:
        name: name of the fact.
        text: text of the fact.
        hint: tooltip.
        name_px: width of the name's column, device-independent pixels.
    """
    holder = QWidget()
    line = QHBoxLayout(holder)
    line.setContentsMargins(0, 0, 0, 0)
    line.setSpacing(2 * UNIT)
    label = body(name, "muted")
    label.setFixedWidth(name_px)
    line.addWidget(label, alignment=Qt.AlignmentFlag.AlignTop)
    line.addWidget(body(text), 1)
    holder.setToolTip(hint)
    return holder
