"""Applies the light or the dark theme: Qt's palette and style sheet, made of the design tokens.

Widgets that paint ask `colors_of(self)`, which reads light or dark off the widget's own palette, so no widget needs a
notification when the system switches: Qt sends a palette change and everything repaints.
"""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QDir, QObject, Qt, Signal
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QApplication, QWidget

from burnish_app.look.fonts import chosen_share, font, load_fonts, set_text_share, system_text_share
from burnish_app.look.style_sheet import ICONS, style_sheet
from burnish_app.look.tokens import (
    BODY_PX,
    DARK,
    FIGURE_PX,
    GAP_PX,
    LIGHT,
    RADIUS_PX,
    SCROLL_BAR_PX,
    SMALL_PX,
    TITLE_PX,
    UNIT,
    Colors,
    Dash,
    LineStyle,
)
from burnish_engine.contract.paths import assets_dir

__all__ = [
    "BODY_PX",
    "DARK",
    "FIGURE_PX",
    "GAP_PX",
    "LIGHT",
    "RADIUS_PX",
    "SCROLL_BAR_PX",
    "SMALL_PX",
    "TITLE_PX",
    "UNIT",
    "Colors",
    "Dash",
    "LineStyle",
    "Theme",
    "ThemeMode",
    "colors_of",
    "font",
    "qt_palette",
]

ThemeMode = Literal["system", "light", "dark"]


def colors_of(widget: QWidget) -> Colors:
    """Return the light or the dark colors, whichever fit the widget's palette."""
    return DARK if widget.palette().color(QPalette.ColorRole.Window).lightness() < 128 else LIGHT


class Theme(QObject):
    """Applies the light or the dark theme to an application, as the system says or as the person chose.

    Args:
        app: application.
        mode: light, dark, or as the system says.
        text_percent: text size, percent of the system's.

    Attributes:
        changed: signal without arguments, emitted after another theme or text size was applied.
    """

    changed = Signal()

    def __init__(self, app: QApplication, mode: ThemeMode = "system", text_percent: int = 100) -> None:
        super().__init__(app)
        self._app = app
        self._mode: ThemeMode = mode
        self._system_share = system_text_share()
        self._text_percent = text_percent
        load_fonts()
        app.setStyle("Fusion")
        set_text_share(self._system_share * chosen_share(text_percent))
        app.setFont(font())
        QDir.setSearchPaths(ICONS, [str(assets_dir() / "icons")])
        app.styleHints().colorSchemeChanged.connect(self._apply)
        self._apply()

    @property
    def mode(self) -> ThemeMode:
        """The mode that the person chose."""
        return self._mode

    def set_mode(self, mode: ThemeMode) -> None:
        """Choose between light, dark and the system's setting."""
        self._mode = mode
        self._apply()

    @property
    def text_percent(self) -> int:
        """The text size that the person chose, percent of the system's."""
        return self._text_percent

    def set_text_percent(self, percent: int) -> None:
        """Choose the text size.

        Args:
            percent: text size, percent of the system's.
        """
        self._text_percent = percent
        set_text_share(self._system_share * chosen_share(percent))
        self._app.setFont(font())
        self.changed.emit()

    @property
    def colors(self) -> Colors:
        """The colors in use."""
        if self._mode == "system":
            return DARK if self._app.styleHints().colorScheme() == Qt.ColorScheme.Dark else LIGHT
        return DARK if self._mode == "dark" else LIGHT

    def _apply(self) -> None:
        colors = self.colors
        self._app.setPalette(qt_palette(colors))
        self._app.setStyleSheet(style_sheet(colors))
        self.changed.emit()


def qt_palette(colors: Colors) -> QPalette:
    """Return Qt's palette in these colors."""
    role = QPalette.ColorRole
    palette = QPalette()
    for which, value in {
        role.Window: colors.window,
        role.Base: colors.surface,
        role.AlternateBase: colors.raised,
        role.Button: colors.raised,
        role.Light: colors.surface,
        role.Midlight: colors.raised,
        role.Mid: colors.line,
        role.Dark: colors.line,
        role.Shadow: colors.sidebar,
        role.WindowText: colors.text,
        role.Text: colors.text,
        role.ButtonText: colors.text,
        role.ToolTipText: colors.text,
        role.BrightText: colors.error,
        role.ToolTipBase: colors.raised,
        role.Highlight: colors.accent,
        role.Accent: colors.accent,
        role.HighlightedText: colors.on_accent,
        role.Link: colors.link,
        role.LinkVisited: colors.link,
        role.PlaceholderText: colors.muted,
    }.items():
        palette.setColor(which, QColor(value))
    for which in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, which, QColor(colors.faint))
    return palette
