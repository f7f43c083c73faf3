"""What the project's source files import, name and say: each file is read and parsed once for all tests that ask."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("app", "engine", "kernels", "packaging")
PACKAGES = {
    "burnish_app": ROOT / "app" / "burnish_app",
    "burnish_engine": ROOT / "engine" / "burnish_engine",
    "burnish_kernels": ROOT / "kernels" / "burnish_kernels",
}


@dataclass
class Source:
    """What one file imports, names and says.

    Attributes:
        text: its text.
        imports: every module name imported anywhere in it, inside functions too; for `from a import b` both `a` and
            `a.b`.
        imports_at_start: those that take effect when the file itself is imported: none inside functions, and none that
            only type checkers read.
        imported: full name of each name that `from a import b` binds.
        private_reads: names and attributes of all reads such as `name._attribute`.
        docstrings: docstrings of modules, classes, functions and, behind their assignment, constants and attributes.
        classes: names of its classes.
        functions: names of its functions.
        parameters: names of the parameters of its functions.
        f_strings: nodes of its f-strings.
    """

    text: str
    imports: list[str] = field(default_factory=list)
    imports_at_start: list[str] = field(default_factory=list)
    imported: dict[str, str] = field(default_factory=dict)
    private_reads: list[tuple[str, str]] = field(default_factory=list)
    docstrings: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    parameters: set[str] = field(default_factory=set)
    f_strings: list[ast.JoinedStr] = field(default_factory=list)


@cache
def modules() -> dict[str, Path]:
    """Return the file of each module of the three packages, by the module's full name."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


@cache
def files() -> tuple[Path, ...]:
    """Return all source files, those of the set-up included."""
    return tuple(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))


@cache
def source(path: Path) -> Source:
    """Read a source file."""
    text = path.read_text(encoding="utf-8")
    found, tree = Source(text), ast.parse(text)
    found.imports_at_start += [name for node in _at_start(tree.body) for name in _names(node)]
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name(name), attribute) if attribute.startswith("_"):
                found.private_reads.append((name, attribute))
            case ast.arg():
                found.parameters.add(node.arg)
            case ast.JoinedStr():
                found.f_strings.append(node)
            case ast.Import():
                found.imports += _names(node)
            case ast.ImportFrom():
                assert node.level == 0, f"{path}: relative import"
                found.imports += _names(node)
                found.imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found.docstrings += _docstrings(node)
                if isinstance(node, ast.ClassDef):
                    found.classes.append(node.name)
                elif not isinstance(node, ast.Module):
                    found.functions.append(node.name)
    return found


def _names(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]


def _at_start(statements):
    """Imports among the statements, and within their branches and classes; not within functions."""
    for one in statements:
        match one:
            case ast.Import() | ast.ImportFrom():
                yield one
            case ast.If(ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                yield from _at_start(one.orelse)
            case ast.If() | ast.Try() | ast.With() | ast.ClassDef():
                inner = [one.body, getattr(one, "orelse", []), getattr(one, "finalbody", [])]
                inner += [handler.body for handler in getattr(one, "handlers", [])]
                for body in inner:
                    yield from _at_start(body)


def _docstrings(node):
    if text := ast.get_docstring(node, clean=False):
        yield text
    for before, after in pairwise(node.body):
        match before, after:
            case (ast.Assign() | ast.AnnAssign(), ast.Expr(ast.Constant(str() as text))):
                yield text
