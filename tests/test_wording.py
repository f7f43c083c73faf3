"""The words of the source: no name that was retired, and docstrings that begin with what they describe."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [path for folder in ("app", "engine", "kernels") for path in sorted((ROOT / folder).rglob("*.py"))]

RETIRED = {
    "Keep", "Parked", "Parks", "park", "parked", "parks", "settle", "abandon", "Slots", "copy_slots", "Places", "Pack",
    "aside", "carry", "carry_out", "conduct", "Desk", "attend", "Readings", "Materials", "gather", "Look", "look",
    "near", "noticing", "prose", "survey", "reach", "what_fits", "moments", "feedback", "rounding", "there",
    "apart", "ways", "arena", "shadows", "standing", "tell", "told", "words", "learned",
    "Layout", "Plan", "Part", "Circumstances", "Adapter", "Row", "Place", "Trained", "PackedLayout",
}  # fmt: skip
"""Names of an earlier vocabulary, in no use as a module, class, function or parameter; in prose they are free."""

NO_NOUN = re.compile(
    r"^\s+\*{0,2}\w+(?: \([^)]*\))?: "
    r"(?:Of|From|Its|Those|As|It|Where|What|In|With|For|To|On|By|One of|Also)\b"
)
"""A parameter's or attribute's line that does not begin with the noun that it is."""

NO_SUBJECT = re.compile(r"^(?:What|Where|How|That|See `|It,|Of|From|Its|Those|As)\b")
"""The first line of a docstring that does not say what a thing is or does."""

CEILINGS: dict[str, tuple[int, int]] = {}
"""Part -> most docstrings with such a first line, and most such parameters' lines. To be lowered, never raised."""


def part_of(path):
    """`engine/burnish_engine/data/...` belongs to the part `data`; the app and the kernels are one part each."""
    parts = path.relative_to(ROOT).parts
    return parts[2] if parts[0] == "engine" and len(parts) > 3 else parts[0]


def docstrings(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield node, text


def names(path):
    """Names that a file gives: its own, and those of its classes, functions and parameters; private ones as public."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name.strip("_")
        elif isinstance(node, ast.arg):
            yield node.arg


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_no_retired_name_is_left(name):
    found = {str(path.relative_to(ROOT)) for path in SOURCES if name in NAMES[path]}
    assert not found


NAMES = {path: set(names(path)) for path in SOURCES}


def test_no_two_classes_have_the_same_name():
    """One name, one meaning. Private classes of two files may share a name, but not that of a public class."""
    files = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name.strip("_"), []).append((not node.name.startswith("_"), path.name))
    assert not {name: given for name, given in files.items() if len(given) > 1 and any(public for public, _ in given)}


def test_docstrings_begin_with_what_they_describe():
    first, lines = Counter(), Counter()
    for path in SOURCES:
        for _, text in docstrings(path):
            head, *rest = text.split("\n")
            first[part_of(path)] += bool(NO_SUBJECT.match(head))
            lines[part_of(path)] += sum(bool(NO_NOUN.match(line)) for line in rest)
    found = {part: (first[part], lines[part]) for part in {*first, *lines} if first[part] or lines[part]}
    above = {
        part: counts
        for part, counts in found.items()
        if any(count > most for count, most in zip(counts, CEILINGS.get(part, (0, 0)), strict=True))
    }
    assert not above
