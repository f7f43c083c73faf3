"""The head of a table: headings wrap where their columns are narrow, and the head grows with them."""

from __future__ import annotations

import re

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QHeaderView, QStyleOptionHeader, QWidget

_MOST_LINES = 3
_PART = re.compile(r"[^ -]*(?:-|[ ]+|$)")
"""Part of a heading that stays on one line: a word with its hyphen or with the spaces behind it."""


class WrappingHead(QHeaderView):
    """A horizontal header that wraps its headings at spaces and hyphens. What has more than three lines is shortened.

    Args:
        parent: table.
    """

    def __init__(self, parent: QWidget) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.setSectionsClickable(True)
        self.setMinimumSectionSize(1)

    def whole_px(self, column: int) -> int:
        """Return the width in which a heading needs no further line, device-independent pixels."""
        return self.sectionSizeFromContents(column).width()

    def least_px(self, column: int) -> int:
        """Return the least width in which no part of a heading is cut, device-independent pixels."""
        parts = _PART.findall(self._text(column).replace("\n", " "))
        return self._around(column) + max(_width_px(part, self.fontMetrics()) for part in parts)

    def needed_px(self) -> int:
        """Return the height for all headings at the present widths, device-independent pixels."""
        shown = [column for column in range(self.count()) if not self.isSectionHidden(column)]
        return max((self._height(column) for column in shown), default=0)

    def initStyleOptionForIndex(self, option: QStyleOptionHeader, column: int) -> None:
        """Put the lines of a heading in place of its text."""
        super().initStyleOptionForIndex(option, column)
        option.text = "\n".join(self._lines(column))

    def _text(self, column: int) -> str:
        return str(self.model().headerData(column, Qt.Orientation.Horizontal) or "")

    def _around(self, column: int) -> int:
        """Return what a section has beside its text: padding, and a picture where there is one."""
        return self.whole_px(column) - self.fontMetrics().size(0, self._text(column)).width()

    def _lines(self, column: int) -> list[str]:
        room_px = self.sectionSize(column) - self._around(column)
        return wrapped(self._text(column), self.fontMetrics(), room_px)

    def _height(self, column: int) -> int:
        metrics, text = self.fontMetrics(), self._text(column)
        around = self.sectionSizeFromContents(column).height() - metrics.size(0, text).height()
        return around + metrics.size(0, "\n".join(self._lines(column))).height()


def wrapped(text: str, metrics: QFontMetrics, room_px: int) -> list[str]:
    """Return a heading as lines.

    Args:
        text: heading, which may have lines of its own.
        metrics: metrics of its font.
        room_px: width of a line, device-independent pixels.

    Returns:
        Up to three lines; one that still finds no room is shortened in its middle, as names differ at their ends.
    """
    lines: list[str] = []
    for own in text.split("\n"):
        line = ""
        for part in _PART.findall(own):
            if line and _width_px(line + part, metrics) > room_px:
                lines.append(line.rstrip())
                line = ""
            line += part
        lines.append(line.rstrip())
    lines[_MOST_LINES - 1 :] = [" ".join(lines[_MOST_LINES - 1 :])] if len(lines) >= _MOST_LINES else []
    return [metrics.elidedText(line, Qt.TextElideMode.ElideMiddle, max(room_px, 0)) for line in lines]


def _width_px(text: str, metrics: QFontMetrics) -> int:
    """Return the width of a text, rounded up: what is cut goes by fractions, which `horizontalAdvance` drops."""
    return metrics.size(0, text.rstrip()).width()
