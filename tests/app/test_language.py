"""Every shown string goes through `tr`: no bare sentence in the window's source, and another language reaches pages."""

import ast
import re
from pathlib import Path

from burnish_app.look import language

APP = Path(__file__).resolve().parents[2] / "app" / "burnish_app"
NO_WORDS = {"style_sheet.py", "guide_style.py", "tokens.py", "part_colors.py", "instrument.py"}
FILES = [path for path in sorted(APP.rglob("*.py")) if path.name not in NO_WORDS]
NOT_SHOWN = {
    "compile", "debug", "warning", "exception", "getattr", "setProperty", "setObjectName", "strftime", "startswith",
    "endswith", "removeprefix", "removesuffix", "QSettings", "value", "setValue", "addApplicationFont", "find",
    "insert", "write", "setStyleSheet",
}  # fmt: skip
"""Functions whose arguments nobody reads in the window: logs, names of properties, keys of caches and settings."""
NAMES = {
    "Burnish.Studio",
    "DejaVu Sans Mono",
    "Cascadia Mono",
    "JetBrains Mono",
    "Segoe UI",
    "Noto Sans",
    "LM Studio",
    "burnish studio",
}
PLACE = re.compile(r"\{[^}]*\}")
SENTENCE = re.compile(r"[A-Za-z]{2,}[^\s]* +[(A-Za-z0-9]")
"""Two words with a space between them: what a person reads, not a key."""


def text_of(node):
    """The words of a string or an f-string; empty for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def called(node):
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def parts_of(node):
    """The parts of a node in which shown text may stand: no docstrings, errors, comparisons, keys and the like."""
    if isinstance(node, ast.Call) and called(node) in {"tr", "plural"}:  # plural looks its nouns up itself
        return []
    if isinstance(node, ast.Call) and called(node) in NOT_SHOWN:
        return node.keywords
    if isinstance(node, ast.Raise | ast.Assert | ast.Compare | ast.MatchValue):
        return []
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return []
    if isinstance(node, ast.Dict):
        return node.values
    return [node.value] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node)


def bare_texts(tree):
    """Lines and texts that read as sentences and are in no call of `tr`."""
    found = []
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        text = PLACE.sub("", text_of(node))
        if text and SENTENCE.search(text) and text not in NAMES:
            found.append((node.lineno, text))
        else:
            nodes += parts_of(node)
    return sorted(found)


def test_no_shown_string_is_bare():
    assert not {
        path.name: found for path in FILES if (found := bare_texts(ast.parse(path.read_text(encoding="utf-8"))))
    }


def test_there_is_one_way_to_look_texts_up():
    """`tr` of `look.language`, not that of Qt's objects."""
    assert not [path.name for path in FILES if "self.tr(" in path.read_text(encoding="utf-8")]


def test_the_check_sees_bare_strings():
    source = 'caption("Reading the data")\nbody(f"{n} rows were cut")\nbody(tr("{n} rows").format(n=1))\nx == "a b c"\n'
    assert [line for line, _ in bare_texts(ast.parse(source))] == [1, 2]


def test_another_language_is_looked_up_and_values_are_put_in_afterwards():
    language.install(lambda text: {"{n} rows": "{n} Zeilen"}.get(text, text))
    try:
        assert language.tr("{n} rows").format(n=3) == "3 Zeilen"
        assert language.tr("no such text") == "no such text"
    finally:
        language.install(lambda text: text)
    assert language.tr("{n} rows") == "{n} rows"
