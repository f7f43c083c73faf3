"""The card with the table of a comparison: outcomes, and what the runs did differently."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QApplication, QTableView

from burnish_app.curves.tables import tab_text
from burnish_app.item_models.comparison import ComparisonModel
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import font
from burnish_app.look.tokens import SMALL_PX
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.tables import TextColorDelegate
from burnish_app.widgets.basic.text import caption
from burnish_app.widgets.basic.wrapping_head import WrappingHead
from burnish_app.widgets.compare.swatch import swatch
from burnish_app.wording.comparison_text import comparison_rows
from burnish_engine.contract.run.comparison import RunsComparison

_ROW_PX, _HEADING_PX = 32, 40
_LABEL_PX, _CELL_PX = 168, 112  # most width of the names, least width of a run's cells


class DifferencesCard(Card):
    """Shows what came of several runs, and only what differs between them."""

    def __init__(self) -> None:
        super().__init__(tr("Results, and what differs"), icon_name="recipe")
        self.corner.addWidget(quiet(tr("Copy"), self.copy, "copy"))
        self.model = ComparisonModel(self, lambda place: swatch(self, place))
        self.table = _ComparedTable(self)
        self.table.setModel(self.model)
        self._notes = caption("", "warning")
        self._notes.hide()
        fill(self.body, self._notes, self.table)

    def show_comparison(self, titles: Sequence[str], found: RunsComparison) -> None:
        """Show a comparison.

        Args:
            titles: title of each run.
            found: comparison of the engine.
        """
        self._notes.setText(" ".join(found.notes))
        self._notes.setVisible(bool(found.notes))
        self.model.show(titles, comparison_rows(found))
        self.table.fit()

    def copy(self) -> None:
        """Put the table on the clipboard, as a spreadsheet takes it."""
        columns = range(1, self.model.columnCount())
        head = ["", *(str(self.model.headerData(column, Qt.Orientation.Horizontal)) for column in columns)]
        rows = [self.model.row(number) for number in range(self.model.rowCount())]
        QApplication.clipboard().setText(tab_text(head, [[row.label, *row.cells] for row in rows]))


class _ComparedTable(QTableView):
    """A table as high as its rows.

    Args:
        card: card whose table it is.
    """

    def __init__(self, card: DifferencesCard) -> None:
        super().__init__()
        self._card = card
        self._head = WrappingHead(self)
        self._head.setSectionsClickable(False)
        self._head.setFont(font(SMALL_PX, medium=True))
        self.setHorizontalHeader(self._head)
        self.setAccessibleName(tr("What differs between the runs"))
        self.setItemDelegate(TextColorDelegate(self))
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setTabKeyNavigation(False)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalHeader().hide()
        self.setIconSize(QSize(22, 12))

    def fit(self) -> None:
        """Set heights and widths for what is shown."""
        model = self._card.model
        self.clearSpans()
        for number in range(model.rowCount()):
            heading = model.row(number).is_heading
            self.setRowHeight(number, scaled(_HEADING_PX if heading else _ROW_PX))
            if heading and model.columnCount() > 1:
                self.setSpan(number, 0, 1, model.columnCount())
        self._share_width()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Share the new width among the columns."""
        super().resizeEvent(event)
        self._share_width()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Copy by the keyboard."""
        if event.matches(QKeySequence.StandardKey.Copy):
            self._card.copy()
        else:
            super().keyPressEvent(event)

    def _share_width(self) -> None:
        runs = self._card.model.columnCount() - 1
        if runs < 1:
            return
        label_px = min(self.sizeHintForColumn(0), scaled(_LABEL_PX))
        self.setColumnWidth(0, label_px)
        room_px = self.viewport().width() - label_px
        each = max(room_px // runs, min(scaled(_CELL_PX), room_px // 2), _CELL_PX)  # two are always seen together
        for column in range(1, runs + 1):
            self.setColumnWidth(column, each)
        head_px = max(scaled(_HEADING_PX), self._head.needed_px())
        self._head.setFixedHeight(head_px)
        over = self._head.length() > self.viewport().width()
        bar_px = self.horizontalScrollBar().sizeHint().height() if over else 0
        self.setFixedHeight(head_px + self.verticalHeader().length() + bar_px + 2 * self.frameWidth())
