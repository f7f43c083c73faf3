"""The studio's own line icons, drawn in whatever color the theme asks for."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap, QPixmapCache
from PySide6.QtSvg import QSvgRenderer

from burnish_engine.contract.paths import assets_dir


def icon(name: str, color: str, size_px: int = 20, *, disabled: str = "", pixel_ratio: float = 2.0) -> QIcon:
    """Load an icon of `assets/icons` in a color.

    Args:
        name: file name without its ending.
        color: color as #rrggbb; it replaces `currentColor` in the drawing.
        size_px: edge length, device-independent pixels.
        disabled: color while what shows the icon is disabled; empty: the same.
        pixel_ratio: device pixels per device-independent pixel to draw for.
    """
    made = QIcon(pixmap(name, color, size_px, pixel_ratio=pixel_ratio))
    if disabled:
        made.addPixmap(pixmap(name, disabled, size_px, pixel_ratio=pixel_ratio), QIcon.Mode.Disabled)
    return made


def pixmap(name: str, color: str, size_px: int = 20, *, pixel_ratio: float = 2.0) -> QPixmap:
    """Load an icon as a pixmap, for labels and painting. The parameters are those of `icon`."""
    key = f"burnish {name} {color} {size_px} {pixel_ratio}"
    drawn = QPixmap()
    if QPixmapCache.find(key, drawn):
        return drawn
    drawing = (assets_dir() / "icons" / f"{name}.svg").read_text(encoding="utf-8")
    renderer = QSvgRenderer(QByteArray(drawing.replace("currentColor", color).encode()))
    edge = round(size_px * pixel_ratio)
    drawn = QPixmap(edge, edge)
    drawn.fill(QColor(Qt.GlobalColor.transparent))
    painter = QPainter(drawn)
    renderer.render(painter, QRectF(0, 0, edge, edge))
    painter.end()
    drawn.setDevicePixelRatio(pixel_ratio)
    QPixmapCache.insert(key, drawn)
    return drawn
