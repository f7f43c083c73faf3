"""Labels: the three type sizes, paths that shorten, and large figures with tabular digits."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractSpinBox, QHBoxLayout, QLabel, QLineEdit, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.theme import BODY_PX, SMALL_PX, TITLE_PX, font

Look = Literal["", "muted", "accent", "error", "warning", "success"]


def set_look(widget: QWidget, look: str) -> None:
    """Give a widget another look of the style sheet (theme.style_sheet lists them)."""
    if widget.property("look") != look:
        widget.setProperty("look", look)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def _label(text: str, size_px: int, look: Look, *, bold: bool = False, mono: bool = False) -> QLabel:
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setFont(font(size_px, bold=bold, mono=mono))
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    label.setProperty("look", look)
    return label


def pad_spin(box: QAbstractSpinBox) -> None:
    """Room beside a spin box's text, as line edits have it: the style sheet's padding does not reach its edit."""
    for edit in box.findChildren(QLineEdit):
        edit.setTextMargins(6, 0, 6, 0)


def title(text: str) -> QLabel:
    """A page's question."""
    return _label(text, TITLE_PX, "", bold=True)


def heading(text: str) -> QLabel:
    """The heading of a part, in body size."""
    return _label(text, BODY_PX, "", bold=True)


def body(text: str, look: Look = "") -> QLabel:
    """Running text. Plain text only: nothing in it is taken as markup."""
    return _label(text, BODY_PX, look)


def caption(text: str, look: Look = "muted") -> QLabel:
    """Small secondary text."""
    return _label(text, SMALL_PX, look)


def mono(text: str, look: Look = "") -> QLabel:
    """Paths, commands and tokens."""
    return _label(text, SMALL_PX, look, mono=True)


class ElidedLabel(QLabel):
    """One line that shortens itself to its width and shows all of it on hover.

    Args:
        text: What to show.
        mode: Where to cut; the middle suits paths.
        size_px: One of the three type sizes.
    """

    def __init__(
        self,
        text: str = "",
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideMiddle,
        size_px: int = BODY_PX,
        *,
        look: Look = "",
    ) -> None:
        super().__init__()
        self._mode = mode
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setFont(font(size_px))
        self.setProperty("look", look)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setText(text)

    def setText(self, text: str) -> None:
        """Show another text."""
        super().setText(text)
        self.setToolTip(text)

    def minimumSizeHint(self) -> QSize:
        """A few letters are enough."""
        return QSize(24, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw what fits."""
        painter = QPainter(self)
        shown = QFontMetrics(self.font()).elidedText(self.text(), self._mode, self.width())
        painter.setPen(self.palette().color(self.foregroundRole()))
        painter.drawText(self.rect(), int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), shown)


class Value(QWidget):
    """A figure that changes: a small label above, the number large, its unit beside it.

    Args:
        label: What it is, in a word or two.
        unit: Behind the number; may be empty.
        hint: What it means exactly, shown on hover.
        large: The title size rather than the body's.
    """

    def __init__(self, label: str, unit: str = "", hint: str = "", *, large: bool = True) -> None:
        super().__init__()
        self._label = label
        self._name = caption(label)
        self._name.setWordWrap(False)
        self._figure = QLabel("–")
        self._figure.setTextFormat(Qt.TextFormat.PlainText)
        self._figure.setFont(font(TITLE_PX if large else BODY_PX, bold=True))
        self._unit = caption(unit)
        self._unit.setWordWrap(False)
        line = QHBoxLayout()
        line.setSpacing(6)
        self._unit.setContentsMargins(0, 0, 0, 3 if large else 0)  # on the baseline of the larger figure
        line.addWidget(self._figure, alignment=Qt.AlignmentFlag.AlignBottom)
        line.addWidget(self._unit, alignment=Qt.AlignmentFlag.AlignBottom)
        line.addStretch()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(self._name)
        column.addLayout(line)
        self.setToolTip(hint)
        self.setAccessibleName(label)

    @property
    def text(self) -> str:
        """The number as shown."""
        return self._figure.text()

    def set(self, figure: str, unit: str | None = None, *, look: Look = "") -> None:
        """Show another number.

        Args:
            figure: As it shall read.
            unit: None: as before.
            look: A color that says how it stands.
        """
        if self._figure.text() != figure:
            self._figure.setText(figure)
        if unit is not None and self._unit.text() != unit:
            self._unit.setText(unit)
        set_look(self._figure, look)
        self.setAccessibleDescription(f"{figure} {self._unit.text()}".strip())
