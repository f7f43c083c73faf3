"""Small marks that show a status by shape and color: of a step in the sidebar, and of a stage in a list."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from burnish_app.look.theme import colors_of
from burnish_app.state.step_status import STEP_STATUS_TEXT, StageStatus, StepStatus
from burnish_app.widgets.basic.text import Look, set_tone

_SIGNS: dict[StageStatus, str] = {"done": "✓", "now": "●", "waiting": "○"}
_LOOKS: dict[StageStatus, Look] = {"done": "success", "now": "accent", "waiting": "muted"}


class StatusDot(QWidget):
    """Shows a status: a faint ring for empty, an accent ring for ready, a dot for busy, a check mark, or a triangle."""

    def __init__(self, status: StepStatus = "empty") -> None:
        super().__init__()
        self._status: StepStatus = status
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set_status(status)

    @property
    def status(self) -> StepStatus:
        """The status shown."""
        return self._status

    def set_status(self, status: StepStatus) -> None:
        """Show another status."""
        self._status = status
        self.setToolTip(STEP_STATUS_TEXT[status])
        self.setAccessibleName(STEP_STATUS_TEXT[status])
        self.update()

    def sizeHint(self) -> QSize:
        """Return the size: twelve pixels square."""
        return QSize(12, 12)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the mark."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._status in ("empty", "ready"):
            color, width = (colors.faint, 1.4) if self._status == "empty" else (colors.accent_ink, 2.0)
            painter.setPen(QPen(QColor(color), width))
            painter.drawEllipse(QRectF(2, 2, 8, 8))
        elif self._status == "busy":
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.accent))
            painter.drawEllipse(QRectF(1, 1, 10, 10))
        elif self._status == "done":
            painter.setPen(QPen(QColor(colors.success), 1.8, c=Qt.PenCapStyle.RoundCap))
            painter.drawPolyline(QPolygonF([QPointF(2, 6.5), QPointF(5, 9.5), QPointF(10, 3)]))
        else:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colors.error))
            painter.drawPolygon(QPolygonF([QPointF(6, 1), QPointF(11.5, 11), QPointF(0.5, 11)]))


def show_stage(sign: QLabel, text_label: QLabel, text: str, status: StageStatus) -> None:
    """Show a stage; cheap if nothing changed.

    Args:
        sign: label of the sign.
        text_label: label of the text.
        text: what the stage does.
        status: whether it is done, running now, or waiting.
    """
    for label, shown in ((sign, _SIGNS[status]), (text_label, text)):
        if label.text() != shown:
            label.setText(shown)
    set_tone(sign, _LOOKS[status])
    set_tone(text_label, "muted" if status == "waiting" else "")
