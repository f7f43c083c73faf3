"""Check boxes and radio buttons whose text wraps where it has no room; Qt's own would cut it or widen the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import (
    QAbstractButton,
    QCheckBox,
    QRadioButton,
    QSizePolicy,
    QStyle,
    QStyleOptionButton,
    QStylePainter,
)

from burnish_app.look.theme import colors_of
from burnish_app.look.tokens import RING_PX, SMALL_RADIUS_PX

if TYPE_CHECKING:

    class _Button(QAbstractButton):
        def initStyleOption(self, option: QStyleOptionButton) -> None: ...
else:
    _Button = object  # Qt's classes cannot be inherited from twice
_WRAP = int(Qt.TextFlag.TextWordWrap)


class _Wrapping(_Button):
    """The common part: sizes, and the drawing of a sign beside wrapped text.

    A subclass sets the style's parts that it is drawn with.
    """

    _content: QStyle.SubElement
    _control: QStyle.ControlElement

    def allow_wrapping(self) -> None:
        """Let layouts ask for the height at a width, and make the button narrower than its text."""
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size: as wide as the longest word."""
        words = self.text().split()
        widest = max((self._metrics().horizontalAdvance(word) for word in words), default=0)
        return QSize(min(self._beside_px() + widest, self.sizeHint().width()), self.sizeHint().height())

    def hasHeightForWidth(self) -> bool:
        """Return True: narrower text takes more lines."""
        return True

    def heightForWidth(self, width: int) -> int:
        """Return the height at a width, pixels."""
        hint = self.sizeHint()
        if width >= hint.width():
            return hint.height()
        return hint.height() - self._metrics().height() + self._text_rect(width).height()

    def hitButton(self, position: QPoint) -> bool:
        """Return whether a press there is on the button: all of it is."""
        return self.rect().contains(position)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the sign beside the first line, and the text in as many lines as it needs."""
        option = QStyleOptionButton()
        self.initStyleOption(option)
        painter = QStylePainter(self)
        if self.width() >= self.sizeHint().width():
            painter.drawControl(self._control, option)
            return
        first_px = self.sizeHint().height()
        focused = bool(option.state & QStyle.StateFlag.State_HasFocus)
        option.text = ""
        option.rect = QRect(0, 0, self.width(), first_px)
        option.state &= ~QStyle.StateFlag.State_HasFocus
        painter.drawControl(self._control, option)
        colors = colors_of(self)
        text = self._text_rect(self.width()).translated(self._left_px(), (first_px - self._metrics().height()) // 2)
        painter.setPen(QColor(colors.text if self.isEnabled() else colors.faint))
        painter.drawText(text, _WRAP, self.text())
        if focused:
            self._draw_ring(painter, colors.focus)

    def _draw_ring(self, painter: QPainter, color: str) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(color), RING_PX))
        half = RING_PX / 2
        painter.drawRoundedRect(
            QRectF(self.rect()).adjusted(half, half, -half, -half), SMALL_RADIUS_PX, SMALL_RADIUS_PX
        )

    def _metrics(self) -> QFontMetrics:
        return QFontMetrics(self.font())

    def _beside_px(self) -> int:
        """Return the width of all but the text."""
        return self.sizeHint().width() - self._metrics().horizontalAdvance(self.text())

    def _left_px(self) -> int:
        """Return where the text begins."""
        option = QStyleOptionButton()
        self.initStyleOption(option)
        option.rect = QRect(QPoint(0, 0), self.sizeHint())
        return self.style().subElementRect(self._content, option, self).left()

    def _text_rect(self, width: int) -> QRect:
        room = QRect(0, 0, max(width - self._beside_px(), 1), 1 << 16)
        return QRect(0, 0, room.width(), self._metrics().boundingRect(room, _WRAP, self.text()).height())


class WrappingCheckBox(_Wrapping, QCheckBox):
    """A check box whose text wraps."""

    _content = QStyle.SubElement.SE_CheckBoxContents
    _control = QStyle.ControlElement.CE_CheckBox

    def __init__(self, text: str = "") -> None:
        QCheckBox.__init__(self, text)
        self.allow_wrapping()


class WrappingRadioButton(_Wrapping, QRadioButton):
    """A radio button whose text wraps."""

    _content = QStyle.SubElement.SE_RadioButtonContents
    _control = QStyle.ControlElement.CE_RadioButton

    def __init__(self, text: str = "") -> None:
        QRadioButton.__init__(self, text)
        self.allow_wrapping()
