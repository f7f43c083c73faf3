"""Draws the studio's icon in all sizes: PNG and SVG for Linux, one ICO file for Windows.

    python icons.py FOLDER

Needs PySide6, which draws it.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

SIZES_PX = (16, 22, 24, 32, 48, 64, 128, 256, 512)
_ICO_SIZES_PX = (16, 24, 32, 48, 64, 128, 256)
_DRAWING = Path(__file__).resolve().parents[2] / "assets" / "icons" / "burnish.svg"
_TILE, _INK = "#e5950f", "#221703"  # the accent of the light theme, and text on it
_SMALL_PX = 24  # up to here lines are drawn thicker


def svg(size_px: int) -> str:
    """The studio's mark on a tile, as it is drawn at a size."""
    mark = _DRAWING.read_text(encoding="utf-8").partition(">")[2].rpartition("</svg>")[0].strip()
    scale, width = (0.95, 2.2) if size_px <= _SMALL_PX else (0.85, 1.7)
    left, top = 12 - 12.5 * scale, 12 - 13 * scale  # the mark's middle is at 12.5, 13
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="512" height="512">'
        f'<rect width="24" height="24" rx="5.2" fill="{_TILE}"/>'
        f'<g transform="translate({left:.2f} {top:.2f}) scale({scale})" fill="none" stroke="{_INK}" '
        f'stroke-width="{width}" stroke-linecap="round" stroke-linejoin="round">{mark}</g></svg>\n'
    )


def png(size_px: int) -> bytes:
    """The icon as a picture."""
    image = QImage(size_px, size_px, QImage.Format.Format_ARGB32)
    image.fill(0)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    QSvgRenderer(QByteArray(svg(size_px).encode())).render(painter)
    painter.end()
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # the stub wants bytes, Qt a str
    return bytes(buffer.data().data())


def ico() -> bytes:
    """The icon in all of Windows' sizes, in one file of pictures (PNG within ICO, Windows Vista and later)."""
    pictures = [(size_px, png(size_px)) for size_px in _ICO_SIZES_PX]
    head, place = struct.pack("<HHH", 0, 1, len(pictures)), 6 + 16 * len(pictures)
    for size_px, data in pictures:
        edge = size_px % 256  # 256 is written as 0
        head += struct.pack("<BBBBHHII", edge, edge, 0, 0, 1, 32, len(data), place)
        place += len(data)
    return head + b"".join(data for _, data in pictures)


def main(folder: Path) -> None:
    """Write all files: a tree for Linux's theme `hicolor`, and Windows' file beside it."""
    for size_px in SIZES_PX:
        path = folder / "hicolor" / f"{size_px}x{size_px}" / "apps" / "burnish.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(size_px))
    scalable = folder / "hicolor" / "scalable" / "apps" / "burnish.svg"
    scalable.parent.mkdir(parents=True, exist_ok=True)
    scalable.write_text(svg(max(SIZES_PX)), encoding="utf-8")
    (folder / "burnish.ico").write_bytes(ico())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
