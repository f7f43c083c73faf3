"""Saves a chart as a picture or its values as a table, in a thread where that takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QObject, QPoint, QRect, QSize, Signal
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QWidget

from burnish_app.look.language import tr
from burnish_engine.contract.files import write_atomic

PICTURE_SCALE = 2
"""Pixels of a saved picture for each pixel on screen."""


class Saver(QObject):
    """Writes files without holding up the window.

    Attributes:
        done: signal with the path of a file that was written.
        failed: signal with a sentence that says why a file could not be written.
    """

    done = Signal(str)
    failed = Signal(str)

    def write(self, path: Path, make: Callable[[], bytes]) -> None:
        """Write a file.

        Args:
            path: file to write; an older one is replaced.
            make: function that makes the content; it runs in another thread and must not touch widgets.
        """
        threading.Thread(target=self._work, args=(path, make), name="chart-saver").start()

    def _work(self, path: Path, make: Callable[[], bytes]) -> None:
        try:
            write_atomic(path, make())
        except OSError as error:
            self._emit(
                self.failed,
                tr("{path} could not be written: {reason}.").format(path=path, reason=error.strerror or error),
            )
        else:
            self._emit(self.done, str(path))

    def _emit(self, signal: Signal, text: str) -> None:
        try:
            signal.emit(text)  # type: ignore[attr-defined]  # bound signals have it
        except RuntimeError:
            return  # the window is gone


def picture(widget: QWidget) -> QImage:
    """Draw a widget into an image, twice as sharp as on screen."""
    image = QImage(widget.size() * PICTURE_SCALE, QImage.Format.Format_ARGB32_Premultiplied)
    image.setDevicePixelRatio(PICTURE_SCALE)
    image.fill(widget.palette().color(widget.backgroundRole()))
    widget.render(image)
    return image


def png_bytes(image: QImage) -> bytes:
    """Return an image as a PNG file."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # the stub wants bytes, Qt a str
    return bytes(buffer.data().data())


def svg_bytes(widget: QWidget, title: str) -> bytes:
    """Draw a widget as an SVG file.

    Args:
        widget: widget to draw.
        title: title of the drawing.
    """
    content = QByteArray()
    buffer = QBuffer(content)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator = QSvgGenerator(QSvgGenerator.SvgVersion.Svg11)  # the older version does not clip
    generator.setOutputDevice(buffer)
    generator.setSize(QSize(widget.size()))
    generator.setViewBox(QRect(QPoint(0, 0), widget.size()))
    generator.setTitle(title)
    painter = QPainter(generator)
    painter.fillRect(widget.rect(), widget.palette().color(widget.backgroundRole()))
    widget.render(painter, QPoint(0, 0))
    painter.end()
    return bytes(content.data())
