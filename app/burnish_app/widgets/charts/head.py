"""The head of a chart: its name and unit, the legend, a way back to the whole run, and the button of its options."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import font
from burnish_app.look.tokens import SMALL_PX, UNIT
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.more_button import MoreButton
from burnish_app.widgets.basic.text import caption, heading
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.charts.content import ChartContent, ChartSpec
from burnish_app.widgets.charts.legend import LegendEntry
from burnish_app.widgets.charts.lines import ChartLine
from burnish_app.widgets.charts.texts import ChartTexts


class ChartHead(QWidget):
    """The line above a plot.

    Args:
        spec: description of the chart.
        lines: key to appearance of each line.

    Attributes:
        toggled: signal with the key of a line and whether it shall be shown; the empty key is the limit's.
        entries: key to legend entry of each line.
        limit: legend entry of the horizontal line.
        whole: button that shows the whole run; None where there is no room for it.
        more: button that opens the options.
    """

    toggled = Signal(str, bool)

    def __init__(self, spec: ChartSpec, lines: Mapping[str, ChartLine]) -> None:
        super().__init__()
        self._shows = spec.legend
        title, unit = heading(spec.name), caption(spec.unit)
        self._labels = (title, unit)
        for label in self._labels:
            label.setWordWrap(False)
        (unit if spec.unit else title).setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        words = fill(FlowLayout(UNIT if spec.small else UNIT + 4, 0), title)
        if spec.unit:
            words.addWidget(unit)
        legend = FlowLayout(UNIT + 4, 0) if spec.legend == "all" else words
        self.entries = {key: LegendEntry(line, short=spec.small) for key, line in lines.items()}
        self.limit = LegendEntry(ChartLine(spec.limit_label, kind="limit"), short=spec.small)
        for key, entry in {**self.entries, "": self.limit}.items():
            entry.toggled.connect(lambda shown, key=key: self.toggled.emit(key, shown))
            entry.hide()
            legend.addWidget(entry)
        self.whole = None if spec.small else quiet(tr("Show all"))
        self.more = MoreButton(tr("Options of the {name} chart").format(name=spec.name))
        line = fill(
            QHBoxLayout(self), (self._above(words, legend) if legend is not words else words, 1), spacing_px=UNIT // 2
        )
        if self.whole is not None:
            self.whole.setFont(font(SMALL_PX, medium=True))
            self.whole.hide()
            line.addWidget(self.whole, alignment=Qt.AlignmentFlag.AlignTop)
        line.addWidget(self.more, alignment=Qt.AlignmentFlag.AlignTop)

    @staticmethod
    def _above(title: FlowLayout, legend: FlowLayout) -> QVBoxLayout:
        """Put a legend with many names below the heading."""
        return fill(QVBoxLayout(), title, legend, spacing_px=0)

    def show_values(self, content: ChartContent, texts: ChartTexts) -> None:
        """Show the lines that have values with their newest ones, and the limit.

        Args:
            content: what the chart shows.
            texts: texts of the chart.
        """
        for key, entry in self.entries.items():
            curve = content.curve(key)
            entry.set_name(texts.label(key) if len(content.lines) > 1 else "")
            entry.set_value(texts.without_unit(float(curve.values[-1])) if len(curve) else "")
            entry.setVisible(self._shows == "all" or (self._shows == "values" and len(curve) > 0))
        self.limit.setVisible(content.limit is not None)
        self.limit.set_value(texts.without_unit(content.limit) if content.limit is not None else "")

    def draw(self, painter: QPainter) -> None:
        """Draw the name, the unit, and the legend of the lines that are shown, without buttons, into a picture."""
        for label in self._labels:
            if label.isVisible():
                painter.setFont(label.font())
                painter.setPen(label.palette().color(label.foregroundRole()))
                painter.drawText(label.geometry(), Qt.AlignmentFlag.AlignVCenter, label.text())
        for entry in (*self.entries.values(), self.limit):
            if entry.isVisible() and entry.isChecked():
                painter.save()
                painter.translate(entry.pos())
                entry.draw(painter)
                painter.restore()

    @property
    def unit(self) -> str:
        """The unit behind the heading."""
        return self._labels[1].text()

    def set_unit(self, unit: str) -> None:
        """Name another unit behind the heading; the chart was made with one."""
        self._labels[1].setText(unit)

    def set_zoomed(self, zoomed: bool) -> None:
        """Offer the way back to the whole run."""
        if self.whole is not None:
            self.whole.setVisible(zoomed)
