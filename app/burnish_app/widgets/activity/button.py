"""The button of what is running: a progress ring with a count, the first one's name, and its time left."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFocusEvent, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QSizePolicy

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import CONTROL_RADIUS_PX, RING_PX, SMALL_PX, UNIT
from burnish_app.wording.activity import Activity, activity_text, short_text

_HEIGHT_PX, _WIDTH_PX = 46, 160
_RING_PX, _STROKE_PX = 30, 4.0
_TURN = 16 * 360  # a whole turn in Qt's sixteenths of a degree
_UNKNOWN_SHARE = 0.15  # share of the ring that is drawn where the activity tells none


class ActivityButton(QAbstractButton):
    """Shows in short what is running; a press opens the list.

    Attributes:
        activities: what is running.
    """

    def __init__(self) -> None:
        super().__init__()
        self.activities: list[Activity] = []
        self._by_keyboard = False
        self.setCheckable(True)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.hide()

    def show_activities(self, activities: Sequence[Activity]) -> None:
        """Show what is running; without anything the button is hidden."""
        if list(activities) == self.activities:
            return
        self.activities = list(activities)
        self.setVisible(bool(activities))
        lines = [activity_text(one) for one in activities]
        self.setToolTip("\n".join(lines))
        self.setAccessibleName(tr("{n} running").format(n=len(lines)))
        self.setAccessibleDescription("; ".join(lines))
        self.update()

    def sizeHint(self) -> QSize:
        """Return the preferred size: the ring beside two lines."""
        return QSize(_WIDTH_PX, scaled(_HEIGHT_PX))

    def event(self, event: QEvent) -> bool:
        """Repaint when the pointer enters or leaves."""
        if event.type() in (QEvent.Type.Enter, QEvent.Type.Leave):
            self.update()
        return super().event(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Remember whether the focus came by keyboard: only then it is drawn."""
        self._by_keyboard = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        super().focusInEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the ring with the count, the first one's name, and what is done."""
        if not self.activities:
            return
        first, colors = self.activities[0], colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.underMouse() or self.isChecked():
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.surface if self.isChecked() else colors.window))
            painter.drawRoundedRect(self.rect(), CONTROL_RADIUS_PX, CONTROL_RADIUS_PX)
        if self.hasFocus() and self._by_keyboard:
            painter.setPen(QPen(QColor(colors.focus), RING_PX))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            edge = QRectF(self.rect()).adjusted(1, 1, -1, -1)
            painter.drawRoundedRect(edge, CONTROL_RADIUS_PX, CONTROL_RADIUS_PX)
        self._draw_ring(painter, first)
        left = UNIT + _RING_PX + UNIT
        room = QRectF(left, UNIT / 2, self.width() - left - UNIT, self.height() - UNIT)
        for text, side, bold, ink in (
            (first.name, Qt.AlignmentFlag.AlignTop, True, colors.text),
            (short_text(first), Qt.AlignmentFlag.AlignBottom, False, colors.muted),
        ):
            painter.setFont(font(SMALL_PX, medium=bold))
            painter.setPen(QColor(ink))
            shown = QFontMetrics(painter.font()).elidedText(text, Qt.TextElideMode.ElideRight, int(room.width()))
            painter.drawText(room, Qt.AlignmentFlag.AlignLeft | side, shown)

    def _draw_ring(self, painter: QPainter, first: Activity) -> None:
        colors = colors_of(self)
        ring = QRectF(UNIT, (self.height() - _RING_PX) / 2, _RING_PX, _RING_PX).adjusted(2, 2, -2, -2)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(QColor(colors.line), _STROKE_PX))
        painter.drawEllipse(ring)
        share = _UNKNOWN_SHARE if first.share is None else first.share
        ink = QColor(colors.accent if first.moves else colors.faint)
        painter.setPen(QPen(ink, _STROKE_PX, c=Qt.PenCapStyle.RoundCap))
        if share > 0:
            painter.drawArc(ring, _TURN // 4, -round(_TURN * share))
        painter.setFont(font(SMALL_PX, bold=True))
        painter.setPen(QColor(colors.text))
        painter.drawText(ring, Qt.AlignmentFlag.AlignCenter, str(len(self.activities)))
