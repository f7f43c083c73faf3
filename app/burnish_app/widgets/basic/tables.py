"""Tables that fit into their width: headings wrap, columns narrow to their texts, those without room are hidden."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from PySide6.QtCore import QAbstractItemModel, QEvent, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QColor, QPainter, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QStyledItemDelegate, QStyleOptionViewItem, QTableView

from burnish_app.look.fonts import scaled
from burnish_app.look.theme import colors_of
from burnish_app.look.tokens import UNBOUNDED_PX
from burnish_app.widgets.basic.wrapping_head import WrappingHead


class FittingTable(QTableView):
    """A table that fits its columns into its width: some narrow to their texts, then the first, then others are hidden.

    Where even those that stay have no room, as in the largest text, all of them narrow until a word of a heading would
    be cut. Only then does the table scroll sideways.

    Args:
        model: table model. Its UserRole may name a color of `theme.Colors` for a cell's text.
        name: name for screen readers.
        widths_px: preferred width of each column, device-independent pixels.
        first_min_px: minimum width of the first column, device-independent pixels.
        grow: columns that share the width that is left over.
        drop_columns: groups of columns to hide if there is no room, in the order of hiding.
        narrow: columns that narrow to their texts before the first column narrows.
        row_px: height of a row at 100 % text size, device-independent pixels.
        head_px: least height of the headings, likewise.

    Widths hold text too, and grow with the text size.
    """

    def __init__(
        self,
        model: QAbstractItemModel,
        name: str,
        widths_px: Sequence[int],
        *,
        first_min_px: int,
        grow: Sequence[int] = (0,),
        drop_columns: Sequence[Sequence[int]] = (),
        narrow: Sequence[int] = (),
        row_px: int,
        head_px: int,
    ) -> None:
        super().__init__()
        self._preferred_px, self._first_min_px, self._grow = widths_px, first_min_px, grow
        self._drop_columns, self._narrow = drop_columns, narrow
        self._row_px, self._head_px = row_px, head_px
        self._rows: tuple[int, int | None] | None = None
        self._widths_px = [scaled(width) for width in widths_px]
        self._head = WrappingHead(self)
        self.setHorizontalHeader(self._head)
        self.setModel(model)
        if narrow:
            model.modelReset.connect(self._fit)
        model.layoutChanged.connect(self._fit)  # the heading that rows are sorted by may have an arrow
        self.setItemDelegate(TextColorDelegate(self))
        self.setAccessibleName(name)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # names differ at their ends
        self.setTabKeyNavigation(False)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.verticalHeader().hide()
        self._fit_rows()

    def hold_rows(self, least: int, most: int | None = None) -> None:
        """Set how many rows are seen without scrolling; the table's height follows.

        Args:
            least: least number of rows.
            most: most number of rows; None: as many as there is room for.
        """
        self._rows = least, most
        self._fit_height()

    def changeEvent(self, event: QEvent) -> None:
        """Fit rows and columns to another text size."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            self._fit_rows()
            self._fit()

    def _fit_rows(self) -> None:
        self.verticalHeader().setDefaultSectionSize(scaled(self._row_px))

    def _fit_height(self) -> None:
        """Set the heights of head and table for the present widths."""
        head_px = max(scaled(self._head_px), self._head.needed_px())
        self._head.setFixedHeight(head_px)
        if self._rows is None:
            return
        around_px = head_px + 2 * self.frameWidth()
        if self._head.length() > self.viewport().width():
            around_px += self.horizontalScrollBar().sizeHint().height()
        least, most = self._rows
        self.setMinimumHeight(around_px + least * scaled(self._row_px))
        self.setMaximumHeight(UNBOUNDED_PX if most is None else around_px + most * scaled(self._row_px))

    def shown_columns(self) -> list[int]:
        """Return the columns that fit into the width."""
        shown = list(range(len(self._widths_px)))
        for leaving in self._drop_columns:
            missing = sum(self._widths_px[column] for column in shown) - self.viewport().width()
            if missing > self._widths_px[0] - scaled(self._first_min_px):
                shown = [column for column in shown if column not in leaving]
        return shown

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Share the new width among the columns."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Share the width among the columns."""
        least = [self._head.least_px(column) for column in range(len(self._preferred_px))]
        preferred = [max(scaled(width), word) for width, word in zip(self._preferred_px, least, strict=True)]
        self._widths_px = preferred
        room = self.viewport().width() - sum(preferred[1:])
        if self._narrow and max(self.sizeHintForColumn(0), self._head.whole_px(0)) > room:
            for column in self._narrow:
                self.setColumnHidden(column, False)  # a hidden one has no width to measure
                needed = max(self.sizeHintForColumn(column), self._head.whole_px(column))
                preferred[column] = min(needed, preferred[column])
        shown = self.shown_columns()
        left = self.viewport().width() - sum(preferred[column] for column in shown)
        growing = [column for column in self._grow if column in shown]
        widths = list(preferred)
        for column in growing:
            widths[column] += max(left, 0) // len(growing)
        widths[0] -= min(-min(left, 0), widths[0] - max(scaled(self._first_min_px), least[0]))
        missing = sum(widths[column] for column in shown) - self.viewport().width()
        spare = sum(widths[column] - least[column] for column in shown)
        if missing > 0 and spare > 0:  # in the largest text all columns give way
            share = min(missing / spare, 1.0)
            widths = [width - ceil((width - word) * share) for width, word in zip(widths, least, strict=True)]
        for column, width in enumerate(widths):
            self.setColumnHidden(column, column not in shown)
            self.setColumnWidth(column, width)
        self._fit_height()


class TextColorDelegate(QStyledItemDelegate):
    """Draws a cell's text in the theme's color that its UserRole names."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """Draw a cell."""
        tone = index.data(Qt.ItemDataRole.UserRole)
        widget = option.widget
        if tone and widget is not None:
            palette = option.palette
            color = QColor(getattr(colors_of(widget), tone))
            palette.setColor(palette.ColorRole.Text, color)
            palette.setColor(palette.ColorRole.HighlightedText, color)
        super().paint(painter, option, index)
