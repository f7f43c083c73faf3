"""Every part of a plan's memory has a color of its own that can be seen."""

import ast
from itertools import combinations
from pathlib import Path

import pytest

import burnish_engine.advise
from burnish_app.part_colors import PART_COLORS, part_color
from burnish_app.theme import DARK, LIGHT, Colors

_LEAST_CONTRAST = 3.0  # WCAG 2.2, 1.4.11, for graphics
_LEAST_DISTANCE = 0.06  # in OKLab; 0.02 is about what can just be told side by side


def names_of_the_engine():
    """What the engine's sources call the parts: `MemoryPart(name=...)`, and the moments that whole models name."""
    found = set()
    for file in Path(burnish_engine.advise.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "MemoryPart":
                found |= {
                    key.value.value
                    for key in node.keywords
                    if key.arg == "name" and isinstance(key.value, ast.Constant)
                }
            if isinstance(node, ast.FunctionDef) and node.name == "_moments":
                texts = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
                docs = ast.get_docstring(node)
                found |= {text for text in texts if isinstance(text, str) and " " in text and text != docs}
    return found


def linear(color):
    parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(color):
    red, green, blue = linear(color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first, second):
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def oklab(color):
    """Ottosson, "A perceptual color space for image processing" (2020)."""
    red, green, blue = linear(color)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.793617785 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.428592205 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.808675766 * short,
    )


def distance(first, second):
    return sum((a - b) ** 2 for a, b in zip(oklab(first), oklab(second), strict=True)) ** 0.5


def test_the_engine_s_names_are_found():
    names = names_of_the_engine()
    assert {"base weights", "graph pools", "CUDA context", "master weights", "optimizer at work"} <= names
    assert len(names) > 15


def test_every_name_of_the_engine_has_a_color_and_no_color_is_left_over():
    assert {name.lower() for name in names_of_the_engine()} == set(PART_COLORS)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_colors_can_be_seen_and_told_apart(colors: Colors):
    shown = {name: part_color(name, dark=colors.dark) for name in [*PART_COLORS, "anything else"]}
    for name, color in shown.items():
        assert contrast(color, colors.surface) >= _LEAST_CONTRAST, name
    for (name, color), (other, second) in combinations(shown.items(), 2):
        assert distance(color, second) >= _LEAST_DISTANCE, (name, other)


def test_the_legend_s_capitals_change_nothing():
    assert part_color("CUDA context", dark=False) == part_color("cuda context", dark=False)
    assert part_color("Base weights", dark=True) == PART_COLORS["base weights"].dark
