"""The light and the dark theme: colors, type sizes and spacing, and the Qt palette and style sheet made of them.

All colors of the studio stand here, except those of a plan's memory (part_colors). Widgets that paint ask
`colors_of(self)`, which reads light or dark off the widget's own palette, so no widget needs a notification when the
system switches: Qt sends a palette change and everything repaints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QDir, QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QPalette
from PySide6.QtWidgets import QApplication, QWidget

from burnish_engine.contract.paths import assets_dir

ThemeMode = Literal["system", "light", "dark"]
Dash = Literal["solid", "dash", "dot", "dash_dot"]

UNIT = 8
"""Grid step: margins and gaps are multiples of it, device-independent pixels."""
SMALL_PX, BODY_PX, TITLE_PX = 12, 14, 24
"""The three type sizes, device-independent pixels."""
RADIUS_PX = 8
SCROLL_BAR_PX = 10


@dataclass(frozen=True)
class LineStyle:
    """The color and dash of one kind of chart line. The dash differs too, for people who cannot tell the colors."""

    color: str
    dash: Dash


@dataclass(frozen=True)
class Colors:
    """The colors of the light or the dark theme, as #rrggbb."""

    dark: bool
    window: str
    sidebar: str
    surface: str
    raised: str
    line: str
    edge: str
    text: str
    muted: str
    faint: str
    accent: str
    accent_hover: str
    on_accent: str
    accent_ink: str
    accent_soft: str
    error: str
    error_soft: str
    warning: str
    warning_soft: str
    success: str
    success_soft: str
    info: str
    info_soft: str
    series: tuple[LineStyle, LineStyle, LineStyle, LineStyle]


# The three further series colors are blue, bluish green and reddish purple of Okabe and Ito, "Color Universal Design"
# (2008), made lighter on dark. The first is the accent, the one color for live values.
LIGHT = Colors(
    dark=False,
    window="#f5f3ef",
    sidebar="#ebe8e1",
    surface="#fdfcfa",
    raised="#f0ede7",
    line="#dcd7cd",
    edge="#b9b1a4",
    text="#25221d",
    muted="#665f55",
    faint="#928a7e",
    accent="#e5950f",
    accent_hover="#f0a52a",
    on_accent="#221703",
    accent_ink="#8f5500",
    accent_soft="#fbebcd",
    error="#b3261e",
    error_soft="#f9e3e0",
    warning="#8a5a00",
    warning_soft="#f8ecd2",
    success="#2f6b3a",
    success_soft="#e0eee0",
    info="#2b5f8c",
    info_soft="#e1eaf3",
    series=(
        LineStyle("#c97a00", "solid"),
        LineStyle("#0072b2", "dash"),
        LineStyle("#00805d", "dot"),
        LineStyle("#a8487f", "dash_dot"),
    ),
)
DARK = Colors(
    dark=True,
    window="#1b1917",
    sidebar="#151412",
    surface="#24211e",
    raised="#2e2a26",
    line="#3b3630",
    edge="#645b50",
    text="#ece7df",
    muted="#aaa195",
    faint="#7d756a",
    accent="#f0a02c",
    accent_hover="#f8b450",
    on_accent="#211602",
    accent_ink="#f3b35a",
    accent_soft="#43341b",
    error="#f2928a",
    error_soft="#44272a",
    warning="#ecc06c",
    warning_soft="#40341e",
    success="#8fcf98",
    success_soft="#25382a",
    info="#8fbfe8",
    info_soft="#233342",
    series=(
        LineStyle("#f0a02c", "solid"),
        LineStyle("#56b4e9", "dash"),
        LineStyle("#3fc79c", "dot"),
        LineStyle("#dd90b8", "dash_dot"),
    ),
)


def colors_of(widget: QWidget) -> Colors:
    """Return the light or the dark colors, whichever fit the widget's palette."""
    return DARK if widget.palette().color(QPalette.ColorRole.Window).lightness() < 128 else LIGHT


