"""The typefaces of the window, and the text size: bundled fonts, scaled as the system says and the person chose."""

from __future__ import annotations

from PySide6.QtGui import QFont, QFontDatabase, QGuiApplication
from PySide6.QtWidgets import QApplication

from burnish_app.look.tokens import (
    BODY_PX,
    FIGURE_PX,
    MAX_TEXT_SHARE,
    MIN_TEXT_SHARE,
    SMALL_PX,
    TITLE_PX,
    TITLE_SPACING_PX,
)
from burnish_engine.contract.paths import assets_dir

_FILES = (
    "inter/Inter-Regular.otf",
    "inter/Inter-Medium.otf",
    "inter/Inter-SemiBold.otf",
    "jetbrains-mono/JetBrainsMono-Regular.ttf",
)
_TEXT, _MONO = "Inter", "JetBrains Mono"
_SIZES = (SMALL_PX, BODY_PX, FIGURE_PX, TITLE_PX)
_USUAL_POINTS = (9.0, 12.0)  # the text size that desktops have by default, from Windows to Qt without a desktop
_USUAL_DPI = 96.0
_MOST_SYSTEM_SHARE = 2.0


_NARROWEST_PX = 456
"""Width of the content of a page in the narrowest window."""


class _Scale:
    """The share that all type sizes are multiplied by; one for the application."""

    share = 1.0


def load_fonts() -> None:
    """Add the bundled fonts to the application. A file that cannot be read leaves the system's fonts in place."""
    for file in _FILES:
        QFontDatabase.addApplicationFont(str(assets_dir() / "fonts" / file))


def system_text_share() -> float:
    """Return how much larger than usual the system shows text: its font size and its dots per inch, 1.0 as usual.

    To be read before the application's own font is set.
    """
    screen = QGuiApplication.primaryScreen()
    dpi = screen.logicalDotsPerInch() if screen is not None else _USUAL_DPI
    points = QApplication.font().pointSizeF()
    low, high = _USUAL_POINTS
    share = 1.0 if points <= 0 else points / min(max(points, low), high)
    return min(max(share * dpi / _USUAL_DPI, MIN_TEXT_SHARE), _MOST_SYSTEM_SHARE)


def set_text_share(share: float) -> None:
    """Set the share that all type sizes are multiplied by, and rescale the widgets that exist.

    Args:
        share: product of the system's share and the person's.
    """
    before, _Scale.share = _Scale.share, share
    if before == share:
        return
    for widget in QApplication.allWidgets():
        had = widget.font()
        if had.pixelSize() > 0:
            size_px = min(_SIZES, key=lambda size: abs(size * before - had.pixelSize()))
            had.setPixelSize(scaled(size_px))
            widget.setFont(had)


def scaled_width(size_px: float) -> int:
    """Return a least width at the present text size for what has to hold text, within the narrowest page.

    Args:
        size_px: width at 100 %, device-independent pixels.
    """
    return max(round(size_px), min(scaled(size_px), _NARROWEST_PX))


def scaled(size_px: float) -> int:
    """Return a length at the present text size, for what has to hold text.

    Args:
        size_px: length at 100 %, device-independent pixels.
    """
    return round(size_px * _Scale.share)


def chosen_share(percent: int) -> float:
    """Return a chosen text size as a share within its bounds.

    Args:
        percent: text size that the person chose.
    """
    return min(max(percent / 100, MIN_TEXT_SHARE), MAX_TEXT_SHARE)


def font(size_px: int = BODY_PX, *, bold: bool = False, medium: bool = False, mono: bool = False) -> QFont:
    """Return the studio's font, with digits of equal width so that changing numbers do not jump.

    Args:
        size_px: size of the type scale at 100 %, device-independent pixels.
        bold: whether the weight is semibold, for titles, headings and figures.
        medium: whether the weight is medium, for what can be pressed.
        mono: whether the font is monospaced, for paths, TOML and tokens.
    """
    made = QFont()
    if mono:
        made.setFamilies([_MONO, "Cascadia Mono", "Consolas", "DejaVu Sans Mono", "monospace"])
        made.setStyleHint(QFont.StyleHint.Monospace)
        for ligatures in ("calt", "liga"):  # tokens such as <|im_end|> are shown letter by letter
            made.setFeature(QFont.Tag(ligatures), 0)
    else:
        made.setFamilies([_TEXT, "Segoe UI", "Noto Sans", made.family()])
        made.setFeature(QFont.Tag("tnum"), 1)
    made.setPixelSize(scaled(size_px))
    made.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Medium if medium else QFont.Weight.Normal)
    if size_px >= FIGURE_PX:
        made.setLetterSpacing(QFont.SpacingType.AbsoluteSpacing, TITLE_SPACING_PX)
    return made
