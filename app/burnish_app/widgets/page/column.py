"""The content column: its width, and lines in it that wrap once there is less room."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from burnish_app.look.fonts import scaled_width
from burnish_app.widgets.basic.layouts import fill

COLUMN_PX = 1720
"""Maximum width of the content column, the same on all pages, so that the title stays in its place."""
STRETCH = 1000
"""Stretch of the column against that of the margins beside it."""


def put_in_the_middle(holder: QWidget, inner: QWidget, right_px: int = 0) -> None:
    """Give a widget the width of the content column, in the middle of another.

    Args:
        holder: widget as wide as the page.
        inner: widget to put into it.
        right_px: margin at the right, device-independent pixels.
    """
    inner.setMaximumWidth(COLUMN_PX)
    line = fill(QHBoxLayout(holder), margins_px=(0, 0, right_px, 0))
    line.addStretch()
    line.addWidget(inner, STRETCH)
    line.addStretch()


def set_line(label: QLabel, text: str, width_px: int) -> None:
    """Set the text of a line that keeps its place until there is less room than a width; empty: hide it."""
    label.setText(text)
    label.setMinimumWidth(min(label.fontMetrics().horizontalAdvance(text), scaled_width(width_px)))
    label.setVisible(bool(text))
