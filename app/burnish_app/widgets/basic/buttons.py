"""Makes buttons with icons that follow the theme, rows of widgets, and titles that unfold."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QCursor, QIcon, QPaintEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QPushButton,
    QSizePolicy,
    QStyle,
    QStyleOptionButton,
    QStylePainter,
    QToolTip,
    QVBoxLayout,
    QWidget,
)

from burnish_app.look.fonts import scaled
from burnish_app.look.icons import icon
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import ICON_PX, UNIT, Colors
from burnish_app.widgets.basic.layouts import fill

_LEAST_PX = 80  # least width of a button whose text may be cut

Slot = Callable[[], object]
_INKS: dict[str, Callable[[Colors], str]] = {
    "primary": lambda colors: colors.on_accent,
    "secondary": lambda colors: colors.muted,
    "quiet": lambda colors: colors.link,
    "danger": lambda colors: colors.error,
}


class ActionButton(QPushButton):
    """A button with an optional icon in the color of its text.

    Args:
        text: text of the button.
        tone: look of the style sheet: primary, secondary, quiet or danger.
        icon_name: file name in `assets/icons` without its ending; empty: no icon.
    """

    def __init__(self, text: str, tone: str, icon_name: str = "") -> None:
        super().__init__(text)
        self._icon_name, self._tone = icon_name, tone
        self._shortens = False
        self.setProperty("look", tone)
        self.setFont(font(bold=tone == "primary", medium=tone != "primary"))
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # a ring after a click would say nothing
        self.setAccessibleName(text)
        self.setAutoDefault(False)
        self.setIconSize(QSize(ICON_PX, ICON_PX))
        self._draw()

    def set_icon(self, icon_name: str) -> None:
        """Show another icon; empty: none."""
        if icon_name != self._icon_name:
            self._icon_name = icon_name
            self._draw()

    def set_look(self, tone: str) -> None:
        """Change the look, such as of an action that another one now comes before."""
        if tone != self._tone:
            self._tone = tone
            self.setProperty("look", tone)
            self.setFont(font(bold=tone == "primary", medium=tone != "primary"))
            self.style().unpolish(self)
            self.style().polish(self)
            self._draw()

    def allow_shortening(self) -> None:
        """Let the button be narrower than its text, which is then cut and shown whole on hover."""
        self._shortens = True
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)

    def minimumSizeHint(self) -> QSize:
        """Return the minimum size: that of the text, or of a few letters if it may be cut."""
        hint = super().minimumSizeHint()
        return QSize(min(hint.width(), _LEAST_PX), hint.height()) if self._shortens else hint

    def event(self, event: QEvent) -> bool:
        """Show the whole text on hover where it is cut."""
        if event.type() == QEvent.Type.ToolTip and not self.toolTip() and self._shown_text() != self.text():
            QToolTip.showText(QCursor.pos(), self.text(), self)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the button with as much of its text as fits."""
        if self._shown_text() == self.text():
            super().paintEvent(event)
            return
        option = QStyleOptionButton()
        self.initStyleOption(option)
        option.text = self._shown_text()
        QStylePainter(self).drawControl(QStyle.ControlElement.CE_PushButton, option)

    def _shown_text(self) -> str:
        room = self.fontMetrics().horizontalAdvance(self.text()) + self.width() - self.sizeHint().width()
        if not self._shortens or self.width() >= self.sizeHint().width():
            return self.text()
        return self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, room)

    def changeEvent(self, event: QEvent) -> None:
        """Redraw the icon when the palette changes."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange) and hasattr(self, "_tone"):
            self._draw()

    def _draw(self) -> None:
        colors = colors_of(self.window())  # the style sheet writes the button's fill into its own palette
        ink = _INKS[self._tone](colors)
        drawn = QIcon()
        if self._icon_name:
            ratio = self.devicePixelRatioF()
            size_px = scaled(ICON_PX)
            self.setIconSize(QSize(size_px, size_px))
            drawn = icon(self._icon_name, ink, size_px, disabled=colors.faint, pixel_ratio=ratio)
        self.setIcon(drawn)


def _button(text: str, slot: Slot | None, tone: str, icon_name: str) -> ActionButton:
    button = ActionButton(text, tone, icon_name)
    if slot is not None:
        button.clicked.connect(lambda _checked=False: slot())
    return button


def primary(text: str, slot: Slot | None = None, icon_name: str = "") -> ActionButton:
    """Make a primary button: the one next action of a page, in the accent color."""
    return _button(text, slot, "primary", icon_name)


def secondary(text: str, slot: Slot | None = None, icon_name: str = "") -> ActionButton:
    """Make a secondary button, for any other action."""
    return _button(text, slot, "secondary", icon_name)


def quiet(text: str, slot: Slot | None = None, icon_name: str = "") -> ActionButton:
    """Make a quiet button, which reads as a link."""
    return _button(text, slot, "quiet", icon_name)


def link(text: str, slot: Slot | None = None, icon_name: str = "") -> ActionButton:
    """Make a quiet button whose text begins where that of lines above and below it does."""
    button = _button(text, slot, "quiet", icon_name)
    button.setProperty("edge", "flush")
    return button


def danger(text: str, slot: Slot | None = None, icon_name: str = "") -> ActionButton:
    """Make a button for what cannot be undone, or ends something."""
    return _button(text, slot, "danger", icon_name)


def row(*widgets: QWidget | None, spacing_px: int = UNIT) -> QWidget:
    """Put widgets side by side without margins; None stands for a stretch."""
    holder = QWidget()
    line = fill(QHBoxLayout(holder), spacing_px=spacing_px)
    for widget in widgets:
        if widget is None:
            line.addStretch()
        elif isinstance(widget, QPushButton):  # without alignment, the lowest would bound the height of the others
            line.addWidget(widget, alignment=Qt.AlignmentFlag.AlignVCenter)
        else:
            line.addWidget(widget)
    return holder


class FoldedContent(QWidget):
    """A title that shows and hides what is below it; folded at first.

    Attributes:
        button: title, which folds and unfolds.
        content: widget that unfolds.
        lines: layout of the content.
    """

    def __init__(self) -> None:
        super().__init__()
        self._title = ""
        self.button = quiet("", self._toggle)
        self.button.allow_shortening()
        self.content = QWidget()
        self.lines = fill(QVBoxLayout(self.content), spacing_px=UNIT)
        fill(QVBoxLayout(self), (self.button, 0, Qt.AlignmentFlag.AlignLeft), self.content, spacing_px=UNIT)
        self.content.hide()

    def set_title(self, title: str) -> None:
        """Replace the title."""
        self._title = title
        folded = self.content.isHidden()
        self.button.setText(f"{'▸' if folded else '▾'}  {title}")
        self.button.setAccessibleName(f"{title}, {tr('folded') if folded else tr('open')}")

    @property
    def is_open(self) -> bool:
        """Whether the content is unfolded."""
        return not self.content.isHidden()

    def open(self) -> None:
        """Unfold the content."""
        if not self.is_open:
            self._toggle()

    def _toggle(self) -> None:
        self.content.setVisible(self.content.isHidden())
        self.set_title(self._title)
