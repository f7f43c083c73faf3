"""Layouts that wrap their items into further lines when the window is narrow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QChildEvent, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QWidget, QWidgetItem
from shiboken6 import isValid

from burnish_app.look.theme import UNIT


class _Box(NamedTuple):
    """A layout item and the sizes that it asks for."""

    item: QLayoutItem
    minimum: QSize
    hint: QSize
    maximum_px: int
    expands: bool

    @classmethod
    def of(cls, item: QLayoutItem) -> _Box:
        """Read the sizes of an item."""
        expands = bool(item.expandingDirections() & Qt.Orientation.Horizontal)
        return cls(item, item.minimumSize(), item.sizeHint(), item.maximumSize().width(), expands)

    @property
    def wanted_px(self) -> int:
        """The item's own width."""
        return max(self.minimum.width(), min(self.hint.width(), self.maximum_px))

    def height(self, width: int) -> int:
        """Return the item's height at a width."""
        return self.item.heightForWidth(width) if self.item.hasHeightForWidth() else self.hint.height()


_Line = list[tuple[_Box, int, int]]
"""Boxes of one line, each with its left edge and its width, pixels."""


class _WrappingLayout(QLayout):
    """The base of wrapping layouts: it holds the items, and a subclass decides the lines for a given width.

    When a widget is destroyed, Qt takes its item by `takeAt` and destroys it.

    Args:
        spacing_px: space between the items of a line.
        line_px: space between lines.
    """

    _centers = False  # whether lines stand in the middle of more height than they need

    def __init__(self, spacing_px: int, line_px: int) -> None:
        super().__init__()
        self._items: list[QLayoutItem] = []
        # Both are kept until something changes, as Qt asks over and over.
        self._boxes: list[_Box] | None = None
        self._heights: dict[int, int] = {}  # by width
        self._line_px = line_px
        self.setContentsMargins(0, 0, 0, 0)
        self.setSpacing(spacing_px)

    @abstractmethod
    def _lines(self, boxes: Sequence[_Box], width: int) -> list[_Line]:
        """Arrange the boxes into lines of a width."""

    def addWidget(self, widget: QWidget) -> None:
        """Add a widget. Its item is made here: Python would not learn of the end of an item that Qt made."""
        self.addChildWidget(widget)
        self.addItem(QWidgetItem(widget))

    def insertWidget(self, place: int, widget: QWidget) -> None:
        """Put a widget before the item that has a place now."""
        self.addWidget(widget)
        self._items.insert(place, self._items.pop())

    def addItem(self, item: QLayoutItem) -> None:
        """Add an item."""
        self._items.append(item)
        self.invalidate()

    def addLayout(self, layout: QLayout) -> None:
        """Add a layout as one item."""
        self.addChildLayout(layout)
        self.addItem(layout)

    def count(self) -> int:
        """Return the number of items."""
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem:
        """Return an item; None beyond the end, as Qt requires."""
        return self._items[index] if 0 <= index < len(self._items) else None  # type: ignore[return-value]

    def takeAt(self, index: int) -> QLayoutItem:
        """Remove and return an item; None beyond the end, as Qt requires. The caller then owns a layout."""
        if not 0 <= index < len(self._items):
            return None  # type: ignore[return-value]
        item = self._items.pop(index)
        if isinstance(item, QLayout) and isValid(item) and item.parent() is self:
            item.setParent(None)
        self.invalidate()
        return item

    def childEvent(self, event: QChildEvent) -> None:
        """Forget nested layouts that were destroyed: Qt would ask for items that no longer exist."""
        super().childEvent(event)
        if event.removed():
            self._items = [item for item in self._items if isValid(item)]
            self.invalidate()

    def expandingDirections(self) -> Qt.Orientation:
        """Return no direction: the layout leaves spare room to its neighbors."""
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:
        """Return True: the height depends on the width."""
        return True

    def invalidate(self) -> None:
        """Forget all measurements, because an item changed its size."""
        self._boxes = None
        self._heights.clear()
        super().invalidate()

    def heightForWidth(self, width: int) -> int:
        """Return the height of all lines at a width."""
        if width not in self._heights:
            self._heights[width] = self._measure(width)
        return self._heights[width]

    def _measure(self, width: int) -> int:
        margins = self.contentsMargins()
        inner = width - margins.left() - margins.right()
        heights = [_height(line) for line in self._lines(self._shown(), inner)]
        return sum(heights) + self._line_px * max(len(heights) - 1, 0) + margins.top() + margins.bottom()

    def minimumSize(self) -> QSize:
        """Return the minimum size: as wide as the widest item alone."""
        sizes = [box.minimum for box in self._shown()]
        return self._with_margins(
            max((size.width() for size in sizes), default=0), max((size.height() for size in sizes), default=0)
        )

    def sizeHint(self) -> QSize:
        """Return the preferred size: all items in one line."""
        sizes = [box.hint for box in self._shown()]
        return self._with_margins(
            sum(size.width() for size in sizes) + self.spacing() * max(len(sizes) - 1, 0),
            max((size.height() for size in sizes), default=0),
        )

    def setGeometry(self, rect: QRect) -> None:
        """Place the items within a rectangle."""
        super().setGeometry(rect)
        margins = self.contentsMargins()
        spare = max(rect.height() - self.heightForWidth(rect.width()), 0) if self._centers else 0
        top = rect.top() + margins.top() + spare // 2
        for line in self._lines(self._shown(), rect.width() - margins.left() - margins.right()):
            height = _height(line)
            for box, left, width in line:
                box.item.setGeometry(QRect(rect.left() + margins.left() + left, top, width, height))
            top += height + self._line_px

    def _with_margins(self, width: int, height: int) -> QSize:
        margins = self.contentsMargins()
        return QSize(width + margins.left() + margins.right(), height + margins.top() + margins.bottom())

    def _shown(self) -> list[_Box]:
        if self._boxes is None:
            self._boxes = [_Box.of(item) for item in self._items if not item.isEmpty()]
        return self._boxes


