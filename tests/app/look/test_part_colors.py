"""Every part of a plan's memory has a color of its own that can be seen."""

import ast
from itertools import combinations
from pathlib import Path

import pytest
from app.measures.color_math import contrast, distance

import burnish_engine.advise
from burnish_app.look.part_colors import PART_COLORS, part_color
from burnish_app.look.theme import DARK, LIGHT, Colors

_LEAST_CONTRAST = 3.0  # WCAG 2.2, 1.4.11, for graphics
_LEAST_DISTANCE = 0.06  # in OKLab; 0.02 is about what can just be told side by side


def names_of_the_engine():
    """Return what the engine's sources call the parts: `MemoryPart(name=...)`, and the peaks that whole models name."""
    found = set()
    for file in Path(burnish_engine.advise.__file__).parent.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "MemoryPart":
                found |= {
                    key.value.value
                    for key in node.keywords
                    if key.arg == "name" and isinstance(key.value, ast.Constant)
                }
            if isinstance(node, ast.FunctionDef) and node.name == "_peaks":
                texts = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
                docs = ast.get_docstring(node)
                found |= {text for text in texts if isinstance(text, str) and " " in text and text != docs}
    return found


@pytest.mark.full
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
