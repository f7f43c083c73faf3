"""Small changes of Python source, such as a person makes by mistake; `faults` plants them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_SWAPPED: dict[type[ast.AST], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.And: "or",
    ast.Or: "and",
}
_OTHER_FUNCTION = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


def mutations(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield changes of one line each, all inside functions.

    Yields:
        Number of the line, from 1; its new text; kind of the change.
    """
    lines = source.splitlines()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                for node in ast.walk(statement):
                    yield from _of_node(node, lines)


def _of_node(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, str, str]]:
    yield from _of_sign(node, lines)
    yield from _of_call(node, lines)
    yield from _of_value(node, lines)
    yield from _of_statement(node, lines)


def _of_sign(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, str, str]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield from _between(left, right, _SWAPPED.get(type(op)), "comparison", lines)
        case ast.BinOp(left=left, op=op, right=right) if not _is_text(left) and not _is_text(right):
            yield from _between(left, right, _SWAPPED.get(type(op)), "arithmetic", lines)
        case ast.BoolOp(op=op, values=[left, right]):
            yield from _between(left, right, _SWAPPED[type(op)], "and, or", lines)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _replaced(node, _text(operand, lines), "not dropped", lines)
        case ast.If(test=test) | ast.IfExp(test=test) if (found := _text(test, lines)) is not None:
            yield from _replaced(test, f"(not ({found}))", "condition turned", lines)


def _of_call(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, str, str]]:
    match node:
        case ast.Call(func=ast.Name(id=name) as called) if name in _OTHER_FUNCTION:
            yield from _replaced(called, _OTHER_FUNCTION[name], "other function", lines)
        case ast.Call(args=[first, second]) if not isinstance(second, ast.Starred):
            a, b = _text(first, lines), _text(second, lines)
            if a and b and a != b and first.lineno == second.lineno:
                line = lines[first.lineno - 1]
                changed = f"{_cut(line, 0, first.col_offset)}{b}, {a}{_cut(line, second.end_col_offset)}"
                yield first.lineno, changed, "arguments swapped"


def _of_value(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, str, str]]:
    match node:
        case ast.Constant(value=bool(value)):
            yield from _replaced(node, str(not value), "truth turned", lines)
        case ast.Constant(value=int(value)):
            yield from _replaced(node, str(value + 1), "number", lines)


def _of_statement(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, str, str]]:
    match node:
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign() if node.lineno == node.end_lineno:
            yield from _replaced(node, "pass", "statement dropped", lines)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield from _replaced(value, "None", "nothing returned", lines)
        case ast.Continue():
            yield from _replaced(node, "break", "loop ended", lines)


def _between(
    left: ast.expr, right: ast.expr, sign: str | None, kind: str, lines: list[str]
) -> Iterator[tuple[int, str, str]]:
    """Yield the line with another sign between two operands on it."""
    if sign and left.end_lineno == right.lineno and left.end_col_offset is not None:
        line = lines[right.lineno - 1]
        between = _cut(line, left.end_col_offset, right.col_offset)
        if "(" in between or ")" in between:
            return
        yield right.lineno, f"{_cut(line, 0, left.end_col_offset)} {sign} {_cut(line, right.col_offset)}", kind


def _replaced(node: ast.AST, new: str | None, kind: str, lines: list[str]) -> Iterator[tuple[int, str, str]]:
    if new is not None and node.lineno == node.end_lineno:
        line = lines[node.lineno - 1]
        yield node.lineno, f"{_cut(line, 0, node.col_offset)}{new}{_cut(line, node.end_col_offset)}", kind


def _text(node: ast.AST, lines: list[str]) -> str | None:
    """Return the source of a node on one line; None where it has several."""
    if node.lineno != node.end_lineno:
        return None
    return _cut(lines[node.lineno - 1], node.col_offset, node.end_col_offset)


def _cut(line: str, start: int, end: int | None = None) -> str:
    """Return a part of a line by positions in UTF-8, which is how `ast` counts."""
    return line.encode()[start:end].decode()


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
