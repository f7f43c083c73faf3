"""The table of the values at pinned steps, for all linked charts."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QApplication, QTableWidget, QTableWidgetItem

from burnish_app.curves.tables import tab_text
from burnish_app.curves.ticks import time_text
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import SMALL_PX, font
from burnish_app.look.tokens import GAP_PX, UNBOUNDED_PX
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.charts.link import PIN_NAMES, ChartLink, Reading

_ROW_PX, _HEAD_PX = 22, 36
_VALUE_PX = 44  # least width of a column
_NAMES_PX = 160  # most that names take beside a chart; longer ones are cut there
_INDENT = "   "
_WIDTH_PX = 344


class PinnedValues(Card):
    """Shows the values at the pinned steps; hidden while there is no pin.

    Args:
        link: link whose pins and charts are shown.
    """

    def __init__(self, link: ChartLink) -> None:
        super().__init__(tr("Pinned values"))
        self._link = link
        self.table = _CopyTable(self)
        self.table.setAccessibleName(tr("Pinned values"))
        self.corner.addWidget(quiet(tr("Copy"), self.copy))
        self.corner.addWidget(quiet(tr("Clear"), lambda: link.set_pins(())))
        self.body.addWidget(self.table)
        self.hide()
        link.pins_changed.connect(self.refresh)

    @property
    def beside_px(self) -> int:
        """Width that the card takes beside a chart, device-independent pixels."""
        around_px = 2 * GAP_PX + self.contentsMargins().left() + self.contentsMargins().right()
        return max(scaled(_WIDTH_PX), around_px + self.table.needed_px())

    def set_beside(self, *, is_beside: bool) -> None:
        """Take as little width as possible beside a chart, or all width and height below it."""
        width_px = self.beside_px
        self.setMinimumWidth(width_px if is_beside else 0)
        self.setMaximumWidth(width_px if is_beside else UNBOUNDED_PX)
        self.table.hold(all_rows=not is_beside)

    def rows(self) -> tuple[list[str], list[list[str]], list[list[str]]]:
        """Return the head, the rows as shown, and the rows with plain numbers for a spreadsheet."""
        link = self._link
        head = ["", *(PIN_NAMES[at] for at in range(len(link.pins)))]
        steps = [f"{pin:.0f}" for pin in link.pins]
        tokens, seconds = (link.axis.x(kind, link.pins).tolist() for kind in ("tokens", "time"))
        unit = {"step": 0, "tokens": 1, "time": 2}[link.axis.unit]
        shown = [
            [tr("step"), *(f"{pin:,.0f}" for pin in link.pins)],
            [tr("tokens"), *(f"{count:,.0f}" for count in tokens)],
            [tr("time"), *(time_text(one) for one in seconds)],
        ]
        plain = [
            [tr("step"), *steps],
            [tr("tokens"), *(f"{count:.0f}" for count in tokens)],
            [tr("time, seconds"), *(f"{one:.3f}" for one in seconds)],
        ]
        if link.axis.shared:
            shown, plain = shown[unit : unit + 1], plain[unit : unit + 1]
        for chart in link.charts:
            by_pin = [{reading.label: reading for reading in chart.readings(pin)} for pin in link.pins]
            for at, label in enumerate(dict.fromkeys(label for found in by_pin for label in found)):
                found = [readings.get(label) for readings in by_pin]
                name = label if label == chart.name else f"{chart.name}, {label}"
                alone = any(one is not None and one.line.kind == "raw" for one in found)
                title = f"{_INDENT}{label}" if at else chart.name if alone else name
                shown.append([title, *(one.text if one else "" for one in found)])
                plain.append([name, *(_plain(one) for one in found)])
        return head, shown, plain

    def copy(self) -> None:
        """Put the table on the clipboard, as a spreadsheet takes it."""
        head, _, plain = self.rows()
        QApplication.clipboard().setText(tab_text(head, plain))

    def refresh(self) -> None:
        """Show the values at the pins of the link."""
        self.setVisible(bool(self._link.pins))
        if not self._link.pins:
            return
        head, shown, _ = self.rows()
        self.table.setColumnCount(len(head))
        self.table.setRowCount(len(shown))
        self.table.setHorizontalHeaderLabels(head)
        for row, cells in enumerate(shown):
            for column, text in enumerate(cells):
                item = QTableWidgetItem(text)
                item.setToolTip(text)
                side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
                item.setTextAlignment(side | Qt.AlignmentFlag.AlignVCenter)
                self.table.setItem(row, column, item)
            self.table.setRowHeight(row, scaled(_ROW_PX))
        self.table.fit()


class _CopyTable(QTableWidget):
    """A quiet table that copies all of itself.

    Args:
        values: card whose values it shows.
    """

    def __init__(self, values: PinnedValues) -> None:
        super().__init__()
        self._values = values
        self._all_rows = False
        self.setFont(font(SMALL_PX))
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.verticalHeader().hide()
        self.horizontalHeader().setMinimumSectionSize(scaled(_VALUE_PX))
        self.horizontalHeader().setHighlightSections(False)

    def hold(self, *, all_rows: bool) -> None:
        """Be as high as all rows, or scroll where there is less room."""
        self._all_rows = all_rows
        self.fit()

    def needed_px(self) -> int:
        """Return the width of all values, most names and a vertical scroll bar, device-independent pixels."""
        head, names_px = self.horizontalHeader(), min(self.sizeHintForColumn(0), scaled(_NAMES_PX))
        values = [max(self.sizeHintForColumn(at), head.sectionSizeHint(at)) for at in range(1, self.columnCount())]
        around_px = 2 * self.frameWidth() + self.verticalScrollBar().sizeHint().width()
        return around_px + names_px + sum(max(width, head.minimumSectionSize()) for width in values)

    def fit(self) -> None:
        """Fit the columns to their texts; the names get what is left too, and the height follows."""
        head = self.horizontalHeader()
        head.setFixedHeight(scaled(_HEAD_PX))
        values_px, names_px = 0, min(self.sizeHintForColumn(0), scaled(_NAMES_PX))
        for column in range(1, self.columnCount()):
            self.resizeColumnToContents(column)
            values_px += self.columnWidth(column)
        self.setColumnWidth(0, max(self.viewport().width() - values_px, names_px))
        bar_px = self.horizontalScrollBar().sizeHint().height() if head.length() > self.viewport().width() else 0
        rows_px = self.verticalHeader().length() if self._all_rows else 2 * scaled(_ROW_PX)
        self.setMinimumHeight(head.height() + rows_px + bar_px + 2 * self.frameWidth())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Share the new width among the columns."""
        super().resizeEvent(event)
        self.fit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Copy by the keyboard."""
        if event.matches(QKeySequence.StandardKey.Copy):
            self._values.copy()
        else:
            super().keyPressEvent(event)


def _plain(reading: Reading | None) -> str:
    return f"{reading.value:.9g}" if reading is not None else ""