def font(size_px: int = BODY_PX, *, bold: bool = False, mono: bool = False) -> QFont:
    """Return the studio's font: the system's, with digits of equal width so that changing numbers do not jump.

    Args:
        size_px: type size, device-independent pixels.
        bold: whether the weight is semibold, for headings and figures.
        mono: whether the font is monospaced, for paths, TOML and tokens.
    """
    made = QFont()
    if mono:
        made.setFamilies(["Cascadia Mono", "JetBrains Mono", "Consolas", "DejaVu Sans Mono", "monospace"])
        made.setStyleHint(QFont.StyleHint.Monospace)
    else:
        made.setFamilies(["Segoe UI Variable Text", "Segoe UI", "Inter", "Inter Variable", "Noto Sans", made.family()])
    made.setPixelSize(size_px)
    made.setFeature(QFont.Tag("tnum"), 1)
    made.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    return made


class Theme(QObject):
    """Applies the light or the dark theme to an application, as the system says or as the person chose.

    Attributes:
        changed: signal without arguments, emitted after another theme was applied.
    """

    changed = Signal()

    def __init__(self, app: QApplication, mode: ThemeMode = "system") -> None:
        super().__init__(app)
        self._app = app
        self._mode: ThemeMode = mode
        app.setStyle("Fusion")
        app.setFont(font())
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
    def colors(self) -> Colors:
        """The colors in use."""
        if self._mode == "system":
            return DARK if self._app.styleHints().colorScheme() == Qt.ColorScheme.Dark else LIGHT
        return DARK if self._mode == "dark" else LIGHT

    def _apply(self) -> None:
        colors = self.colors
        self._app.setPalette(qt_palette(colors))
        QDir.setSearchPaths(_ICONS, [str(assets_dir() / "icons")])
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
        role.Link: colors.accent_ink,
        role.LinkVisited: colors.accent_ink,
        role.PlaceholderText: colors.muted,
    }.items():
        palette.setColor(which, QColor(value))
    for which in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, which, QColor(colors.faint))
    return palette


_ICONS = "burnishicons"  # search path of Qt's: a folder's own name, with its spaces, would have to be escaped


