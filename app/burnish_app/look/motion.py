"""Motion that explains a change, none of it where the system or the person wants less."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal

from PySide6.QtCore import QAbstractAnimation, QEasingCurve, Qt, QVariantAnimation
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from burnish_app.look.tokens import MOTION_MS

MotionMode = Literal["system", "full", "reduced"]
_ANY_PX = 16_777_215  # QWIDGETSIZE_MAX of Qt: no maximum
_SPI_GETCLIENTAREAANIMATION = 0x1042


class _Motion:
    """Whether things move; one for the application."""

    reduced = False


def set_motion(mode: MotionMode) -> None:
    """Choose between motion, less of it, and the system's setting."""
    _Motion.reduced = mode == "reduced" or (mode == "system" and system_reduces_motion())


def is_reduced() -> bool:
    """Whether things stand still."""
    return _Motion.reduced


def unfold(widget: QWidget, *, show: bool) -> None:
    """Show or hide a widget by its height, so that what is below it is seen to move.

    Args:
        widget: widget to show or hide.
        show: whether it is to be seen afterwards.
    """
    for running in widget.findChildren(QVariantAnimation, options=Qt.FindChildOption.FindDirectChildrenOnly):
        running.stop()
        widget.setMaximumHeight(_ANY_PX)
    parent = widget.parentWidget()
    if _Motion.reduced or parent is None or not parent.isVisible():
        widget.setVisible(show)
        return
    widget.setVisible(True)
    whole = widget.heightForWidth(parent.width()) if widget.hasHeightForWidth() else widget.sizeHint().height()
    move = QVariantAnimation(widget)
    move.setDuration(MOTION_MS)
    move.setStartValue(0 if show else widget.height())
    move.setEndValue(max(whole, 1) if show else 0)
    move.setEasingCurve(QEasingCurve.Type.OutCubic)

    def done() -> None:
        widget.setMaximumHeight(_ANY_PX)
        widget.setVisible(show)

    widget.setMaximumHeight(int(move.startValue()))
    move.valueChanged.connect(lambda height: widget.setMaximumHeight(int(height)))
    move.finished.connect(done)
    move.start(QAbstractAnimation.DeletionPolicy.DeleteWhenStopped)


def glide(owner: QWidget, start: float, end: float, step: Callable[[float], object]) -> None:
    """Let a number move to its new value, such as the share of a bar; at once where nothing shall move.

    Args:
        owner: widget that shows the number; a movement that it is still in ends.
        start: value that is shown.
        end: new value.
        step: function that shows a value; it gets `end` last.
    """
    for running in owner.findChildren(QVariantAnimation, options=Qt.FindChildOption.FindDirectChildrenOnly):
        running.stop()
    if _Motion.reduced or start == end or not owner.isVisible():
        step(end)
        return
    move = QVariantAnimation(owner)
    move.setDuration(MOTION_MS)
    move.setStartValue(float(start))
    move.setEndValue(float(end))
    move.setEasingCurve(QEasingCurve.Type.OutCubic)
    move.valueChanged.connect(lambda value: step(float(value)))
    move.finished.connect(lambda: step(end))
    move.start(QAbstractAnimation.DeletionPolicy.DeleteWhenStopped)


class _Veil(QWidget):
    """A cover in the color of the ground that vanishes and goes."""

    def __init__(self, over: QWidget) -> None:
        super().__init__(over)
        self._opacity = 1.0
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setGeometry(over.rect())
        self.show()

    def vanish(self, opacity: float) -> None:
        """Let the cover be as opaque as this; at 0 it goes."""
        self._opacity = opacity
        self.update()
        if opacity <= 0:
            self.hide()
            self.deleteLater()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the cover."""
        painter = QPainter(self)
        painter.setOpacity(self._opacity)
        painter.fillRect(self.rect(), self.palette().window())


def fade_in(widget: QWidget) -> None:
    """Let a widget appear out of its ground, such as a page that was just chosen."""
    if not _Motion.reduced and widget.isVisible():
        veil = _Veil(widget)
        glide(veil, 1.0, 0.0, veil.vanish)


def system_reduces_motion() -> bool:
    """Return whether the system is set to show fewer animations: Windows, GTK's and KDE's settings files."""
    if sys.platform == "win32":
        return not _windows_animates()
    return _setting("gtk-3.0/settings.ini", "Settings", "gtk-enable-animations") in ("0", "false") or _setting(
        "kdeglobals", "KDE", "AnimationDurationFactor"
    ) in ("0", "0.0")


def _windows_animates() -> bool:
    import ctypes

    on = ctypes.c_int(1)
    ctypes.windll.user32.SystemParametersInfoW(_SPI_GETCLIENTAREAANIMATION, 0, ctypes.byref(on), 0)  # type: ignore[attr-defined,unused-ignore]
    return bool(on.value)


def _setting(file: str, section: str, key: str) -> str:
    import os
    from configparser import ConfigParser, Error
    from pathlib import Path

    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    read = ConfigParser(interpolation=None, strict=False)
    try:
        read.read(folder / file, encoding="utf-8")
        return read.get(section, key, fallback="").strip().lower()
    except (OSError, Error, UnicodeDecodeError):
        return ""
