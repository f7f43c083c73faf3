"""The entries of a chart's legend: a piece of the line, its name and its newest value; a click shows or hides it."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QSizePolicy

from burnish_app.look.chart_style import AREA_ALPHA
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import RING_PX, SMALL_PX, SMALL_RADIUS_PX
from burnish_app.widgets.charts.lines import ChartLine

_SWATCH_PX, _SHORT_SWATCH_PX, _GAP_PX, _HEIGHT_PX = 20, 14, 6, 22
_NAME_PX, _MOST_NAME_PX = 240, 280  # longest name, also in large text; a longer one would widen the page


class LegendEntry(QAbstractButton):
    """A button that shows or hides a line.

    Args:
        line: appearance of the line.
        short: whether the name is left to the tooltip and screen readers, where there is little room.
    """

    def __init__(self, line: ChartLine, *, short: bool = False) -> None:
        super().__init__()
        self._line, self._short, self._name, self._value = line, short, line.label, ""
        self._swatch_px = _SHORT_SWATCH_PX if short else _SWATCH_PX
        self.setCheckable(True)
        self.setChecked(True)
        self.setFont(font(SMALL_PX))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set_name(line.label)
        self.set_value("")

    def set_value(self, value: str) -> None:
        """Show a value behind the name; empty: none."""
        self._value = value
        named = f"{self._name} {value}".strip()
        text = value if self._short else named
        self.setAccessibleName(named)
        if text != self.text():
            self.setText(text)
            self.updateGeometry()

    def set_label(self, label: str) -> None:
        """Show another name without a value."""
        self.set_name(label)
        self.set_value("")

    def set_name(self, name: str) -> None:
        """Replace the line's name."""
        self._name = name
        hint = tr("Click to show or hide this line.")
        self.setToolTip(f"{name}. {hint}" if name else hint)

    def sizeHint(self) -> QSize:
        """Return the size of swatch and text."""
        width = sum(_GAP_PX + QFontMetrics(used).horizontalAdvance(text) for used, text in self._parts())
        return QSize(self._swatch_px + width + 4, scaled(_HEIGHT_PX))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the swatch and the text; both pale while the line is hidden."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if not self.isChecked():
            painter.setOpacity(0.45)
        self.draw(painter)
        if self.hasFocus():
            painter.setOpacity(1.0)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(QColor(colors_of(self).focus), RING_PX))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), SMALL_RADIUS_PX, SMALL_RADIUS_PX)

    def draw(self, painter: QPainter) -> None:
        """Draw the swatch and the text, on the screen or into a picture."""
        colors = colors_of(self)
        middle = self.height() / 2
        pen = self._line.pen(colors)
        pen.setCosmetic(False)  # as wide as in the plot on any screen
        if self._line.kind == "area":
            fill = self._line.color(colors)
            fill.setAlpha(AREA_ALPHA)
            painter.fillRect(QRectF(3, middle - 5, 10, 10), fill)
        else:
            painter.setPen(pen)
            painter.drawLine(QPointF(2, middle), QPointF(self._swatch_px - 1, middle))
        if self._line.kind == "points":
            painter.setBrush(pen.color())
            painter.setPen(Qt.PenStyle.NoPen)
            painter.drawEllipse(QPointF(self._swatch_px / 2 + 0.5, middle), 3, 3)
        painter.setPen(QColor(colors.text if self.underMouse() else colors.muted))
        left = self._swatch_px + _GAP_PX
        for used, text in self._parts():
            used.setStrikeOut(not self.isChecked())
            painter.setFont(used)
            painter.drawText(QRectF(left, 0, self.width(), self.height()), Qt.AlignmentFlag.AlignVCenter, text)
            left += QFontMetrics(used).horizontalAdvance(text) + _GAP_PX

    def _parts(self) -> list[tuple[QFont, str]]:
        """Return name and value with their fonts: a name may end with a number of its own."""
        used = font(SMALL_PX)
        name = QFontMetrics(used).elidedText(
            self._name, Qt.TextElideMode.ElideMiddle, min(scaled(_NAME_PX), _MOST_NAME_PX)
        )
        parts = [] if self._short or not name else [(used, name)]
        return [*parts, (font(SMALL_PX, medium=True), self._value)] if self._value else parts
