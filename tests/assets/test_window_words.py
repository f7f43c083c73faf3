"""Names of pages, buttons and headings in README and guide are those that the window shows."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from burnish_app.page_list import PAGES
from burnish_app.recipe.recipe_fields import recipe_fields

ROOT = Path(__file__).resolve().parents[2]
README, GUIDE = ROOT / "README.md", ROOT / "assets" / "guide"
_EMPHASIS = re.compile(r"(?<!\*)\*([^*]+)\*(?!\*)")
_STEP = re.compile(r"^\d\. \*\*([^*]+)\*\*", flags=re.MULTILINE)
_MORE = (" ...", ":", " (", ".", ",")
"""Endings that a name may have in the window: it opens a dialog, says more, or says it in plain words."""


def window_texts(source):
    """Texts that a module hands to `tr`, each with any value in its gaps."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tr" and node.args:
            text = node.args[0]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text.value


@cache
def all_texts():
    modules = sorted((ROOT / "app" / "burnish_app").rglob("*.py"))
    written = {text for path in modules for text in window_texts(path.read_text(encoding="utf-8"))}
    declared = {text for field in recipe_fields() for text in (field.label, field.zero, *field.info.choices.values())}
    return written | declared


def is_shown(phrase, texts):
    """Whether a text is the phrase, or begins with it and says more."""
    return phrase in texts or any(text.startswith(tuple(phrase + more for more in _MORE)) for text in texts)


def named_in(markdown):
    """Passages in italics, each in one line."""
    without_code = re.sub(r"^```.*?^```$|`[^`\n]+`", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(phrase.split()) for phrase in _EMPHASIS.findall(without_code)]


def five_minutes():
    text = README.read_text(encoding="utf-8")
    return text.partition("## Five minutes, in the window")[2].partition("\n## ")[0]


def window_page():
    return (GUIDE / "window.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("markdown", [five_minutes, window_page])
def test_what_the_tour_names_is_written_on_the_window(markdown):
    named = named_in(markdown())
    assert named
    assert [phrase for phrase in named if not is_shown(phrase, all_texts())] == []


def test_the_tour_goes_through_the_steps_in_the_window_s_order():
    steps = [entry.title for entry in PAGES if entry.place == "step"]
    assert _STEP.findall(five_minutes()) == steps
    titles = re.findall(r"^### ([^:\n]+)", window_page(), flags=re.MULTILINE)
    assert titles == [entry.title for entry in PAGES[1:]]


def test_a_button_of_another_name_is_found():
    texts = set(window_texts('secondary(tr("Use a file of its own ..."))\nlabel = "Not shown"'))
    assert is_shown("Use a file of its own", texts)
    assert not is_shown("Use a file", texts)
    assert not is_shown("Not shown", texts)


def test_of_the_settings_only_those_of_the_form_are_shown():
    assert is_shown("Stop after", all_texts())
    assert not is_shown("Ram gib", all_texts()), "its field has no line in the form"
