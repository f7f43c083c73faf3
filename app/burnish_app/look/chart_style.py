"""Sizes and strengths of what charts draw. Colors are those of the theme."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPen

from burnish_app.look.theme import Colors, Dash

MEAN_PX, LINE_PX, RAW_PX, CURSOR_PX = 2.2, 1.6, 1.2, 1.0
"""Widths of a smoothed line, a line, the values of each step, and the cursor, device-independent pixels."""
POINT_PX, DOT_PX, MARK_PX, STAR_PX = 8, 7, 9, 15
"""Diameters of an evaluation's point, of the dots at the cursor, of marks, and of the best evaluation's star."""
GRID_ALPHA, AREA_ALPHA, SELECTION_ALPHA = 140, 120, 40
"""Opacity of the grid (on the theme's line color), of stacked areas, and of the range being selected, of 255."""
_RAW_ALPHA = {False: 115, True: 140}  # 45 and 55 %, by whether the theme is dark
_BAND_ALPHA = {False: 80, True: 95}
_DASHES: dict[Dash, list[float]] = {"solid": [], "dash": [5, 3], "dot": [1.5, 2.5], "dash_dot": [6, 2.5, 1.5, 2.5]}


def raw_alpha(colors: Colors) -> int:
    """Return the opacity of the values of each step, of 255."""
    return _RAW_ALPHA[colors.dark]


def band_alpha(colors: Colors) -> int:
    """Return the opacity of the band from the lowest to the highest value of each pixel column, of 255."""
    return _BAND_ALPHA[colors.dark]


def chart_pen(color: QColor | str, width_px: float = CURSOR_PX, *, alpha: int = 255, dash: Dash = "solid") -> QPen:
    """Make a pen for a chart. Its width is the same however far the chart is zoomed in.

    Args:
        color: color, as #rrggbb or Qt's.
        width_px: width, pixels of the device; 0: the thinnest line, which Qt draws fastest.
        alpha: opacity, of 255.
        dash: pattern of the line.
    """
    ink = QColor(color)
    ink.setAlpha(alpha)
    pen = QPen(ink, width_px)
    pen.setCosmetic(True)
    pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
    pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    if _DASHES[dash]:
        pen.setDashPattern(_DASHES[dash])
    return pen
