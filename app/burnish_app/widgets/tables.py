"""Tables that never scroll sideways: what has no room gives way."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QColor, QPainter, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QStyledItemDelegate, QStyleOptionViewItem, QTableView

from burnish_app.theme import colors_of


class FittingTable(QTableView):
    """Shares its width among columns: first the first one becomes narrower, then others go.

    Args:
        model: What to show. Its UserRole may name a color of `theme.Colors` for a cell's text.
        name: For screen readers.
        widths_px: Of the columns. Those that grow share what is left over.
        least_px: Of the first column.
        grow: Columns that grow.
        give_way: Columns to do without where there is no room, some at a time, first these.
    """

    def __init__(
        self,
        model: QAbstractTableModel,
        name: str,
        widths_px: Sequence[int],
        *,
        least_px: int,
        grow: Sequence[int] = (0,),
        give_way: Sequence[Sequence[int]] = (),
    ) -> None:
        super().__init__()
        self._widths_px, self._least_px, self._grow, self._give_way = widths_px, least_px, grow, give_way
        self.setModel(model)
        self.setItemDelegate(_LookDelegate(self))
        self.setAccessibleName(name)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalHeader().hide()
        self.horizontalHeader().setHighlightSections(False)
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)

    def shown_columns(self) -> list[int]:
        """The columns for which there is room."""
        shown = list(range(len(self._widths_px)))
        for leaving in self._give_way:
            missing = sum(self._widths_px[column] for column in shown) - self.viewport().width()
            if missing > self._widths_px[0] - self._least_px:
                shown = [column for column in shown if column not in leaving]
        return shown

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Share the width anew."""
        super().resizeEvent(event)
        shown = self.shown_columns()
        left = self.viewport().width() - sum(self._widths_px[column] for column in shown)
        growing = [column for column in self._grow if column in shown]
        for column, width in enumerate(self._widths_px):
            self.setColumnHidden(column, column not in shown)
            more = max(left, 0) // len(growing) if column in growing else 0
            less = min(-min(left, 0), width - self._least_px) if column == 0 else 0
            self.setColumnWidth(column, width + more - less)


class _LookDelegate(QStyledItemDelegate):
    """Draws a cell's text in the theme's color that its UserRole names."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """Draw a cell."""
        look = index.data(Qt.ItemDataRole.UserRole)
        widget = option.widget
        if look and widget is not None:
            palette = option.palette
            color = QColor(getattr(colors_of(widget), look))
            palette.setColor(palette.ColorRole.Text, color)
            palette.setColor(palette.ColorRole.HighlightedText, color)
        super().paint(painter, option, index)
