"""The histogram of row lengths, with a line at the length where longer rows are cut."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import SMALL_PX, colors_of, font
from burnish_app.wording.numbers import plural
from burnish_engine.contract.facts.facts import LengthStats

_AXIS_PX = 20
_TOP_PX = 20


class LengthHistogram(QWidget):
    """Draws the bars of `LengthStats.histogram`, one per range of lengths; all ranges are equally wide."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bars: list[tuple[int, int]] = []
        self._cut_tokens = 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("Lengths of the rows"))

    def show_lengths(self, lengths: LengthStats | None, cut_tokens: int) -> None:
        """Replace the lengths shown.

        Args:
            lengths: length statistics of the rows; None shows nothing.
            cut_tokens: maximum length of the recipe, tokens.
        """
        self._bars = list(lengths.histogram) if lengths else []
        self._cut_tokens = cut_tokens
        if lengths:
            self.setAccessibleDescription(
                tr("Median {median:.0f} tokens, longest {longest} tokens").format(
                    median=lengths.median, longest=lengths.longest
                )
            )
        self.update()

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(360, 150)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size."""
        return QSize(200, 120)

    def cut_position(self) -> float | None:
        """Return the cut line's position as a share of the width; None if every row is shorter."""
        if not self._bars or self._cut_tokens >= self._bars[-1][0]:
            return None
        lower = 0
        for index, (upper, _) in enumerate(self._bars):
            if self._cut_tokens <= upper:
                return (index + (self._cut_tokens - lower) / max(upper - lower, 1)) / len(self._bars)
            lower = upper
        return None

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the bars, the cut line and the axis."""
        if not self._bars:
            return
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(font(SMALL_PX))
        painter.setPen(Qt.PenStyle.NoPen)
        cut = self.cut_position()
        for index in range(len(self._bars)):
            bar = self._bar(index)
            beyond = cut is not None and (index + 0.5) / len(self._bars) > cut
            painter.setBrush(QColor(colors.warning if beyond else colors.series[1].color))
            painter.drawRoundedRect(bar, 2, 2)
        base = self.height() - _AXIS_PX
        painter.setPen(QPen(QColor(colors.line), 1))
        painter.drawLine(QPointF(0, base + 0.5), QPointF(self.width(), base + 0.5))
        painter.setPen(QColor(colors.muted))
        self._paint_axis(painter, base)
        if cut is not None:
            self._paint_cut(painter, cut * self.width(), base, QColor(colors.warning))

    def event(self, event: QEvent) -> bool:
        """Show a tooltip with the range under the pointer."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip and self._bars:
            index = min(int(event.pos().x() / max(self.width(), 1) * len(self._bars)), len(self._bars) - 1)
            upper, rows = self._bars[index]
            lower = self._bars[index - 1][0] + 1 if index else 1
            QToolTip.showText(
                event.globalPos(),
                tr("{lower:,} to {upper:,} tokens: {rows}").format(lower=lower, upper=upper, rows=plural(rows, "row")),
                self,
            )
            return True
        return super().event(event)

    def _bar(self, index: int) -> QRectF:
        slot = self.width() / len(self._bars)
        room = self.height() - _AXIS_PX - _TOP_PX
        most = max(rows for _, rows in self._bars) or 1
        rows = self._bars[index][1]
        height = max(rows / most * room, 2.0 if rows else 0.0)
        return QRectF(index * slot + 1, self.height() - _AXIS_PX - height, max(slot - 2, 1.0), height)

    def _paint_axis(self, painter: QPainter, base: float) -> None:
        slot = self.width() / len(self._bars)
        every = max(1, round(64 / slot))
        for index in range(every - 1, len(self._bars), every):
            text = f"{self._bars[index][0]:,}"
            place = QRectF((index + 1) * slot - 64, base + 3, 62, _AXIS_PX - 3)
            painter.drawText(place, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, text)

    def _paint_cut(self, painter: QPainter, x: float, base: float, color: QColor) -> None:
        painter.setPen(QPen(color, 1.5, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(x, 2), QPointF(x, base))
        text = tr("cut at {cut_tokens:,}").format(cut_tokens=self._cut_tokens)
        width = painter.fontMetrics().horizontalAdvance(text)
        left = x + 6 if x + 6 + width < self.width() else x - 6 - width
        painter.drawText(QRectF(left, 0, width + 2, _TOP_PX), Qt.AlignmentFlag.AlignVCenter, text)
