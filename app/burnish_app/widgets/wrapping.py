"""Layouts that go on in another line where the window is narrow, instead of growing beyond it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QWidget

from burnish_app.theme import UNIT


class _Wrapping(QLayout):
    """Holds items; what comes of it says where they go in a given width.

    Args:
        spacing_px: Between items of a line.
        line_px: Between lines.
    """

    _centers = False  # whether lines stand in the middle of more height than they need

    def __init__(self, spacing_px: int, line_px: int) -> None:
        super().__init__()
        self._items: list[QLayoutItem] = []
        self._heights: dict[int, int] = {}  # by width, until something changes: Qt asks over and over
        self._least: QSize | None = None
        self._line_px = line_px
        self.setContentsMargins(0, 0, 0, 0)
        self.setSpacing(spacing_px)

    @abstractmethod
    def _lines(self, items: Sequence[QLayoutItem], width: int) -> list[list[tuple[QLayoutItem, int, int]]]:
        """Items by line, each with its left edge and its width."""

    def addItem(self, item: QLayoutItem) -> None:
        """Take an item; `addWidget` calls it."""
        self._items.append(item)

    def add_layout(self, layout: QLayout) -> None:
        """Take a layout as one item."""
        self.addChildLayout(layout)
        self.addItem(layout)

    def count(self) -> int:
        """Number of items."""
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem:
        """An item; None beyond the end, as Qt asks."""
        return self._items[index] if 0 <= index < len(self._items) else None  # type: ignore[return-value]

    def takeAt(self, index: int) -> QLayoutItem:
        """Take an item out; None beyond the end, as Qt asks."""
        return self._items.pop(index) if 0 <= index < len(self._items) else None  # type: ignore[return-value]

    def expandingDirections(self) -> Qt.Orientation:
        """Takes no more than it needs where something beside it wants the room."""
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:
        """Fewer in a line are more lines."""
        return True

    def invalidate(self) -> None:
        """Something in it changed its size."""
        self._heights.clear()
        self._least = None
        super().invalidate()

    def heightForWidth(self, width: int) -> int:
        """Height of all lines."""
        if width not in self._heights:
            self._heights[width] = self._measure(width)
        return self._heights[width]

    def _measure(self, width: int) -> int:
        margins = self.contentsMargins()
        inner = width - margins.left() - margins.right()
        heights = [_height(line) for line in self._lines(self._shown(), inner)]
        return sum(heights) + self._line_px * max(len(heights) - 1, 0) + margins.top() + margins.bottom()

    def minimumSize(self) -> QSize:
        """As wide as the widest item alone."""
        if self._least is None:
            margins, sizes = self.contentsMargins(), [item.minimumSize() for item in self._shown()]
            widest = max((size.width() for size in sizes), default=0) + margins.left() + margins.right()
            highest = max((size.height() for size in sizes), default=0) + margins.top() + margins.bottom()
            self._least = QSize(widest, highest)
        return self._least

    def sizeHint(self) -> QSize:
        """All in one line."""
        margins, items = self.contentsMargins(), self._shown()
        width = sum(item.sizeHint().width() for item in items) + self.spacing() * max(len(items) - 1, 0)
        height = max((item.sizeHint().height() for item in items), default=0)
        return QSize(width + margins.left() + margins.right(), height + margins.top() + margins.bottom())

    def setGeometry(self, rect: QRect) -> None:
        """Place the items."""
        super().setGeometry(rect)
        margins = self.contentsMargins()
        spare = max(rect.height() - self.heightForWidth(rect.width()), 0) if self._centers else 0
        top = rect.top() + margins.top() + spare // 2
        for line in self._lines(self._shown(), rect.width() - margins.left() - margins.right()):
            height = _height(line)
            for item, left, width in line:
                item.setGeometry(QRect(rect.left() + margins.left() + left, top, width, height))
            top += height + self._line_px

    def _shown(self) -> list[QLayoutItem]:
        return [item for item in self._items if not item.isEmpty()]


class Flow(_Wrapping):
    """One after the other at their own widths; what expands takes the rest of its line.

    Args:
        spacing_px: Between items of a line.
        line_px: Between lines.
    """

    _centers = True

    def __init__(self, spacing_px: int = UNIT, line_px: int = UNIT) -> None:
        super().__init__(spacing_px, line_px)

    def _lines(self, items: Sequence[QLayoutItem], width: int) -> list[list[tuple[QLayoutItem, int, int]]]:
        rows: list[list[QLayoutItem]] = []
        room = 0
        for item in items:
            wanted = _wanted(item)
            if not rows or wanted > room:
                rows.append([])
                room = width
            rows[-1].append(item)
            room -= wanted + self.spacing()
        return [self._line(row, width) for row in rows]

    def _line(self, row: Sequence[QLayoutItem], width: int) -> list[tuple[QLayoutItem, int, int]]:
        widths = [min(_wanted(item), width) for item in row]
        left_over = width - sum(widths) - self.spacing() * (len(row) - 1)
        wide = [at for at, item in enumerate(row) if _grows(item, widths[at])]
        if wide and left_over > 0:
            widths[wide[-1]] += left_over
        lefts = [sum(widths[:at]) + at * self.spacing() for at in range(len(row))]
        return list(zip(row, lefts, widths, strict=True))


class Columns(_Wrapping):
    """In one line while there is room; else in as many columns as fit, in lines that are about equally long.

    Args:
        spacing_px: Between columns.
        line_px: Between lines.
        even: Columns share all of the width, evenly where that leaves room for each.
        fill: What stands in a shorter last line shares all of the width too.
    """

    def __init__(
        self, spacing_px: int = 4 * UNIT, line_px: int = 2 * UNIT, *, even: bool = False, fill: bool = False
    ) -> None:
        super().__init__(spacing_px, line_px)
        self._even, self._fill = even, fill

    def _lines(self, items: Sequence[QLayoutItem], width: int) -> list[list[tuple[QLayoutItem, int, int]]]:
        if not items:
            return []
        widths = self._widths(items, width)
        count = len(widths)
        lines = []
        for start in range(0, len(items), count):
            row = items[start : start + count]
            used = widths
            if self._fill and len(row) < count:
                used = self._shared(len(row), width)
            lefts = [sum(used[:at]) + at * self.spacing() for at in range(len(row))]
            lines.append(list(zip(row, lefts, used, strict=False)))
        return lines

    def _widths(self, items: Sequence[QLayoutItem], width: int) -> list[int]:
        """Of the columns: as many as fit, then no more than that many lines need."""
        for count in range(len(items), 0, -1):
            if len(items) > count > 1 and -(-len(items) // count) == -(-len(items) // (count - 1)):
                continue  # one column less makes no more lines, and the last one is not so empty
            widths = [max(_least(item) for item in items[at::count]) for at in range(count)]
            if self._even and max(widths) <= min(self._shared(count, width)):
                return self._shared(count, width)
            left_over = width - sum(widths) - self.spacing() * (count - 1)
            if left_over >= 0:
                more = left_over // count if self._even else 0
                return [one + more for one in widths]
        return [width]

    def _shared(self, count: int, width: int) -> list[int]:
        each, more = divmod(width - self.spacing() * (count - 1), count)
        return [each + (at < more) for at in range(count)]


def in_columns(
    widgets: Sequence[QWidget], spacing_px: int = 4 * UNIT, *, even: bool = False, fill: bool = False
) -> Columns:
    """Widgets side by side that wrap; see `Columns`."""
    made = Columns(spacing_px, even=even, fill=fill)
    for widget in widgets:
        made.addWidget(widget)
    return made


def _wanted(item: QLayoutItem) -> int:
    return max(item.minimumSize().width(), min(item.sizeHint().width(), item.maximumSize().width()))


def _grows(item: QLayoutItem, width: int) -> bool:
    expands = item.expandingDirections() & Qt.Orientation.Horizontal
    return bool(expands) and item.maximumSize().width() > width  # a row inside a fixed width seems to expand as well


def _least(item: QLayoutItem) -> int:
    return item.minimumSize().width()


def _height(line: Sequence[tuple[QLayoutItem, int, int]]) -> int:
    def of(item: QLayoutItem, width: int) -> int:
        return item.heightForWidth(width) if item.hasHeightForWidth() else item.sizeHint().height()

    return max((of(item, width) for item, _, width in line), default=0)
