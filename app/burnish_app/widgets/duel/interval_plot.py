"""A plot of differences with their intervals: a bar from low to high, the mean, and a dot for each pair of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from burnish_app.curves.ticks import linear_ticks
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import SMALL_PX, UNIT
from burnish_app.widgets.basic.wrapping_head import wrapped
from burnish_engine.contract.run.duels import DuelVerdictFacts

_ROW_PX, _AXIS_PX = 44, 36
_BAR_PX, _DOT_PX = 10, 3.0
_SIDE = 0.08  # share of the range left free at each side
_LABEL_SHARE, _LABEL_PX = 0.3, 220  # share of the width for labels, at most


class IntervalPlot(QWidget):
    """Draws verdicts that have an interval; zero is the line between the sides.

    Args:
        name: name for screen readers.
        left: text at the left end of the axis: who is better there.
        right: the same for the right end.
        label_of: function that returns the label of a verdict.
        amount_text: function that formats a value of the axis.

    Attributes:
        left: text at the left end.
        right: text at the right end.
        verdicts: verdicts that are drawn.
    """

    def __init__(
        self,
        name: str,
        left: str,
        right: str,
        label_of: Callable[[DuelVerdictFacts], str],
        amount_text: Callable[[float], str],
    ) -> None:
        super().__init__()
        self.left, self.right = left, right
        self._label_of, self._amount_text = label_of, amount_text
        self.verdicts: list[DuelVerdictFacts] = []
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_verdicts(self, verdicts: Sequence[DuelVerdictFacts]) -> None:
        """Show verdicts; those without an interval are left out."""
        self.verdicts = [one for one in verdicts if None not in (one.low, one.high, one.difference)]
        self.setAccessibleDescription("; ".join(one.text for one in self.verdicts))
        self.setVisible(bool(self.verdicts))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """Return the preferred size: a line for each verdict, and the axis."""
        return QSize(420, scaled(_ROW_PX) * len(self.verdicts) + scaled(_AXIS_PX))

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size."""
        return QSize(240, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the axis, the line of no difference, and each interval."""
        if not self.verdicts:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(font(SMALL_PX))
        labels_px = min(self.width() * _LABEL_SHARE, _LABEL_PX)
        plot = QRectF(labels_px + UNIT, 0, self.width() - labels_px - 2 * UNIT, self.height() - scaled(_AXIS_PX))
        low, high = self._range()

        def x(value: float) -> float:
            return plot.left() + plot.width() * (value - low) / (high - low)

        self._draw_axis(painter, plot, x, (low, high))
        for place, verdict in enumerate(self.verdicts):
            middle = (place + 0.5) * scaled(_ROW_PX)
            self._draw_label(painter, QRectF(0, middle - scaled(_ROW_PX) / 2, labels_px, scaled(_ROW_PX)), verdict)
            self._draw_interval(painter, middle, x, verdict)

    def _range(self) -> tuple[float, float]:
        values = [0.0]
        for one in self.verdicts:
            values += [one.low or 0.0, one.high or 0.0, *one.pairs]
        low, high = min(values), max(values)
        side = (high - low or 1.0) * _SIDE
        return low - side, high + side

    def _draw_axis(
        self, painter: QPainter, plot: QRectF, x: Callable[[float], float], ends: tuple[float, float]
    ) -> None:
        colors, metrics = colors_of(self), QFontMetricsF(painter.font())
        line = scaled(_AXIS_PX) / 2
        for tick, _text in linear_ticks(*ends, max(round(plot.width() / 90), 2)):
            painter.setPen(QPen(QColor(colors.line), 1))
            painter.drawLine(QPointF(x(tick), plot.top()), QPointF(x(tick), plot.bottom()))
            text = self._amount_text(tick)
            width = metrics.horizontalAdvance(text)
            if plot.left() - UNIT <= x(tick) - width / 2 and x(tick) + width / 2 <= plot.right() + UNIT:
                painter.setPen(QColor(colors.muted))
                where = QRectF(x(tick) - width / 2 - 1, plot.bottom(), width + 2, line)
                painter.drawText(where, Qt.AlignmentFlag.AlignCenter, text)
        painter.setPen(QPen(QColor(colors.text), 1.4))
        painter.drawLine(QPointF(x(0.0), plot.top()), QPointF(x(0.0), plot.bottom()))
        painter.setPen(QColor(colors.muted))
        below = QRectF(plot.left() - UNIT, plot.bottom() + line, plot.width() + 2 * UNIT, line)
        sides = ((f"← {self.left}", Qt.AlignmentFlag.AlignLeft), (f"{self.right} →", Qt.AlignmentFlag.AlignRight))
        if max(metrics.horizontalAdvance(text) for text, _ in sides) > below.width() / 2 - UNIT:
            below.setLeft(0)  # there is room below the labels
        half = below.width() / 2 - UNIT
        for text, side in sides:
            shown = metrics.elidedText(text, Qt.TextElideMode.ElideMiddle, half)
            painter.drawText(below, side | Qt.AlignmentFlag.AlignVCenter, shown)

    def _draw_label(self, painter: QPainter, place: QRectF, verdict: DuelVerdictFacts) -> None:
        painter.setPen(QColor(colors_of(self).text))
        text = "\n".join(wrapped(self._label_of(verdict), painter.fontMetrics(), int(place.width())))
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, text)

    def _draw_interval(
        self, painter: QPainter, middle: float, x: Callable[[float], float], verdict: DuelVerdictFacts
    ) -> None:
        colors = colors_of(self)
        ink = QColor(colors.success if verdict.winner is not None else colors.edge)
        bar = QColor(ink)
        bar.setAlphaF(0.28)
        low, high, mean = verdict.low or 0.0, verdict.high or 0.0, verdict.difference or 0.0
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(bar)
        painter.drawRoundedRect(
            QRectF(x(low), middle - _BAR_PX / 2, max(x(high) - x(low), 2.0), _BAR_PX), _BAR_PX / 2, _BAR_PX / 2
        )
        painter.setPen(QPen(ink, 2.4, c=Qt.PenCapStyle.RoundCap))
        painter.drawLine(QPointF(x(mean), middle - _BAR_PX), QPointF(x(mean), middle + _BAR_PX))
        painter.setPen(QPen(QColor(colors.surface), 1.2))
        painter.setBrush(QColor(colors.text))
        for pair in verdict.pairs:
            painter.drawEllipse(QPointF(x(pair), middle), _DOT_PX, _DOT_PX)


def legend_text(level: float) -> str:
    """Explain the plot in a sentence.

    Args:
        level: confidence level of the intervals.
    """
    words = tr("Bar: {level} % interval. Stroke: mean. Dots: one for each pair of runs with the same seed.")
    return words.format(level=f"{100 * level:.4g}")
