"""Design tokens: every size, distance, duration and color of the window, but for the colors of a memory plan. No Qt.

Widgets take their numbers from here and invent none. The colors of a plan's memory stand in `part_colors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dash = Literal["solid", "dash", "dot", "dash_dot"]

UNIT = 8
"""Grid step: margins and gaps are multiples of it or of its half, device-independent pixels."""
GAP_PX = 20
"""Distance between cards, and from a card's edge to its content."""
MARGIN_PX = 32
"""Distance from a page's edge to its content."""

SMALL_PX, BODY_PX, FIGURE_PX, TITLE_PX = 12, 14, 22, 28
"""The type scale at 100 % text size: captions and ticks, text and headings, figures and verdicts, a page's title."""
TITLE_SPACING_PX = -0.5
"""Letter spacing of titles and figures: large type is set tighter."""
MIN_TEXT_SHARE, MAX_TEXT_SHARE = 0.9, 1.5
"""Bounds of the text size that a person may choose, as a share of the system's."""

RADIUS_PX, CONTROL_RADIUS_PX, SMALL_RADIUS_PX = 12, 8, 4
"""Corner radius of cards, of controls, and of check boxes and swatches."""
CONTROL_PX = 36
"""Height of buttons and fields."""
PILL_PX = 22
RING_PX = 2
"""Width of the ring around what has the keyboard focus."""
ICON_PX, CHIP_PX = 18, 36
"""Edge of an icon on a button, and of the tinted square behind an icon beside a card's heading."""
SCROLL_BAR_PX = 10
UNBOUNDED_PX = 2**24 - 1
"""The largest size of a widget: QWIDGETSIZE_MAX, which PySide does not have."""

MOTION_MS = 120
"""Duration of a movement that explains something; none with reduced motion."""

SHADOWS = ((1, 2, 0.04), (8, 24, 0.04))
"""The soft shadow of a card: offset and blur in pixels, opacity in the light theme."""
TINT = 0.12
"""Opacity of an accent or status color behind an icon or a pill."""


@dataclass(frozen=True)
class LineStyle:
    """The color and dash of one kind of chart line. The dash differs too, for people who cannot tell the colors."""

    color: str
    dash: Dash


@dataclass(frozen=True)
class Colors:
    """The colors of the light or the dark theme, as #rrggbb.

    Attributes:
        window: page behind the cards.
        sidebar: column of steps.
        surface: cards and fields.
        raised: quiet fills: secondary buttons, tracks, chips.
        line: edge of cards, and grid lines.
        edge: border of fields and handle of scroll bars, 3 to 1 on what is around them.
        faint: disabled text and marks that say "nothing yet".
        accent: amber of heated metal, for the one next action and for live values.
        accent_ink: the same as text.
        link: what can be pressed and reads as text.
        focus: ring around what has the keyboard focus.
        shadow: black of a card's shadow; the opacity is in `SHADOWS`.
        series: kinds of chart lines.
        more_series: further ones, for charts with a line for each run.
        tokens: tints of supervised tokens, which alternate.
    """

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
    link: str
    link_soft: str
    focus: str
    error: str
    error_soft: str
    warning: str
    warning_soft: str
    success: str
    success_soft: str
    info: str
    info_soft: str
    shadow: str
    series: tuple[LineStyle, LineStyle, LineStyle, LineStyle]
    more_series: tuple[LineStyle, LineStyle, LineStyle, LineStyle]
    tokens: tuple[str, str, str, str]

    @property
    def lines(self) -> tuple[LineStyle, ...]:
        """All kinds of chart lines."""
        return (*self.series, *self.more_series)


# The three further series colors are blue, bluish green and reddish purple of Okabe and Ito, "Color Universal Design"
# (2008), made lighter on dark. The first is the accent, the one color for live values.
LIGHT = Colors(
    dark=False,
    window="#f7f5f1",
    sidebar="#efece5",
    surface="#fffefc",
    raised="#f3f0ea",
    line="#e6e2da",
    edge="#8f877b",
    text="#211e1a",
    muted="#625b51",
    faint="#8b8377",
    accent="#e5950f",
    accent_hover="#f0a52a",
    on_accent="#221703",
    accent_ink="#8f5500",
    accent_soft="#fbebcd",
    link="#1c5fae",
    link_soft="#e4eefa",
    focus="#1c5fae",
    error="#b3261e",
    error_soft="#fbe6e3",
    warning="#646400",
    warning_soft="#f5f3bd",
    success="#12694d",
    success_soft="#dff1ea",
    info="#1c5fae",
    info_soft="#e4eefa",
    shadow="#000000",
    series=(
        LineStyle("#c97a00", "solid"),
        LineStyle("#0072b2", "dash"),
        LineStyle("#00805d", "dot"),
        LineStyle("#a8487f", "dash_dot"),
    ),
    more_series=(
        LineStyle("#6a51c7", "solid"),
        LineStyle("#6f6a00", "dash"),
        LineStyle("#4c5a66", "dot"),
        LineStyle("#b0452c", "dash_dot"),
    ),
    tokens=("#d7f0df", "#d8eafb", "#e7e1fa", "#fbebc4"),
)
DARK = Colors(
    dark=True,
    window="#191715",
    sidebar="#141210",
    surface="#221f1c",
    raised="#2d2925",
    line="#35312c",
    edge="#7b7164",
    text="#ece7df",
    muted="#aba295",
    faint="#7d756a",
    accent="#f0a02c",
    accent_hover="#f8b450",
    on_accent="#211602",
    accent_ink="#f3b35a",
    accent_soft="#43341b",
    link="#8cbcf2",
    link_soft="#1f3145",
    focus="#8cbcf2",
    error="#f2928a",
    error_soft="#44272a",
    warning="#d9d65a",
    warning_soft="#37361a",
    success="#7fd0a8",
    success_soft="#1f3830",
    info="#8cbcf2",
    info_soft="#1f3145",
    shadow="#000000",
    series=(
        LineStyle("#f0a02c", "solid"),
        LineStyle("#56b4e9", "dash"),
        LineStyle("#3fc79c", "dot"),
        LineStyle("#dd90b8", "dash_dot"),
    ),
    more_series=(
        LineStyle("#a896f5", "solid"),
        LineStyle("#cfcb5a", "dash"),
        LineStyle("#b4c0cb", "dot"),
        LineStyle("#e8795a", "dash_dot"),
    ),
    tokens=("#1f3d2b", "#1d3850", "#352c50", "#4a3814"),
)