def style_sheet(colors: Colors) -> str:
    """Return the style sheet that goes over Qt's Fusion style. Widgets opt in by the dynamic property `look`."""
    c = colors
    return f"""
QToolTip {{ background: {c.raised}; color: {c.text}; border: 1px solid {c.line}; padding: 6px; }}
QScrollArea, QScrollArea > QWidget > QWidget {{ background: transparent; border: none; }}
QLabel[look="muted"] {{ color: {c.muted}; }}
QLabel[look="accent"] {{ color: {c.accent_ink}; }}
QLabel[look="error"] {{ color: {c.error}; }}
QLabel[look="warning"] {{ color: {c.warning}; }}
QLabel[look="success"] {{ color: {c.success}; }}
QWidget#sidebar {{ background: {c.sidebar}; }}
QFrame#footbar {{ background: {c.window}; border-top: 1px solid {c.line}; }}
QFrame[look="card"] {{ background: {c.surface}; border-radius: {RADIUS_PX}px; }}
QFrame[look="banner-info"] {{ background: {c.info_soft}; border-radius: {RADIUS_PX}px; }}
QFrame[look="banner-warning"] {{ background: {c.warning_soft}; border-radius: {RADIUS_PX}px; }}
QFrame[look="banner-error"] {{ background: {c.error_soft}; border-radius: {RADIUS_PX}px; }}
QFrame[look="banner-success"] {{ background: {c.success_soft}; border-radius: {RADIUS_PX}px; }}
QPushButton {{ border-radius: 6px; padding: 7px 14px; border: 1px solid transparent; }}
QPushButton:focus {{ border: 1px solid {c.accent}; }}
QPushButton[look="primary"] {{ background: {c.accent}; color: {c.on_accent}; padding: 9px 22px; }}
QPushButton[look="primary"]:hover {{ background: {c.accent_hover}; }}
QPushButton[look="primary"]:focus {{ border: 1px solid {c.text}; }}
QPushButton[look="primary"]:disabled {{ background: {c.raised}; color: {c.faint}; }}
QPushButton[look="secondary"] {{ background: {c.raised}; color: {c.text}; }}
QPushButton[look="secondary"]:hover, QPushButton[look="secondary"]:checked {{ background: {c.line}; }}
QPushButton[look="secondary"]:disabled {{ color: {c.faint}; }}
QPushButton[look="quiet"] {{ background: transparent; color: {c.accent_ink}; padding: 4px 6px; }}
QPushButton[look="quiet"]:hover {{ background: {c.raised}; }}
QPushButton[look="quiet"]:disabled {{ color: {c.faint}; }}
QLineEdit, QPlainTextEdit, QTextEdit, QSpinBox, QDoubleSpinBox, QComboBox {{
  background: {c.surface}; color: {c.text}; border: 1px solid {c.edge}; border-radius: 6px; padding: 6px 8px;
  selection-background-color: {c.accent}; selection-color: {c.on_accent}; placeholder-text-color: {c.muted}; }}
QLineEdit:focus, QPlainTextEdit:focus, QTextEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus {{
  border: 1px solid {c.accent}; }}
QPlainTextEdit[readOnly="true"] {{ border: 1px solid {c.line}; }}
QTextEdit[look="plain"] {{ background: transparent; border: none; padding: 0; }}
QLineEdit:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled, QComboBox:disabled {{ color: {c.faint}; }}
QLineEdit[look="error"], QSpinBox[look="error"], QDoubleSpinBox[look="error"], QComboBox[look="error"] {{
  border: 1px solid {c.error}; }}
QCheckBox::indicator, QRadioButton::indicator {{ width: 16px; height: 16px; border: 1px solid {c.faint};
  border-radius: 4px; background: {c.surface}; }}
QRadioButton::indicator {{ border-radius: 9px; }}
QCheckBox::indicator:focus, QRadioButton::indicator:focus {{ border: 1px solid {c.accent}; }}
QCheckBox::indicator:checked {{ background: {c.accent}; border: 1px solid {c.accent}; image: url({_ICONS}:check.svg); }}
QRadioButton::indicator:checked {{ border: 5px solid {c.accent}; width: 8px; height: 8px; border-radius: 9px; }}
QCheckBox::indicator:disabled, QRadioButton::indicator:disabled {{ border-color: {c.line}; }}
QComboBox::drop-down {{ border: none; width: 24px; }}
QComboBox::down-arrow {{ image: url({_ICONS}:chevron-down.svg); width: 12px; height: 12px; }}
QComboBox QAbstractItemView {{ background: {c.surface}; border: 1px solid {c.line}; padding: 4px; }}
QSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::up-button, QDoubleSpinBox::down-button {{
  width: 0; border: none; }}
QTableView, QListView, QTreeView {{ background: {c.surface}; border: none; border-radius: {RADIUS_PX}px; outline: none;
  alternate-background-color: {c.surface}; gridline-color: {c.line};
  selection-background-color: {c.accent_soft}; selection-color: {c.text}; }}
QTableView::item {{ padding: 6px 5px; border: none; }}
QListView::item {{ padding: 6px 8px; border: none; }}
QHeaderView {{ background: transparent; border: none; }}
QHeaderView::section {{ background: {c.surface}; color: {c.muted}; border: none; border-bottom: 1px solid {c.line};
  padding: 8px; }}
QScrollBar:vertical {{ background: transparent; width: {SCROLL_BAR_PX}px; margin: 0; }}
QScrollBar:horizontal {{ background: transparent; height: {SCROLL_BAR_PX}px; margin: 0; }}
QScrollBar::handle {{ background: {c.line}; border-radius: 5px; min-height: 32px; min-width: 32px; }}
QScrollBar::handle:hover {{ background: {c.faint}; }}
QScrollBar::handle:disabled {{ background: transparent; }}
QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
"""
