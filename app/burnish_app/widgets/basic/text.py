"""Labels: text in the sizes of the type scale, paths and choices that shorten, figures, and lines with a fact."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from PySide6.QtCore import QEvent, QSignalBlocker, QSize, Qt
from PySide6.QtGui import QCursor, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QComboBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QSizePolicy,
    QStyle,
    QStyleOptionComboBox,
    QStylePainter,
    QToolTip,
    QVBoxLayout,
    QWidget,
)

from burnish_app.look.motion import glide
from burnish_app.look.theme import font
from burnish_app.look.tokens import BODY_PX, FIGURE_PX, SMALL_PX, TITLE_PX, UNIT
from burnish_app.widgets.basic.layouts import fill

_NAME_PX = 140
_LEAST_LETTERS, _ARROW_PX = 4, 48  # a combo box is at least so wide

Look = Literal["", "muted", "accent", "link", "error", "warning", "success"]


def set_tone(widget: QWidget, tone: str) -> None:
    """Set a widget's look, a dynamic property that `theme.style_sheet` maps to colors."""
    if widget.property("look") != tone:
        widget.setProperty("look", tone)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def _label(text: str, size_px: int, tone: Look, *, bold: bool = False, mono: bool = False) -> QLabel:
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setFont(font(size_px, bold=bold, mono=mono))
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    label.setProperty("look", tone)
    return label


def pad_spin(box: QAbstractSpinBox) -> None:
    """Pad a spin box's text as line edits are padded: the style sheet's padding does not reach its inner edit."""
    for edit in box.findChildren(QLineEdit):
        edit.setTextMargins(6, 0, 6, 0)


def title(text: str) -> QLabel:
    """Make a label in title size, for a page's title."""
    return _label(text, TITLE_PX, "", bold=True)


def headline(text: str) -> QLabel:
    """Make a label in figure size, for the verdict of a card."""
    return _label(text, FIGURE_PX, "", bold=True)


def heading(text: str) -> QLabel:
    """Make a bold label in body size, for headings."""
    return _label(text, BODY_PX, "", bold=True)


def body(text: str, tone: Look = "") -> QLabel:
    """Make a label for running text. The text is plain: nothing in it is read as markup."""
    return _label(text, BODY_PX, tone)


def caption(text: str, tone: Look = "muted") -> QLabel:
    """Make a label for small secondary text."""
    return _label(text, SMALL_PX, tone)


def mono(text: str, tone: Look = "") -> QLabel:
    """Make a monospaced label, for paths, commands and tokens."""
    return _label(text, SMALL_PX, tone, mono=True)


