"""The widgets before the first step: the stages with their times, and a pale sample of the charts to come."""

from __future__ import annotations

import math

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QSizePolicy, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.status_dot import show_stage
from burnish_app.widgets.basic.text import body, caption
from burnish_app.wording.run_stages import RunStage

_PALE = 0.15
_POINTS = 60


class RunStages(Card):
    """Lists the stages before the first step, each with a sign and its time."""

    def __init__(self) -> None:
        super().__init__(tr("Before the first step"), tr("Each run is loaded and checked first."), icon_name="clock")
        self._grid, self._facts = _grid(), _grid()
        self._lines: list[tuple[QLabel, QLabel, QLabel]] = []
        self._fact_lines: list[tuple[QLabel, QLabel]] = []
        self._detail = caption("")
        self._detail.hide()
        self._detail_row = -1
        self._rule = _rule()
        self._rule.hide()
        fill(self.body, self._grid, self._rule, self._facts)

    def show_stages(self, stages: list[RunStage]) -> None:
        """Show the stages; cheap if only a time changed."""
        while len(self._lines) < len(stages):
            line = body(""), body(""), body("", "muted")
            for column, label in enumerate(line):
                label.setWordWrap(column == 1)
                self._grid.addWidget(label, 2 * len(self._lines), column)
            self._lines.append(line)
        for number, line in enumerate(self._lines):
            for label in line:
                label.setVisible(number < len(stages))
        self._show_detail(stages)
        for (sign, text, time), stage in zip(self._lines, stages, strict=False):
            show_stage(sign, text, stage.text, stage.status)
            _set(time, stage.time)

    def show_facts(self, facts: list[tuple[str, str]]) -> None:
        """Show what is known of the run, below the stages."""
        while len(self._fact_lines) < len(facts):
            line = caption(""), body("")
            for column, label in enumerate(line):
                self._facts.addWidget(label, len(self._fact_lines), column)
            self._fact_lines.append(line)
        for number, line in enumerate(self._fact_lines):
            for label in line:
                label.setVisible(number < len(facts))
        for line, fact in zip(self._fact_lines, facts, strict=False):
            for label, words in zip(line, fact, strict=True):
                _set(label, words)
        self._rule.setVisible(bool(facts))

    def _show_detail(self, stages: list[RunStage]) -> None:
        """Show what is being done within the running stage, below its name."""
        row, detail = next(((n, stage.detail) for n, stage in enumerate(stages) if stage.detail), (-1, ""))
        if row >= 0 and row != self._detail_row:
            self._detail_row = row
            self._grid.addWidget(self._detail, 2 * row + 1, 1, 1, 2)
        _set(self._detail, detail)
        self._detail.setVisible(bool(detail))


def _grid() -> QGridLayout:
    grid = QGridLayout()
    grid.setHorizontalSpacing(UNIT + 4)
    grid.setVerticalSpacing(UNIT)
    grid.setColumnStretch(1, 1)
    return grid


def _rule() -> QFrame:
    line = QFrame()
    line.setProperty("look", "rule")
    return line


def _set(label: QLabel, text: str) -> None:
    if label.text() != text:
        label.setText(text)


class ChartsToCome(QWidget):
    """A pale sample of the charts in their later places, so that a page is not blank before the first step.

    Args:
        text: words in the middle that say what is awaited.
    """

    def __init__(self, text: str = tr("Charts appear with the first step")) -> None:
        super().__init__()
        self._text = text
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName(text)

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(480, 280)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size."""
        return QSize(240, 200)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw frames and lines, and say when the charts come."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setOpacity(_PALE)
        large = QRectF(0, 0, self.width(), self.height() * 0.58)
        self._draw_lines(painter, large, colors.line, (colors.series[0].color, colors.series[1].color))
        width = (self.width() - 2 * GAP_PX) / 3
        for number in range(3):
            place = QRectF(number * (width + GAP_PX), large.bottom() + GAP_PX, width, self.height() * 0.42 - GAP_PX)
            self._draw_lines(painter, place, colors.line, (colors.series[3 - number].color,))
        painter.setOpacity(1.0)
        painter.setFont(font(medium=True))
        painter.setPen(QColor(colors.muted))
        painter.drawText(large, Qt.AlignmentFlag.AlignCenter, self._text)

    @staticmethod
    def _draw_lines(painter: QPainter, place: QRectF, grid: str, colors: tuple[str, ...]) -> None:
        painter.setPen(QPen(QColor(grid), 2))
        for row in range(4):
            y = place.top() + place.height() * row / 3
            painter.drawLine(QPointF(place.left(), y), QPointF(place.right(), y))
        for number, color in enumerate(colors):
            points = [
                QPointF(
                    place.left() + place.width() * at / (_POINTS - 1),
                    place.top()
                    + place.height()
                    * (0.85 - 0.7 * math.exp(-at / 14) - 0.08 * number + 0.03 * math.sin(at * 1.7) * (1 - number)),
                )
                for at in range(_POINTS)
            ]
            painter.setPen(QPen(QColor(color), 4))
            painter.drawPolyline(QPolygonF(points))
