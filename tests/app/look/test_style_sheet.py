"""The style sheet: what is chosen stands out from what is not, the same way in both themes."""

import re

import pytest
from app.measures.color_math import contrast

from burnish_app.look.style_sheet import style_sheet
from burnish_app.look.tokens import DARK, LIGHT


def ground(sheet, selector):
    return re.search(re.escape(selector) + r"[^{]*\{[^}]*background: (#[0-9a-f]{6})", sheet)[1]


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_the_chosen_segment_is_the_lighter_one(colors):
    sheet = style_sheet(colors)
    track, chosen = ground(sheet, 'QFrame[look="segments"]'), ground(sheet, 'QPushButton[look="segment"]:checked')
    assert contrast(chosen, "#000000") > contrast(track, "#000000")