class ElidedLabel(QLabel):
    """A label of one line that shortens its text to its width and shows all of it on hover.

    Args:
        text: text to show.
        mode: place of the cut; the middle suits paths.
        size_px: type size, device-independent pixels.
        tone: look of the style sheet.
        bold: whether the weight is semibold.
        expands: whether the label takes all the width there is; else only what its text needs.
    """

    def __init__(
        self,
        text: str = "",
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideMiddle,
        size_px: int = BODY_PX,
        *,
        tone: Look = "",
        bold: bool = False,
        expands: bool = True,
    ) -> None:
        super().__init__()
        self._mode = mode
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setFont(font(size_px, bold=bold))
        self.setProperty("look", tone)
        width = QSizePolicy.Policy.Expanding if expands else QSizePolicy.Policy.Maximum
        self.setSizePolicy(width, QSizePolicy.Policy.Preferred)
        self.setText(text)

    def setText(self, text: str) -> None:
        """Replace the text and the tooltip."""
        super().setText(text)
        self.setToolTip(text)

    def shown_text(self, width_px: int) -> str:
        """Return as much of the text as fits into a width, pixels."""
        return QFontMetrics(self.font()).elidedText(self.text(), self._mode, width_px)

    def minimumSizeHint(self) -> QSize:
        """Return a minimum size with room for a few letters."""
        return QSize(24, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw as much of the text as fits."""
        painter = QPainter(self)
        room = self.contentsRect()
        shown = self.shown_text(room.width())
        painter.setPen(self.palette().color(self.foregroundRole()))
        painter.drawText(room, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), shown)


class PathLabel(ElidedLabel):
    """A label of a path that leaves out leading folders where it has no room, and shows all of it on hover."""

    def shown_text(self, width_px: int) -> str:
        """Return the path, or as many of its last parts as fit."""
        metrics = QFontMetrics(self.font())
        parts = re.split(r"(?<=[/\\])", self.text())  # each with the separator behind it
        for start in range(len(parts)):
            text = "".join(parts[start:])
            text = f"…{parts[start - 1][-1]}{text}" if start else text
            if metrics.horizontalAdvance(text) <= width_px:
                return text
        return metrics.elidedText(parts[-1] or self.text(), Qt.TextElideMode.ElideMiddle, width_px)


class ShorteningBox(QComboBox):
    """A combo box that shortens a long name to its width, whatever that is; the style would cut it within a letter.

    Its list is as wide as the names in it, and a name that is cut is its tooltip where it has no other.

    Args:
        by_content: whether it wants to be as wide as its widest name; else its layout decides.
    """

    def __init__(self, *, by_content: bool = False) -> None:
        super().__init__()
        policy = QComboBox.SizeAdjustPolicy
        self.setSizeAdjustPolicy(
            policy.AdjustToContents if by_content else policy.AdjustToMinimumContentsLengthWithIcon
        )
        self.setMinimumContentsLength(_LEAST_LETTERS)

    def offer(self, choices: Sequence[tuple[str, object]], chosen: object) -> None:
        """Offer other choices without emitting a signal.

        Args:
            choices: text and key of each choice.
            chosen: key of the one to choose; the first one where there is none such.
        """
        with QSignalBlocker(self):
            self.clear()
            for text, key in choices:
                self.addItem(text, key)
            self.choose(chosen)

    def choose(self, key: object) -> None:
        """Choose by the key; the first choice where there is none such."""
        self.setCurrentIndex(max(self.findData(key), 0))

    def sizeHint(self) -> QSize:
        """Return the preferred size, with room for the margins beside the name."""
        hint = super().sizeHint()
        return QSize(hint.width() + 2 * UNIT, hint.height())

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size: a few letters and the arrow."""
        least = self.fontMetrics().averageCharWidth() * _LEAST_LETTERS + _ARROW_PX
        return QSize(least, super().minimumSizeHint().height())

    def showPopup(self) -> None:
        """Open the list, as wide as its longest name needs."""
        view = self.view()
        wanted = view.sizeHintForColumn(0) + 4 * UNIT
        view.setMinimumWidth(min(max(wanted, self.width()), self.screen().availableGeometry().width() // 2))
        super().showPopup()

    def event(self, event: QEvent) -> bool:
        """Show the whole name on hover where it is cut."""
        if event.type() == QEvent.Type.ToolTip and not self.toolTip() and self._shown_text() != self.currentText():
            QToolTip.showText(QCursor.pos(), self.currentText(), self)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the box with as much of the name as fits."""
        painter, option = QStylePainter(self), QStyleOptionComboBox()
        self.initStyleOption(option)
        option.currentText = self._shown_text()
        painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, option)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)

    def _shown_text(self) -> str:
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        room = self.style().subControlRect(
            QStyle.ComplexControl.CC_ComboBox, option, QStyle.SubControl.SC_ComboBoxEditField, self
        )
        return self.fontMetrics().elidedText(self.currentText(), Qt.TextElideMode.ElideRight, room.width() - UNIT)


class Value(QWidget):
    """A figure with a small label above it and its unit beside it.

    Args:
        label: name of the figure, in a word or two.
        unit: unit behind the number; may be empty.
        hint: tooltip that says what the figure means exactly.
        large: whether the number has the figure size instead of the body size.
    """

    def __init__(self, label: str, unit: str = "", hint: str = "", *, large: bool = True) -> None:
        super().__init__()
        self._label = label
        self._name = caption(label)
        self._name.setWordWrap(False)
        self._shown = "–"
        self._figure = QLabel(self._shown)
        self._figure.setTextFormat(Qt.TextFormat.PlainText)
        self._figure.setFont(font(FIGURE_PX if large else BODY_PX, bold=True))
        self._unit = caption(unit)
        self._unit.setWordWrap(False)
        self._unit.setContentsMargins(0, 0, 0, 3 if large else 0)  # on the baseline of the larger figure
        line = fill(
            QHBoxLayout(),
            (self._figure, 0, Qt.AlignmentFlag.AlignBottom),
            (self._unit, 0, Qt.AlignmentFlag.AlignBottom),
            spacing_px=6,
        )
        line.addStretch()
        fill(QVBoxLayout(self), self._name, line, spacing_px=2)
        self.setToolTip(hint)
        self.setAccessibleName(label)

    @property
    def text(self) -> str:
        """The number as shown."""
        return self._shown

    def _roll(self, before: str) -> None:
        """Let the number run to its new value; at once where one of both is no plain number."""
        is_plain = all(one.replace(".", "", 1).isdecimal() for one in (before, self._shown))
        start, end = (float(before), float(self._shown)) if is_plain else (0.0, 0.0)
        digits, shown = len(self._shown.partition(".")[2]), self._shown
        glide(self, start, end, lambda value: self._figure.setText(shown if value == end else f"{value:.{digits}f}"))

    def set(self, figure: str, unit: str | None = None, *, tone: Look = "") -> None:
        """Replace the number.

        Args:
            figure: number as text.
            unit: new unit; None keeps the old one.
            tone: look whose color marks the number as good, doubtful or bad.
        """
        before_unit, before = self._unit.text(), self._shown
        if unit is not None and before_unit != unit:
            self._unit.setText(unit)
            before = ""  # 900 MB do not run to 1 GB
        if before != figure:
            self._shown = figure
            self._roll(before)
        set_tone(self._figure, tone)
        self.setAccessibleDescription(f"{figure} {self._unit.text()}".strip())


class FactLine(QWidget):
    """A line with a name and, behind it, a fact that can change.

    Args:
        name: name of the fact.
        text: text of the fact.
        name_px: width of the name's column, device-independent pixels.
    """

    def __init__(self, name: str, text: str = "", *, name_px: int = _NAME_PX) -> None:
        super().__init__()
        label = body(name, "muted")
        label.setFixedWidth(name_px)
        self._text = body(text)
        fill(QHBoxLayout(self), (label, 0, Qt.AlignmentFlag.AlignTop), (self._text, 1), spacing_px=2 * UNIT)

    def set_text(self, text: str) -> None:
        """Replace the fact."""
        if self._text.text() != text:
            self._text.setText(text)


def fact_line(name: str, text: str, *, hint: str = "", name_px: int = _NAME_PX) -> QWidget:
    """Make a line with a name and, behind it, a fact.

    Args:
        name: name of the fact.
        text: text of the fact.
        hint: tooltip.
        name_px: width of the name's column, device-independent pixels.
    """
    holder = FactLine(name, text, name_px=name_px)
    holder.setToolTip(hint)
    return holder
