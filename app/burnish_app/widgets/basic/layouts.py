"""Layout helpers: empties a layout, and makes a line with a name and a fact."""

from __future__ import annotations

from collections.abc import Iterable

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


def lay_out_now(widgets: Iterable[QWidget]) -> None:
    """Lay widgets out, each after what is in it, where one of them changed; else it would take an event for each level.

    Args:
        widgets: widgets from the innermost to the outermost.
    """
    for widget in widgets:
        layout = widget.layout()
        if layout is not None:
            layout.activate()


class FactLine(QWidget):
    """A line with a name and, behind it, a fact that can change.

    Args:
        name: name of the fact.
        text: text of the fact.
        name_px: width of the name's column, device-independent pixels.
    """

    def __init__(self, name: str, text: str = "", *, name_px: int = _NAME_PX) -> None:
        super().__init__()
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(2 * UNIT)
        label = body(name, "muted")
        label.setFixedWidth(name_px)
        self._text = body(text)
        line.addWidget(label, alignment=Qt.AlignmentFlag.AlignTop)
        line.addWidget(self._text, 1)

    def set_text(self, text: str) -> None:
        """Replace the fact."""
        if self._text.text() != text:
            self._text.setText(text)


def fact_line(name: str, text: str, *, hint: str = "", name_px: int = _NAME_PX) -> QWidget:
    """Make a line with a name and, behind it, a fact.

    Args:
        name: name of the fact.
        text: text of the fact.
        hint: tooltip.
        name_px: width of the name's column, device-independent pixels.
    """
    holder = FactLine(name, text, name_px=name_px)
    holder.setToolTip(hint)
    return holder
