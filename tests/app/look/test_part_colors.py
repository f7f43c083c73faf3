"""The parts of a plan's memory are one ramp and gray: each can be seen, and told from its neighbors."""

import ast
from itertools import pairwise
from pathlib import Path

import pytest
from app.measures.color_math import contrast, distance, luminance

import burnish_engine.advise
from burnish_app.look.part_colors import OVERHEAD, part_colors
from burnish_app.look.theme import DARK, LIGHT, Colors

_LEAST_CONTRAST = 3.0  # WCAG 2.2, 1.4.11, for graphics
_LEAST_DISTANCE = 0.03  # in OKLab; 0.02 is about what can just be told side by side
_MOST = 8


def test_what_no_setting_makes_smaller_is_named_as_the_engine_names_it():
    files = Path(burnish_engine.advise.__file__).parent.rglob("*.py")
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {text.lower() for text in texts if isinstance(text, str)} >= OVERHEAD


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("count", [1, 2, _MOST])
def test_parts_can_be_seen_and_told_from_their_neighbors(colors: Colors, count):
    own = [f"part {number}" for number in range(count)]
    blues = part_colors(own, dark=colors.dark)
    grays = part_colors([*own, *sorted(OVERHEAD)], dark=colors.dark)[count:]
    for color in (*blues, *grays):
        assert contrast(color, colors.surface) >= _LEAST_CONTRAST, color
    for ramp in (blues, grays):
        assert [luminance(color) for color in ramp] == sorted(luminance(color) for color in ramp)
        assert all(distance(first, second) >= _LEAST_DISTANCE for first, second in pairwise(ramp))


def test_overhead_keeps_its_gray_wherever_it_stands():
    mixed = part_colors(["Base weights", "CUDA context", "activations"], dark=False)
    assert mixed[1:2] == part_colors(["cuda context"], dark=False)
    assert mixed[0::2] == part_colors(["base weights", "activations"], dark=False)
