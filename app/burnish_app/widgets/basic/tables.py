"""Tables that never scroll sideways: columns narrow to their texts, and those without room are hidden."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QAbstractItemModel, QEvent, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QColor, QPainter, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QStyledItemDelegate, QStyleOptionViewItem, QTableView

from burnish_app.look.fonts import scaled
from burnish_app.look.theme import colors_of


class FittingTable(QTableView):
    """A table that fits its columns into its width: some narrow to their texts, then the first, then others are hidden.

    Where even those that stay have no room, as in the largest text, all of them narrow.

    Args:
        model: table model. Its UserRole may name a color of `theme.Colors` for a cell's text.
        name: name for screen readers.
        widths_px: preferred width of each column, device-independent pixels.
        first_min_px: minimum width of the first column, device-independent pixels.
        grow: columns that share the width that is left over.
        drop_columns: groups of columns to hide if there is no room, in the order of hiding.
        narrow: columns that narrow to their texts before the first column narrows.
        row_px: height of a row at 100 % text size, device-independent pixels; 0: as the style has it.
        head_px: height of the headings, likewise.

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
        row_px: int = 0,
        head_px: int = 0,
    ) -> None:
        super().__init__()
        self._preferred_px, self._first_min_px, self._grow = widths_px, first_min_px, grow
        self._drop_columns, self._narrow = drop_columns, narrow
        self._row_px, self._head_px = row_px, head_px
        self._widths_px = [scaled(width) for width in widths_px]
        self.setModel(model)
        if narrow:
            model.modelReset.connect(self._fit)
        self.setItemDelegate(TextColorDelegate(self))
        self.setAccessibleName(name)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # names differ at their ends
        self.setTabKeyNavigation(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalHeader().hide()
        self.horizontalHeader().setHighlightSections(False)
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self._fit_rows()

    def changeEvent(self, event: QEvent) -> None:
        """Fit rows and columns to another text size."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            self._fit_rows()
            self._fit()

    def _fit_rows(self) -> None:
        if self._row_px:
            self.verticalHeader().setDefaultSectionSize(scaled(self._row_px))
        if self._head_px:
            self.horizontalHeader().setFixedHeight(scaled(self._head_px))

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
        preferred = self._widths_px = [scaled(width) for width in self._preferred_px]
        room = self.viewport().width() - sum(preferred[1:])
        if self._narrow and self.sizeHintForColumn(0) > room:
            for column in self._narrow:
                self.setColumnHidden(column, False)  # a hidden one has no width to measure
                needed = max(self.sizeHintForColumn(column), self.horizontalHeader().sectionSizeHint(column))
                preferred[column] = min(needed, preferred[column])
        shown = self.shown_columns()
        left = self.viewport().width() - sum(self._widths_px[column] for column in shown)
        growing = [column for column in self._grow if column in shown]
        least_px = scaled(self._first_min_px)
        widths = list(self._widths_px)
        for column in growing:
            widths[column] += max(left, 0) // len(growing)
        widths[0] -= min(-min(left, 0), widths[0] - least_px)
        needed = sum(widths[column] for column in shown)
        share = min(self.viewport().width() / needed, 1.0)  # in the largest text all columns give way
        for column, width in enumerate(widths):
            self.setColumnHidden(column, column not in shown)
            self.setColumnWidth(column, int(width * share))


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