class FlowLayout(_WrappingLayout):
    """A layout that puts items one after the other at their own widths; an expanding item takes the rest of its line.

    Text that would need clearly more height in the rest of a line than its neighbors have goes below them.

    Args:
        spacing_px: space between the items of a line.
        line_px: space between lines.
        to_right: whether lines without an expanding item are aligned to the right.
    """

    _centers = True

    def __init__(self, spacing_px: int = UNIT, line_px: int = UNIT, *, to_right: bool = False) -> None:
        super().__init__(spacing_px, line_px)
        self._to_right = to_right

    def _lines(self, boxes: Sequence[_Box], width: int) -> list[_Line]:
        rows: list[list[_Box]] = []
        room = 0
        for box in boxes:
            if not rows or box.wanted_px > room or _overhangs(box, rows[-1], room):
                rows.append([])
                room = width
            rows[-1].append(box)
            room -= box.wanted_px + self.spacing()
        return [self._line(row, width) for row in rows]

    def _line(self, row: Sequence[_Box], width: int) -> _Line:
        widths = [min(box.wanted_px, width) for box in row]
        left_over = width - sum(widths) - self.spacing() * (len(row) - 1)
        # A row inside a fixed width seems to expand as well.
        wide = [at for at, box in enumerate(row) if box.expands and box.maximum_px > widths[at]]
        if wide and left_over > 0:
            widths[wide[-1]] += left_over
        start = max(left_over, 0) if self._to_right and not wide else 0
        lefts = [start + sum(widths[:at]) + at * self.spacing() for at in range(len(row))]
        return list(zip(row, lefts, widths, strict=True))


class HeadLayout(_WrappingLayout):
    """A layout of a heading with actions beside it and a hint below both; without room the actions go below the hint.

    Its first item is the heading; of the others a layout holds the actions, and a widget is the hint.
    """

    def __init__(self) -> None:
        super().__init__(UNIT, 4)

    def _lines(self, boxes: Sequence[_Box], width: int) -> list[_Line]:
        if not boxes:
            return []
        heading, *others = boxes
        actions = [box for box in others if isinstance(box.item, QLayout)]
        whole: list[_Line] = [[(box, 0, width)] for box in others if box not in actions]
        beside = sum(min(box.wanted_px, width) + self.spacing() for box in actions)
        if heading.wanted_px + beside > width:
            return [[(heading, 0, width)], *whole, *([(box, 0, width)] for box in actions)]
        first: _Line = [(heading, 0, width - beside)]
        first += [(box, width - beside + self.spacing(), box.wanted_px) for box in actions]
        return [first, *whole]


class ColumnsLayout(_WrappingLayout):
    """A layout with all items in one line while there is room, else in as many columns as fit, in even lines.

    Args:
        spacing_px: space between columns.
        line_px: space between lines.
        even: whether the columns share all of the width, evenly if that leaves room for each.
        fill: whether the items of a shorter last line share all of the width too.
        least_px: least width of a column where there are several.
    """

    def __init__(
        self,
        spacing_px: int = 4 * UNIT,
        line_px: int = 2 * UNIT,
        *,
        even: bool = False,
        fill: bool = False,
        least_px: int = 0,
    ) -> None:
        super().__init__(spacing_px, line_px)
        self._even, self._fill, self._least_px = even, fill, least_px

    def _lines(self, boxes: Sequence[_Box], width: int) -> list[_Line]:
        if not boxes:
            return []
        widths = self._widths(boxes, width)
        count = len(widths)
        lines = []
        for start in range(0, len(boxes), count):
            row = boxes[start : start + count]
            used = widths
            if self._fill and len(row) < count:
                used = self._shared(len(row), width)
            lefts = [sum(used[:at]) + at * self.spacing() for at in range(len(row))]
            lines.append(list(zip(row, lefts, used, strict=False)))
        return lines

    def _widths(self, boxes: Sequence[_Box], width: int) -> list[int]:
        """Return the widths of the columns: as many as fit, but no more than the number of lines needs."""
        most = max((width + self.spacing()) // (self._least_px + self.spacing()), 1)
        for count in range(min(len(boxes), most), 0, -1):
            if len(boxes) > count > 1 and -(-len(boxes) // count) == -(-len(boxes) // (count - 1)):
                continue  # one column less makes no more lines, and the last one is not so empty
            widths = [max(box.minimum.width() for box in boxes[at::count]) for at in range(count)]
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


def columns_layout(
    widgets: Sequence[QWidget],
    spacing_px: int = 4 * UNIT,
    *,
    line_px: int = 2 * UNIT,
    even: bool = False,
    fill: bool = False,
    least_px: int = 0,
) -> ColumnsLayout:
    """Put widgets into a `ColumnsLayout`."""
    made = ColumnsLayout(spacing_px, line_px, even=even, fill=fill, least_px=least_px)
    for widget in widgets:
        made.addWidget(widget)
    return made


def _overhangs(box: _Box, row: Sequence[_Box], room: int) -> bool:
    """Return whether wrapped text would be at least a line higher than what it stands beside."""
    if not (box.expands and box.item.hasHeightForWidth()):
        return False
    return box.height(room) > max(other.height(other.wanted_px) for other in row) + UNIT


def _height(line: _Line) -> int:
    return max((box.height(width) for box, _, width in line), default=0)
