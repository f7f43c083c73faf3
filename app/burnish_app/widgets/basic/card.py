"""Cards (surfaces with a heading), the ground that draws their shadows, icons, and empty states."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter, QPainterPath, QPaintEvent, QPen, QPixmap, QPixmapCache
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from burnish_app.look.icons import pixmap
from burnish_app.look.theme import colors_of
from burnish_app.look.tokens import (
    CHIP_PX,
    CONTROL_RADIUS_PX,
    GAP_PX,
    ICON_PX,
    RADIUS_PX,
    SHADOWS,
    TINT,
    UNIT,
    Colors,
)
from burnish_app.widgets.basic.buttons import Slot, secondary
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import body, caption, heading
from burnish_app.widgets.basic.wrapping import FlowLayout, HeadLayout

_PLATE_PX = (132, 84)
"""Size of the plate in the drawing of what is empty."""


class Card(QFrame):
    """A surface that groups the widgets of one topic.

    Args:
        heading_text: heading of the card; empty: none.
        hint: small text under the heading; empty: none.
        icon_name: file name in `assets/icons` of a tinted icon beside the heading; empty: none.

    Attributes:
        body: layout for the content.
        corner: layout at the right of the heading, for small actions or a status.
    """

    def __init__(self, heading_text: str = "", hint: str = "", *, icon_name: str = "") -> None:
        super().__init__()
        self.setProperty("look", "card")
        self.setAccessibleName(heading_text)
        outer = fill(QVBoxLayout(self), spacing_px=UNIT + 4, margins_px=GAP_PX)
        self.corner = FlowLayout()
        self._heading_label = heading(heading_text)
        if heading_text:
            outer.addLayout(self._make_head(hint, icon_name))
        elif hint:
            outer.addWidget(caption(hint))
        self.body = fill(QVBoxLayout(), spacing_px=UNIT)
        outer.addLayout(self.body)

    def _make_head(self, hint: str, icon_name: str) -> QHBoxLayout:
        words = fill(HeadLayout(), self._heading_label)
        if hint:
            words.addWidget(caption(hint))
        words.addLayout(self.corner)
        head = fill(QHBoxLayout(), spacing_px=UNIT + 4)
        if icon_name:
            head.addWidget(IconChip(icon_name), alignment=Qt.AlignmentFlag.AlignTop)
            if not hint:
                self._heading_label.setMinimumHeight(CHIP_PX)  # beside the middle of the icon
        head.addLayout(words, 1)
        return head

    def set_heading(self, text: str) -> None:
        """Replace the heading of a card that was made with one."""
        self._heading_label.setText(text)
        self.setAccessibleName(text)


class IconLabel(QLabel):
    """An icon whose color follows the theme.

    Args:
        name: file name in `assets/icons` without its ending.
        size_px: edge length, device-independent pixels.
        color: name of a color of `theme.Colors`.
    """

    def __init__(self, name: str, size_px: int = 20, color: str = "muted") -> None:
        super().__init__()
        self._name, self._size_px, self._color = name, size_px, color
        self.setFixedSize(size_px, size_px)
        self._draw()

    def changeEvent(self, event: QEvent) -> None:
        """Redraw the icon when the palette changes."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._draw()

    def _draw(self) -> None:
        color = getattr(colors_of(self), self._color)
        self.setPixmap(pixmap(self._name, color, self._size_px, pixel_ratio=self.devicePixelRatioF()))


