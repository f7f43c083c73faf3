"""The strip at the foot of the sidebar: memory, load, temperature and power of each GPU, always in view."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QSizePolicy

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import SMALL_PX, UNIT, Colors, colors_of, font
from burnish_app.wording.hardware_text import celsius_text, load_text, memory_split_text, used_of_text, watts_text
from burnish_engine.contract.run.hardware_log import GpuHistory, HardwareHistory

_LINE_PX, _FLAT_PX = 18, 20  # heights of a line of text
_MOST_TALL = 2  # more GPUs than that get one line each
_MOST_LINES = 4  # more GPUs than that share lines, two to each, without their degrees
_BAR_PX, _LEAST_BAR_PX = 6, 10
HOT_C = 83
"""Temperature that is worth a warning: GeForce cards begin to lower their clocks at 83 to 90 degrees."""
NEARLY_FULL, FULL = 0.9, 0.97
"""Shares of a GPU's memory in use from which the strip shows the figure as a warning, and as an alarm."""
_RADIUS_PX = 6


def is_hot(gpu: GpuHistory) -> bool:
    """Whether heat holds a GPU's clocks down, or is about to."""
    last = gpu.last
    if last is None:
        return False
    limit = min(HOT_C, gpu.facts.slowdown_c - 5) if gpu.facts.slowdown_c else HOT_C
    return bool({"heat", "hardware_heat"} & last.throttle.keys()) or (last.temperature_c or 0) >= limit


