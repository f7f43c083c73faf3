"""Saves a chart as a picture or its values as a table, in a thread where that takes long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QObject, QPoint, QRect, Signal, SignalInstance
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgGenerator

from burnish_app.engine.threads import start_thread
from burnish_app.widgets.charts.chart import Chart
from burnish_engine.contract.errors import BurnishError
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
        start_thread(self, self._work, path, make, name="chart-saver", daemon=False)

    def _work(self, path: Path, make: Callable[[], bytes]) -> None:
        try:
            write_atomic(path, make())
        except BurnishError as error:  # a full disk, a folder that is none, and the like
            self._emit(self.failed, str(error))
        else:
            self._emit(self.done, str(path))

    def _emit(self, signal: SignalInstance, text: str) -> None:
        try:
            signal.emit(text)
        except RuntimeError:
            return  # the window is gone


def picture(chart: Chart) -> QImage:
    """Draw a chart into an image, twice as sharp as on screen."""
    image = QImage(chart.picture_size() * PICTURE_SCALE, QImage.Format.Format_ARGB32_Premultiplied)
    image.setDevicePixelRatio(PICTURE_SCALE)
    painter = QPainter(image)
    chart.draw_picture(painter, PICTURE_SCALE)
    painter.end()
    return image


def png_bytes(image: QImage) -> bytes:
    """Return an image as a PNG file."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # the stub wants bytes, Qt a str
    return bytes(buffer.data().data())


def svg_bytes(chart: Chart) -> bytes:
    """Draw a chart as an SVG file."""
    content = QByteArray()
    buffer = QBuffer(content)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator = QSvgGenerator(QSvgGenerator.SvgVersion.Svg11)  # the older version does not clip
    generator.setOutputDevice(buffer)
    generator.setSize(chart.picture_size())
    generator.setViewBox(QRect(QPoint(0, 0), chart.picture_size()))
    generator.setTitle(chart.name)
    generator.setResolution(chart.logicalDpiX())  # else the axes, which pyqtgraph records first, come out smaller
    painter = QPainter(generator)
    chart.draw_picture(painter, 1.0)
    painter.end()
    return bytes(content.data())
