"""Provides a Jinja environment for untrusted chat templates: no access to Python, bounded work and bounded output.

The environment is that of transformers (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls), but
stricter: forbidden attributes raise at once instead of reading as empty, loops and macros share a budget of steps, and
texts, lists and numbers that a template builds have a largest size. The process that it runs in bounds the rest: time
within one filter, and memory of many values (see `render_child`).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from typing import Any, NoReturn

from jinja2 import Undefined, nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from burnish_engine.data.sandbox.limits import (
    CHARS_PER_CHAR,
    FREE_CHARS,
    FREE_STEPS,
    LARGEST_NUMBER_BITS,
    LARGEST_SIZE,
    STEPS_PER_TURN,
    exceeded,
    range_limit,
    text_limit,
)

_LONG_WIDTH = re.compile(r"\d{7,}")


class RefusedByTemplateError(TemplateError):
    """The template called `raise_exception`, because it does not take this conversation."""


class LimitError(SecurityError):
    """The template exceeds a limit of `limits`."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment of one template. Not for use by several threads at once.

    Args:
        today: date that `strftime_now` gives.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, today: date) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, LoopControlExtension])
        self._steps = self._most_steps = 0
        self._most_chars = FREE_CHARS
        self.filters = {name: self._guarded(function) for name, function in self.filters.items()}
        self.filters["tojson"] = self._guarded(_tojson)
        now = datetime.combine(today, time())
        self.globals.update(
            raise_exception=_refuse,
            strftime_now=now.strftime,
            namespace=_SafeNamespace,
            dict=_SafeDict(),
            range=_range,
        )

    def start(self, turns: int, given_chars: int) -> None:
        """Begin a rendering: reset the budget.

        Args:
            turns: number of messages of the conversation.
            given_chars: length of the messages and tools, characters.
        """
        self._steps, self._most_steps = 0, FREE_STEPS + STEPS_PER_TURN * turns
        self._most_chars = FREE_CHARS + CHARS_PER_CHAR * given_chars

    def bounded(self, value: Any) -> Any:
        """Return a value if it is not too large.

        Raises:
            LimitError: The value is too large.
        """
        if isinstance(value, (str, list, tuple, dict)) and len(value) > self._most_chars:
            raise LimitError(text_limit(self._most_chars))
        if isinstance(value, int) and value.bit_length() > LARGEST_NUMBER_BITS:
            raise _number_limit()
        return value

    def step(self) -> None:
        """Count one pass of a loop or macro.

        Raises:
            LimitError: The budget is spent.
        """
        self._steps += 1
        if self._steps > self._most_steps:
            raise LimitError(exceeded("step", f"{self._most_steps:,} loop passes and macro calls"))

    def collect(self, pieces: Iterator[str]) -> str:
        """Join the pieces of a rendering, ending early if they grow too large.

        Raises:
            LimitError: The pieces are too large.
        """
        parts, chars = list[str](), 0
        for piece in pieces:
            parts.append(piece)
            chars += len(piece)
            if chars > self._most_chars:
                raise LimitError(text_limit(self._most_chars))
        return "".join(parts)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function for the template, with its arguments and result bounded."""
        if obj == self.step:  # in every loop pass
            return self.step()
        self._check_arguments(args, kwargs)
        return self.bounded(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Apply an intercepted operator, with its operands and result bounded."""
        if operator == "+" and type(left) is str and type(right) is str:
            joined = left + right
            return joined if len(joined) <= self._most_chars else self.bounded(joined)
        if operator == "*":
            for text, count in ((left, right), (right, left)):
                sized = isinstance(text, (str, list, tuple)) and isinstance(count, int)
                if sized and len(text) * count > self._most_chars:
                    raise LimitError(text_limit(self._most_chars))
        integers = isinstance(left, int) and isinstance(right, int)
        if operator == "**" and integers and left.bit_length() * right > LARGEST_NUMBER_BITS:
            raise _number_limit()
        if operator == "%" and isinstance(left, str):
            self._check_arguments(right if isinstance(right, tuple) else (right,), {})
            if _LONG_WIDTH.search(left):
                raise _size_limit("a width")
        return self.bounded(super().call_binop(context, operator, left, right))

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Raise `SecurityError`, so that a forbidden attribute ends the rendering."""
        raise SecurityError(f"it reaches for the attribute {attribute!r} of a {type(obj).__name__}")

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for other in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
            raise TemplateSyntaxError("it reads another template, which a chat template cannot", other.lineno)
        repeated: list[nodes.For | nodes.Macro | nodes.CallBlock] = [
            *tree.find_all(nodes.For),
            *tree.find_all(nodes.Macro),
            *tree.find_all(nodes.CallBlock),
        ]
        for node in repeated:
            node.body.insert(0, nodes.ExprStmt(_call("step", []), lineno=node.lineno))
        bounded: nodes.Template = _BoundConcatenation().visit(tree)
        return bounded.set_environment(self)  # type: ignore[return-value]  # declared as Node

    def _check_arguments(self, args: Any, kwargs: dict[str, Any]) -> None:
        for value in (*args, *kwargs.values()):
            if isinstance(value, int) and abs(value) > LARGEST_SIZE:
                raise _size_limit("an argument")

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)  # keeps jinja's marks on the function
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self._check_arguments(args[1:], kwargs)
            return self.bounded(function(*args, **kwargs))

        return guarded


class _GenerationBlock(Extension):
    """Accepts `{% generation %}`, transformers' mark around assistant text, as a block without effect."""

    tags = {"generation"}  # noqa: RUF012  # jinja's declaration

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _BoundConcatenation(NodeTransformer):
    """Bounds the result of `~`, the one operator that jinja does not let an environment intercept."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802  # jinja's naming
        return _call("bounded", [self.generic_visit(node)])


class _SafeDict:
    """Offers `dict(...)` and `dict.fromkeys(...)` without exposing the type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Any, value: Any = None) -> dict[Any, Any]:
        """Build a dictionary with the same value for all keys, as `dict.fromkeys` does."""
        return dict.fromkeys(keys, value)


class _SafeNamespace(Namespace):
    """Offers `namespace()` without names that begin with an underscore, as transformers does."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            _public(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _public(name)
        super().__setitem__(name, value)


def _public(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"it stores the attribute {name!r}")


def _call(method: str, arguments: list[nodes.Node]) -> nodes.Call:
    """Build the syntax node of a call of one of this environment's methods."""
    return nodes.Call(nodes.EnvironmentAttribute(method), arguments, [], None, None)


def _number_limit() -> LimitError:
    return LimitError(exceeded("number", f"integers of {LARGEST_NUMBER_BITS} bits"))


def _size_limit(what: str) -> LimitError:
    return LimitError(exceeded("number", f"{LARGEST_SIZE:,} for {what} that may be a size"))


def _range(*bounds: Any) -> range:
    """Return a range that is no longer than jinja's sandbox allows."""
    try:
        return safe_range(*bounds)
    except OverflowError:
        raise LimitError(range_limit()) from None


def _refuse(message: object = "") -> NoReturn:
    raise RefusedByTemplateError(str(message))


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Convert a value to JSON without jinja's HTML escapes, with transformers' options."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
