"""The look of the guide's pages, which are HTML."""

from __future__ import annotations

from burnish_app.look.fonts import scaled
from burnish_app.look.theme import font
from burnish_app.look.tokens import BODY_PX, FIGURE_PX, SMALL_PX, TITLE_PX, UNIT, Colors

TABLE = '<table width="99%" cellspacing="0">'
"""Start of a table, whose width and spacing no style sheet reaches in Qt. At 100 % its edge would need a scroll bar."""


def guide_style(c: Colors) -> str:
    """Return the style sheet of a page of the guide in the colors of a theme."""
    return f"""
h1 {{ font-size: {scaled(TITLE_PX)}px; font-weight: 600; }}
h2 {{ font-size: {scaled(FIGURE_PX)}px; font-weight: 600; margin-top: {3 * UNIT}px; }}
h3, h4 {{ font-size: {scaled(BODY_PX)}px; font-weight: 600; margin-top: {2 * UNIT}px; }}
p, li {{ line-height: 135%; }}
a {{ color: {c.link}; text-decoration: none; }}
code, pre {{ font-family: "{font(BODY_PX, mono=True).family()}"; font-size: {scaled(SMALL_PX)}px; }}
pre {{ background-color: {c.raised}; white-space: pre-wrap; }}
table {{ border-collapse: collapse; margin-top: {UNIT}px; margin-bottom: {UNIT}px; }}
td, th {{ border: 1px solid {c.line}; padding: {UNIT * 3 // 4}px; text-align: left; }}
"""
