"""Helpers for layouts: one fills a layout, one empties it, and one lays widgets out at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLayout, QWidget

_Layout = TypeVar("_Layout", bound=QLayout)
_Item = QWidget | QLayout
_Part = _Item | tuple[_Item, int] | tuple[_Item, int, Qt.AlignmentFlag] | int | None


def fill(
    layout: _Layout,
    *parts: _Part,
    spacing_px: int | None = None,
    margins_px: int | tuple[int, int, int, int] = 0,
) -> _Layout:
    """Set a layout's margins and spacing, add parts to it, and return it.

    Args:
        layout: box layout or layout of `widgets.basic.wrapping`; only a box layout takes more than widgets and layouts.
        parts: widgets and layouts in order, each alone or as (item, stretch factor[, alignment]); a number for a gap of
            so many device-independent pixels; None for a stretch of factor 1.
        spacing_px: space between the parts, device-independent pixels; None: the layout's own.
        margins_px: space at each side, or at the left, top, right and bottom, device-independent pixels.
    """
    layout.setContentsMargins(*((margins_px,) * 4 if isinstance(margins_px, int) else margins_px))
    if spacing_px is not None:
        layout.setSpacing(spacing_px)
    adding: Any = layout  # QLayout declares no addLayout
    for part in parts:
        if part is None:
            adding.addStretch(1)
        elif isinstance(part, int):
            adding.addSpacing(part)
        else:
            item, *how = part if isinstance(part, tuple) else (part,)
            (adding.addLayout if isinstance(item, QLayout) else adding.addWidget)(item, *how)
    return layout


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
