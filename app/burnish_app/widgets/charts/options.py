"""The options of a chart: axis, range, smoothing, what to save; in a small window that a click beside it closes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QCheckBox, QFrame, QGridLayout, QHBoxLayout, QSlider, QVBoxLayout, QWidget

from burnish_app.curves.run_axis import X_KINDS
from burnish_app.look.language import tr
from burnish_app.look.theme import SMALL_PX, UNIT, font
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.pill import Segmented
from burnish_app.widgets.basic.text import caption
from burnish_app.widgets.charts.chart import Chart
from burnish_engine.contract.smoothing import WINDOWS

_LATEST = (1000, 100)


class ChartOptions(QFrame):
    """Shows and changes the options of one chart.

    Args:
        chart: chart whose options they are.

    Attributes:
        table_wanted: signal with the chart whose values shall be shown as a table.
        save_wanted: signal with the chart and the kind of file: "png", "svg" or "csv".
        enlarge_wanted: signal with the chart that shall take all of the room, or give it back.
    """

    table_wanted = Signal(object)
    save_wanted = Signal(object, str)
    enlarge_wanted = Signal(object)

    def __init__(self, chart: Chart) -> None:
        super().__init__(chart, Qt.WindowType.Popup)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAccessibleName(tr("Options of the {name} chart").format(name=chart.name))
        self._chart = chart
        link = chart.link
        grid = QGridLayout()
        grid.setHorizontalSpacing(2 * UNIT)
        grid.setVerticalSpacing(UNIT)
        column = fill(QVBoxLayout(self), grid, spacing_px=UNIT, margins_px=2 * UNIT)
        units = {"step": tr("Steps"), "tokens": tr("Tokens"), "time": tr("Time")}
        self.axis = Segmented(tr("Axis, all charts"), [(kind, units[kind]) for kind in X_KINDS])
        self.axis.choose(link.kind)
        self.axis.chosen.connect(link.set_kind)
        ranges = [(str(steps), tr("Last {steps}").format(steps=f"{steps:,}")) for steps in _LATEST]
        self.range = Segmented(tr("Range, all charts"), [("0", tr("Whole run")), *ranges])
        self.range.choose(str(link.latest) if link.latest or not link.zoomed else "")
        self.range.chosen.connect(lambda steps: link.show_latest(int(steps)))
        scales = [("linear", tr("Linear")), ("log", tr("Logarithmic"))]
        self.scale = Segmented(tr("Scale"), scales)
        self.scale.choose("log" if chart.content.log else "linear")
        self.scale.chosen.connect(lambda scale: chart.set_log(scale == "log"))
        for choice in (self.axis, self.range, self.scale):
            _add(grid, choice.accessibleName(), choice)
        self.clip = QCheckBox(tr("Leave out the highest 1 % of the values"))
        self.clip.setFont(font(SMALL_PX))
        self.clip.setChecked(chart.content.clip)
        self.clip.toggled.connect(chart.set_clip)
        _add(grid, "", self.clip)
        if chart.spec.smooth:
            self._add_smoothing(grid)
        self._add_actions(column)
        hint = tr("Drag, or Ctrl and wheel: zoom. Double click: show all. Shift and drag: move. Click: pin values.")
        column.addWidget(caption(hint))

    def open_at(self, corner: QPoint) -> None:
        """Open below a point, with the right edge at it, and within the screen."""
        self.adjustSize()
        area = self._chart.screen().availableGeometry()
        left = min(max(corner.x() - self.width(), area.left()), area.right() - self.width())
        self.move(left, min(corner.y() + 4, area.bottom() - self.height()))
        self.show()
        self.setFocus()

    def _add_smoothing(self, grid: QGridLayout) -> None:
        self.smoothing = QSlider(Qt.Orientation.Horizontal)
        self.smoothing.setRange(0, len(WINDOWS) - 1)
        self.smoothing.setPageStep(1)
        self.smoothing.setAccessibleName(tr("Smoothing"))
        nearest = min(WINDOWS, key=lambda window: abs(window - self._chart.content.window))
        self.smoothing.setValue(WINDOWS.index(nearest))
        self.smoothing_text = caption(self._window_text(nearest))
        self.smoothing_text.setWordWrap(False)
        self.smoothing_text.setMinimumWidth(110)
        self.smoothing.valueChanged.connect(self._smooth)
        holder = QWidget()
        fill(QHBoxLayout(holder), (self.smoothing, 1), self.smoothing_text)
        _add(grid, tr("Smoothing"), holder)

    def _smooth(self, at: int) -> None:
        self.smoothing_text.setText(self._window_text(WINDOWS[at]))
        self._chart.set_window(WINDOWS[at])

    def _window_text(self, window: int) -> str:
        if window <= 1:
            return tr("none")
        return tr("mean of {steps} steps").format(steps=f"{window:,}")

    def _add_actions(self, column: QVBoxLayout) -> None:
        actions: list[tuple[str, Callable[[], None]]] = [
            (tr("View as table"), lambda: self.table_wanted.emit(self._chart)),
            (tr("Enlarge or restore"), lambda: self.enlarge_wanted.emit(self._chart)),
            (tr("PNG ..."), lambda: self.save_wanted.emit(self._chart, "png")),
            (tr("SVG ..."), lambda: self.save_wanted.emit(self._chart, "svg")),
            (tr("CSV ..."), lambda: self.save_wanted.emit(self._chart, "csv")),
        ]
        line = fill(QHBoxLayout(), spacing_px=0)
        for text, action in actions:
            button = quiet(text, partial(self._act, action))
            button.setFont(font(SMALL_PX))
            line.addWidget(button)
        line.addStretch()
        column.addLayout(line)

    def _act(self, action: Callable[[], None]) -> None:
        self.close()
        action()


def _add(grid: QGridLayout, name: str, widget: QWidget) -> None:
    at = grid.rowCount()
    label = caption(name)
    label.setWordWrap(False)
    grid.addWidget(label, at, 0)
    grid.addWidget(widget, at, 1)
    if name:
        widget.setAccessibleName(name)