class HardwareStrip(QAbstractButton):
    """Shows the newest sample of each GPU, or of processor and memory where there is none. A click asks for details."""

    def __init__(self) -> None:
        super().__init__()
        self._history = HardwareHistory()
        self.setCheckable(True)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("Hardware now"))
        self.setToolTip(tr("Hardware now. A click shows the last ten minutes."))
        self.hide()

    def show_history(self, history: HardwareHistory) -> None:
        """Show the newest sample."""
        taller = self._rows(history) != self._rows(self._history)
        self._history = history
        self.setVisible(history.last is not None)
        self.setAccessibleDescription("; ".join(self._texts()))
        if taller:
            self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """Return the preferred size: a tall row for each of a few GPUs, a line for each of more or two of many."""
        rows = self._rows(self._history)
        if rows <= _MOST_TALL:
            return QSize(160, rows * _tall_px())
        return QSize(160, (rows if rows <= _MOST_LINES else (rows + 1) // 2) * scaled(_FLAT_PX) + UNIT)

    def changeEvent(self, event: QEvent) -> None:
        """Take the room that another text size needs."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            self.updateGeometry()

    def event(self, event: QEvent) -> bool:
        """Repaint when the pointer enters or leaves."""
        if event.type() in (QEvent.Type.Enter, QEvent.Type.Leave):
            self.update()
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw one row for each GPU."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_ground(painter, colors)
        gpus = self._gpus()
        width = self.width() - 2 * UNIT
        if not gpus:
            self._draw_host(painter, colors, QRectF(UNIT, 0, width, _tall_px()))
        elif len(gpus) <= _MOST_TALL:
            for number, gpu in enumerate(gpus):
                self._draw_tall(painter, colors, QRectF(UNIT, number * _tall_px(), width, _tall_px()), gpu)
        else:
            columns = 1 if len(gpus) <= _MOST_LINES else 2
            each = (width - (columns - 1) * UNIT) / columns
            for number, gpu in enumerate(gpus):
                line, column = divmod(number, columns)
                height = scaled(_FLAT_PX)
                place = QRectF(UNIT + column * (each + UNIT), UNIT / 2 + line * height, each, height)
                self._draw_flat(painter, colors, place, gpu, with_degrees=columns == 1)

    def _gpus(self) -> list[GpuHistory]:
        start = self._history.start
        known = [self._history.gpus.get(gpu.index) for gpu in start.gpus] if start else []
        return [gpu for gpu in known if gpu is not None]

    @staticmethod
    def _rows(history: HardwareHistory) -> int:
        return max(len(history.start.gpus), 1) if history.start else 1

    def _texts(self) -> list[str]:
        """Say the newest sample, for screen readers."""
        if self._history.last is None:
            return []
        found = []
        for gpu in self._gpus():
            last = gpu.last
            if last is not None:
                figures = load_text(last.load), celsius_text(last.temperature_c), watts_text(last.power_w)
                found.append(
                    tr("GPU {index}: {gpu}, {figures}").format(
                        index=gpu.facts.index, gpu=memory_split_text(gpu), figures=", ".join(figures)
                    )
                )
        return found or [tr("processor {load}").format(load=load_text(self._history.last.cpu))]

    def _draw_ground(self, painter: QPainter, colors: Colors) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        if self.isChecked() or self.underMouse():
            painter.setBrush(QColor(colors.surface if self.isChecked() else colors.window))
            painter.drawRoundedRect(self.rect(), _RADIUS_PX, _RADIUS_PX)
        if self.hasFocus():
            painter.setPen(QPen(QColor(colors.focus), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), _RADIUS_PX, _RADIUS_PX)

    def _draw_tall(self, painter: QPainter, colors: Colors, place: QRectF, gpu: GpuHistory) -> None:
        last = gpu.last
        name = "VRAM" if len(self._gpus()) == 1 else f"GPU {gpu.facts.index}"
        used = last.used_bytes if last else None
        ink = fullness_ink(colors, used, gpu.facts.memory_total_bytes)
        self._draw_head(painter, colors, place, name, used_of_text(used, gpu.facts.memory_total_bytes), ink=ink)
        bar = QRectF(place.left(), place.top() + _bar_top_px(), place.width(), _BAR_PX)
        _draw_memory(painter, colors, bar, gpu)
        if last is None:
            return
        texts = load_text(last.load), celsius_text(last.temperature_c), watts_text(last.power_w)
        aligned = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignHCenter, Qt.AlignmentFlag.AlignRight
        painter.setFont(font(SMALL_PX))
        line = QRectF(place.left(), place.top() + _bar_top_px() + _BAR_PX + 4, place.width(), scaled(_LINE_PX))
        for number, (text, align) in enumerate(zip(texts, aligned, strict=True)):
            painter.setPen(QColor(colors.warning if number == 1 and is_hot(gpu) else colors.text))
            painter.drawText(line, int(align | Qt.AlignmentFlag.AlignVCenter), text)

    @staticmethod
    def _draw_flat(painter: QPainter, colors: Colors, place: QRectF, gpu: GpuHistory, *, with_degrees: bool) -> None:
        last = gpu.last
        middle = int(Qt.AlignmentFlag.AlignVCenter)
        painter.setFont(font(SMALL_PX))
        painter.setPen(QColor(colors.muted))
        painter.drawText(place, middle | int(Qt.AlignmentFlag.AlignLeft), str(gpu.facts.index))
        left, right = scaled(16), scaled(76 if with_degrees else 38)
        bar = QRectF(place.left() + left, place.center().y() - _BAR_PX / 2, place.width() - left - right, _BAR_PX)
        if bar.width() >= _LEAST_BAR_PX:
            _draw_memory(painter, colors, bar, gpu)
        if last is None:
            return
        load = QRectF(place.right() - right, place.top(), right - (scaled(34) if with_degrees else 0), place.height())
        painter.setPen(QColor(colors.warning if is_hot(gpu) and not with_degrees else colors.text))
        painter.drawText(load, middle | int(Qt.AlignmentFlag.AlignRight), load_text(last.load))
        if not with_degrees:
            return
        painter.setPen(QColor(colors.warning if is_hot(gpu) else colors.muted))
        degrees = "–" if last.temperature_c is None else f"{last.temperature_c:.0f}°"
        painter.drawText(place, middle | int(Qt.AlignmentFlag.AlignRight), degrees)

    def _draw_host(self, painter: QPainter, colors: Colors, place: QRectF) -> None:
        last, start = self._history.last, self._history.start
        if last is None or start is None:
            return
        used = used_of_text(last.ram_used_bytes, start.ram_total_bytes)
        self._draw_head(painter, colors, place, tr("Memory"), used)
        bar = QRectF(place.left(), place.top() + _bar_top_px(), place.width(), _BAR_PX)
        shares = _shares(last.process_bytes, last.ram_used_bytes, start.ram_total_bytes)
        _draw_bar(painter, colors, bar, *shares)
        line = QRectF(place.left(), place.top() + _bar_top_px() + _BAR_PX + 4, place.width(), scaled(_LINE_PX))
        painter.setFont(font(SMALL_PX))
        painter.setPen(QColor(colors.muted))
        painter.drawText(line, int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter), tr("Processor"))
        painter.setPen(QColor(colors.text))
        painter.drawText(line, int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter), load_text(last.cpu))

    @staticmethod
    def _draw_head(painter: QPainter, colors: Colors, place: QRectF, name: str, text: str, *, ink: str = "") -> None:
        line = QRectF(place.left(), place.top() + 3, place.width(), scaled(_LINE_PX))
        painter.setFont(font(SMALL_PX))
        painter.setPen(QColor(colors.muted))
        room = line.width() - painter.fontMetrics().horizontalAdvance(text) - UNIT / 2
        if painter.fontMetrics().horizontalAdvance(name) <= room:  # in the largest text the figure alone
            painter.drawText(line, int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter), name)
        painter.setPen(QColor(ink or colors.text))
        painter.drawText(line, int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter), text)


def _bar_top_px() -> int:
    return scaled(_LINE_PX) + 5


def _tall_px() -> int:
    """Return the height of a GPU's row: two lines of text with the bar between them."""
    return _bar_top_px() + _BAR_PX + 4 + scaled(_LINE_PX) + 7


def fullness_ink(colors: Colors, used: int | None, total: int) -> str:
    """Return the color of a figure of memory in use: that of text, of a warning, or of an error.

    Args:
        colors: colors of the theme.
        used: bytes in use; None: not known.
        total: bytes that there are.
    """
    share = (used or 0) / total if total else 0.0
    return colors.error if share >= FULL else colors.warning if share >= NEARLY_FULL else colors.text


def _draw_memory(painter: QPainter, colors: Colors, place: QRectF, gpu: GpuHistory) -> None:
    last = gpu.last
    if last is not None:
        _draw_bar(painter, colors, place, *_shares(last.ours_bytes, last.used_bytes, gpu.facts.memory_total_bytes))


def _shares(ours: int | None, used: int | None, total: int) -> tuple[float, float]:
    """Return the shares of a memory that are ours and that others use."""
    if not total or used is None:
        return 0.0, 0.0
    mine = min(ours or 0, used)
    return mine / total, (used - mine) / total


def _draw_bar(painter: QPainter, colors: Colors, place: QRectF, ours: float, others: float) -> None:
    """Draw a bar: our share in the color of live values, that of others in gray, on a track."""
    painter.save()
    painter.setPen(Qt.PenStyle.NoPen)
    radius = place.height() / 2
    painter.setBrush(QColor(colors.line))
    painter.drawRoundedRect(place, radius, radius)
    left = place.left()
    for share, color in ((ours, colors.accent), (others, colors.faint)):
        width = min(share, 1.0) * place.width()
        if width >= 1 and not math.isnan(width):
            painter.setBrush(QColor(color))
            painter.drawRoundedRect(QRectF(left, place.top(), max(width, 3.0), place.height()), radius, radius)
            left += width + 1
    painter.restore()
