"""The head of a chart: its name and unit, the legend, a way back to the whole run, and the button of its options."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import font
from burnish_app.look.tokens import SMALL_PX, UNIT
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.text import caption, heading
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.charts.content import ChartSpec
from burnish_app.widgets.charts.legend import LegendEntry
from burnish_app.widgets.charts.lines import ChartLine
from burnish_app.widgets.charts.more_button import MoreButton


class ChartHead(QWidget):
    """The line above a plot.

    Args:
        spec: description of the chart.
        lines: key to appearance of each line.

    Attributes:
        toggled: signal with the key of a line and whether it shall be shown; the empty key is the limit's.
        entries: key to legend entry of each line.
        limit: legend entry of the horizontal line.
        whole: button that shows the whole run.
        more: button that opens the options.
    """

    toggled = Signal(str, bool)

    def __init__(self, spec: ChartSpec, lines: Mapping[str, ChartLine]) -> None:
        super().__init__()
        self._small = spec.small
        words = FlowLayout(UNIT if spec.small else UNIT + 4, 0)
        title, unit = heading(spec.name), caption(spec.unit)
        for label in (title, unit):
            label.setWordWrap(False)
        (unit if spec.unit else title).setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        words.addWidget(title)
        if spec.unit:
            words.addWidget(unit)
        self.entries = {key: LegendEntry(line, short=spec.small) for key, line in lines.items()}
        self.limit = LegendEntry(ChartLine(spec.limit_label, kind="limit"), short=spec.small)
        for key, entry in {**self.entries, "": self.limit}.items():
            entry.toggled.connect(lambda shown, key=key: self.toggled.emit(key, shown))
            entry.hide()
            words.addWidget(entry)
        self.whole = quiet(tr("Show all"))
        self.whole.setFont(font(SMALL_PX, medium=True))
        self.whole.hide()
        self.more = MoreButton(tr("Options of the {name} chart").format(name=spec.name))
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(UNIT // 2)
        line.addLayout(words, 1)
        for button in (self.whole, self.more):
            line.addWidget(button, alignment=Qt.AlignmentFlag.AlignTop)

    def set_zoomed(self, zoomed: bool) -> None:
        """Offer the way back to the whole run, where there is room."""
        self.whole.setVisible(zoomed and not self._small)
