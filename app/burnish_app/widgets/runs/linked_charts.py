"""The base of groups of charts that share axis, cursor and pins: their options, tables, files and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QFileDialog, QVBoxLayout, QWidget

from burnish_app.curves.tables import csv_text
from burnish_app.look.language import tr
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.charts.chart import Chart
from burnish_app.widgets.charts.content import ChartSpec
from burnish_app.widgets.charts.lines import ChartLine
from burnish_app.widgets.charts.link import ChartLink
from burnish_app.widgets.charts.options import ChartOptions
from burnish_app.widgets.charts.pinned import PinnedValues
from burnish_app.widgets.charts.saving import Saver, picture, png_bytes, svg_bytes
from burnish_app.widgets.charts.table_view import TableWindow
from burnish_app.widgets.runs.chart_room import ChartRoom


class LinkedCharts(QWidget):
    """A group of charts: a large one, small ones beside and below it, and a card with pinned values.

    A subclass makes its charts by `_chart`, then calls `_arrange`.

    Attributes:
        failed: signal with a sentence that says why a file could not be written.
        link: axis, range, cursor and pins of the charts.
        pinned: card with the values at the pins.
        room: arrangement of the charts.
    """

    failed = Signal(str)

    room: ChartRoom

    def __init__(self) -> None:
        super().__init__()
        self.link = ChartLink(self)
        self._saver = Saver(self)
        self._saver.failed.connect(self.failed)
        self.pinned = PinnedValues(self.link)

    def fit_height(self, page_px: int) -> None:
        """Set the heights of the charts for a page of this height, device-independent pixels."""
        self.room.fit_height(page_px)

    def save(self, chart: Chart, kind: str, path: Path) -> None:
        """Save a chart.

        Args:
            chart: chart to save.
            kind: "png", "svg" or "csv".
            path: file to write.
        """
        make: Callable[[], bytes]
        if kind == "csv":
            table = chart.table()
            make = lambda: csv_text(table).encode()  # noqa: E731
        elif kind == "svg":
            drawn = svg_bytes(chart)
            make = lambda: drawn  # noqa: E731
        else:
            image = picture(chart)
            make = lambda: png_bytes(image)  # noqa: E731
        self._saver.write(path, make)

    def _chart(
        self, name: str, lines: dict[str, ChartLine], value_text: Callable[[float], str], **options: Any
    ) -> Chart:
        chart = Chart(ChartSpec(name, lines, value_text, **options), self.link)
        chart.options_wanted.connect(partial(self._open_options, chart))
        chart.copied.connect(self._copy)
        return chart

    def _arrange(self, large: Chart, small: Sequence[Chart]) -> None:
        self.room = ChartRoom(large, small, self.pinned)
        arranging = QTimer(self, singleShot=True, interval=0)  # in an event of its own, so that none takes long
        arranging.setObjectName("arrange")
        arranging.timeout.connect(self.room.arrange)
        self.link.pins_changed.connect(arranging.start)
        fill(QVBoxLayout(self), self.room)

    def _open_options(self, chart: Chart) -> None:
        options = ChartOptions(chart)
        options.table_wanted.connect(self._show_table)
        options.save_wanted.connect(self._ask_where)
        options.enlarge_wanted.connect(self.room.enlarge)
        options.open_at(chart.menu_corner())

    def _show_table(self, chart: Chart) -> None:
        TableWindow(chart.name, chart.table(), self).show()

    def _ask_where(self, chart: Chart, kind: str) -> None:
        title = tr("Save the {name} chart").format(name=chart.name)
        suggested = f"{chart.name.lower().replace(' ', '-')}.{kind}"
        path, _ = QFileDialog.getSaveFileName(self, title, suggested, f"{kind.upper()} (*.{kind})")
        if path:
            self.save(chart, kind, Path(path))

    def _copy(self) -> None:
        if self.link.pins:
            self.pinned.copy()
