"""Status pills, and segmented controls for two or three choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QFrame, QLabel, QPushButton, QSizePolicy

from burnish_app.look.theme import font
from burnish_app.look.tokens import SMALL_PX
from burnish_app.widgets.basic.text import set_tone
from burnish_app.widgets.basic.wrapping import FlowLayout

PillTone = Literal["plain", "live", "info", "warning", "error", "success"]


class Pill(QLabel):
    """A status in a word or two, on a tint of its color.

    Args:
        text: status; empty: the pill is hidden.
        tone: kind of status, which decides the color.
    """

    def __init__(self, text: str = "", tone: PillTone = "plain") -> None:
        super().__init__()
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setFont(font(SMALL_PX, medium=True))
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setProperty("look", f"pill-{tone}")
        self.setText(text)
        self.hide()

    def set(self, text: str, tone: PillTone = "plain") -> None:
        """Show a status; an empty text hides the pill."""
        if self.text() != text:
            self.setText(text)
        set_tone(self, f"pill-{tone}")
        self.setVisible(bool(text))


class Segmented(QFrame):
    """A choice of two or three, side by side, or in lines where there is no room; the arrow keys move it.

    Args:
        name: name for screen readers.
        choices: (value, text) of each choice.

    Attributes:
        chosen: signal with the value that the person chose.
    """

    chosen = Signal(str)

    def __init__(self, name: str, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.setProperty("look", "segments")
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self._line = line = FlowLayout(0, 0)
        self._width_px = 0  # of the lines; 0: not shown yet
        self.setLayout(line)
        group = QButtonGroup(self)
        self._buttons: dict[str, QPushButton] = {}
        for value, text in choices:
            button = QPushButton(text)
            button.setProperty("look", "segment")
            button.setCheckable(True)
            button.setFont(font(medium=True))
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            button.setAutoDefault(False)
            button.setAccessibleName(f"{name}: {text}")
            button.clicked.connect(lambda _checked=False, value=value: self.chosen.emit(value))
            group.addButton(button)
            line.addWidget(button)
            self._buttons[value] = button

    def sizeHint(self) -> QSize:
        """Return the preferred size: all in one line, or as high as the lines that the width there is makes."""
        hint = self._line.sizeHint()
        return QSize(hint.width(), self._line.heightForWidth(self._width_px or hint.width()))

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size: as wide as the widest choice."""
        return QSize(self._line.minimumSize().width(), self.sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Take as much height as the new width needs."""
        super().resizeEvent(event)
        before, self._width_px = self.sizeHint().height(), self.width()
        if self.sizeHint().height() != before:
            self.updateGeometry()

    @property
    def value(self) -> str:
        """The value of the chosen one; empty: none is."""
        return next((value for value, button in self._buttons.items() if button.isChecked()), "")

    def choose(self, value: str) -> None:
        """Choose by value, without `chosen`; a value that is not among the choices changes nothing."""
        if value in self._buttons:
            self._buttons[value].setChecked(True)

    def button(self, value: str) -> QPushButton:
        """Return the button of a value."""
        return self._buttons[value]