class IconChip(QWidget):
    """An icon on a square that is tinted with the accent color, beside the heading of a card.

    Args:
        name: file name in `assets/icons` without its ending.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.setFixedSize(CHIP_PX, CHIP_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the square and the icon."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        tint = QColor(colors.accent)
        tint.setAlphaF(TINT)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(tint)
        painter.drawRoundedRect(self.rect(), CONTROL_RADIUS_PX, CONTROL_RADIUS_PX)
        drawn = pixmap(self._name, colors.accent_ink, ICON_PX, pixel_ratio=self.devicePixelRatioF())
        at = (CHIP_PX - ICON_PX) // 2
        painter.drawPixmap(at, at, drawn)


class CardGround(QWidget):
    """A page's ground: it draws the soft shadows of the cards on it."""

    def event(self, event: QEvent) -> bool:
        """Repaint when the layout moved something: a shadow reaches beyond its card."""
        if event.type() == QEvent.Type.LayoutRequest:
            self.update()
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the shadow of each card that is shown."""
        painter = QPainter(self)
        shadow = _shadow(colors_of(self))
        for card in self.findChildren(QFrame):
            if card.property("look") == "card" and card.isVisible():
                place = QRect(card.mapTo(self, QPoint(0, 0)), card.size())
                if place.adjusted(-_REACH_PX, -_REACH_PX, _REACH_PX, _REACH_PX).intersects(event.rect()):
                    _draw_frame(painter, shadow, place)


_REACH_PX = max(offset + blur for offset, blur, _ in SHADOWS)
_CORNER_PX = _REACH_PX + RADIUS_PX + 1
_DARK_SHADOW = 5.0  # a shadow on dark has to be that much stronger to be seen


def _shadow(colors: Colors) -> QPixmap:
    """Return the shadow of a small card, whose corners and edges fit any card."""
    key = f"shadow-{colors.dark}"
    drawn = QPixmap()
    if not QPixmapCache.find(key, drawn):
        drawn = QPixmap.fromImage(_shadow_image(_DARK_SHADOW if colors.dark else 1.0))
        QPixmapCache.insert(key, drawn)
    return drawn


def _shadow_image(strength: float) -> QImage:
    edge = 2 * _CORNER_PX + 1
    made = QImage(edge, edge, QImage.Format.Format_ARGB32)
    made.fill(0)
    half = edge / 2 - _REACH_PX  # of the card
    for y in range(edge):
        for x in range(_CORNER_PX + 1):
            opacity = 0.0
            for offset, blur, share in SHADOWS:
                across = max(abs(x + 0.5 - edge / 2) - half + RADIUS_PX, 0.0)
                down = max(abs(y + 0.5 - edge / 2 - offset) - half + RADIUS_PX, 0.0)
                away = ((across**2 + down**2) ** 0.5 - RADIUS_PX) / blur
                opacity += share * strength * min(max(0.5 - away / 2, 0.0), 1.0) ** 2
            alpha = round(255 * opacity)
            made.setPixel(x, y, alpha << 24)
            made.setPixel(edge - 1 - x, y, alpha << 24)
    return made


def _thirds(start: int, length: int, edge: int) -> list[tuple[int, int, int, int]]:
    """Cut a side into corner, middle and corner, each as (start, length, start in the shadow, length there)."""
    corner = _CORNER_PX
    return [
        (start, corner, 0, corner),
        (start + corner, length - 2 * corner, corner, 1),
        (start + length - corner, corner, edge - corner, corner),
    ]


def _draw_frame(painter: QPainter, shadow: QPixmap, place: QRect) -> None:
    """Draw corners and edges of a shadow around a rectangle; what is below the card is left out."""
    edge = shadow.width()
    outer = place.adjusted(-_REACH_PX, -_REACH_PX, _REACH_PX, _REACH_PX)
    columns = _thirds(outer.left(), outer.width(), edge)
    rows = _thirds(outer.top(), outer.height(), edge)
    for down, (top, height, from_top, tall) in enumerate(rows):
        for across, (left, width, from_left, wide) in enumerate(columns):
            if (down, across) != (1, 1) and width > 0 and height > 0:
                target = QRectF(left, top, width, height)
                painter.drawPixmap(target, shadow, QRectF(from_left, from_top, wide, tall))


class EmptyDrawing(QWidget):
    """The drawing of all that is empty: a plate that waits for its curve, with the sign of what will be there.

    Args:
        icon_name: file name in `assets/icons` of the sign, without its ending.
    """

    def __init__(self, icon_name: str) -> None:
        super().__init__()
        self._icon_name = icon_name
        self.setFixedSize(_PLATE_PX[0] + CHIP_PX // 2, _PLATE_PX[1] + CHIP_PX // 2)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the plate, the curve and the sign."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        plate = QRectF(1, 1, _PLATE_PX[0] - 2, _PLATE_PX[1] - 2)
        painter.setPen(QPen(QColor(colors.line), 1.5))
        painter.setBrush(QColor(colors.window))
        painter.drawRoundedRect(plate, RADIUS_PX, RADIUS_PX)
        inner = plate.adjusted(2 * UNIT, 2 * UNIT, -2 * UNIT, -2 * UNIT)
        for number in range(3):
            height = inner.top() + number * inner.height() / 2
            painter.drawLine(QPointF(inner.left(), height), QPointF(inner.right(), height))
        curve = QPainterPath(inner.topLeft())
        curve.cubicTo(
            QPointF(inner.left() + inner.width() * 0.25, inner.bottom()),
            QPointF(inner.left() + inner.width() * 0.45, inner.bottom() - 4),
            QPointF(inner.right(), inner.bottom() - 4),
        )
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(QColor(colors.accent), 2.5, c=Qt.PenCapStyle.RoundCap))
        painter.drawPath(curve)
        chip = QRectF(self.width() - CHIP_PX - 1, self.height() - CHIP_PX - 1, CHIP_PX, CHIP_PX)
        painter.setPen(QPen(QColor(colors.surface), 3))
        painter.setBrush(QColor(colors.accent_soft))
        painter.drawRoundedRect(chip, CONTROL_RADIUS_PX, CONTROL_RADIUS_PX)
        sign = pixmap(self._icon_name, colors.accent_ink, ICON_PX, pixel_ratio=self.devicePixelRatioF())
        margin = (CHIP_PX - ICON_PX) / 2
        painter.drawPixmap(QPointF(chip.left() + margin, chip.top() + margin), sign)


class EmptyState(QWidget):
    """The placeholder of an empty page or card: a drawing, a sentence, and a button that leads on.

    Args:
        icon_name: file name in `assets/icons` without its ending.
        text: sentence that says what is missing.
        action: text of the button; empty: none.
        slot: function that the button calls.
        action_icon: icon of the button; empty: none.
        detail: second, smaller sentence; empty: none.
    """

    def __init__(
        self,
        icon_name: str,
        text: str,
        action: str = "",
        slot: Slot | None = None,
        *,
        action_icon: str = "",
        detail: str = "",
    ) -> None:
        super().__init__()
        center = Qt.AlignmentFlag.AlignHCenter
        column = fill(
            QVBoxLayout(self),
            (EmptyDrawing(icon_name), 0, center),
            spacing_px=2 * UNIT,
            margins_px=(3 * UNIT, 5 * UNIT, 3 * UNIT, 5 * UNIT),
        )
        for label in (body(text), caption(detail)):
            label.setAlignment(center)
            column.addWidget(label)  # first: shown without a parent it would be a window
            label.setVisible(bool(label.text()))
        if action:
            column.addWidget(secondary(action, slot, action_icon), alignment=center)
