"""The words of the source: no name that was retired, and docstrings that begin with what they describe."""

import ast
import io
import re
import tokenize
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("app", "engine", "kernels", "packaging")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]

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

NO_SUBJECT = re.compile(r"^(?:What|Where|How|That|See `|It,|Of|From|Its|Those|As|In|For|All that)\b")
"""The first line of a docstring that does not say what a thing is or does; constants have docstrings too."""

NO_QUANTITY = re.compile(r"^# (?:of|as|what|how|its|those)\b")
"""A comment behind a constant that begins in the middle of its sentence."""


def docstrings(path):
    """The docstrings of modules, classes, functions and, behind their assignment, constants and attributes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node, clean=False):
                yield text
            for before, after in pairwise(node.body):
                match before, after:
                    case (ast.Assign() | ast.AnnAssign(), ast.Expr(ast.Constant(str() as text))):
                        yield text


def comments_of_constants(path):
    """The comments behind assignments of constants, which are written in capitals."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT and re.match(r"^[A-Z_][A-Z0-9_, ]*(?::[^=]+)?= ", token.line):
            yield token.string


def names(path):
    """Names that a file gives: its own, and those of its classes, functions and parameters; private ones as public."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name.strip("_")
        elif isinstance(node, ast.arg):
            yield node.arg


@cache
def all_names():
    """The names that each file gives; read by the first test that asks, as collecting the tests has no need of them."""
    return {path: set(names(path)) for path in SOURCES}


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_no_retired_name_is_left(name):
    found = {str(path.relative_to(ROOT)) for path, given in all_names().items() if name in given}
    assert not found


def test_no_two_classes_have_the_same_name():
    """One name, one meaning. Private classes of two files may share a name, but not that of a public class."""
    files = {}
    for path in (path for path in SOURCES if "packaging" not in path.parts):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name.strip("_"), []).append((not node.name.startswith("_"), path.name))
    assert not {name: given for name, given in files.items() if len(given) > 1 and any(public for public, _ in given)}


def test_docstrings_begin_with_what_they_describe():
    found = {}
    for path in SOURCES:
        for text in docstrings(path):
            head, *rest = text.split("\n")
            bad = [head] * bool(NO_SUBJECT.match(head)) + [line for line in rest if NO_NOUN.match(line)]
            if bad:
                found.setdefault(str(path.relative_to(ROOT)), []).extend(bad)
    assert not found


def test_comments_of_constants_begin_with_what_the_constant_is():
    found = {
        str(path.relative_to(ROOT)): bad
        for path in SOURCES
        if (bad := [text for text in comments_of_constants(path) if NO_QUANTITY.match(text)])
    }
    assert not found
