"""Compiles a chat template in this process, and renders it in the sandbox with its time and text accounted for.

Only the render process (`render_child`) uses this module, since the sandbox alone bounds neither time nor memory.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date
from traceback import walk_tb
from typing import Any

from jinja2 import Template
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError

from burnish_engine.data.files.problems import RowError, shorten
from burnish_engine.data.sandbox.accounting import Account, Allowance
from burnish_engine.data.sandbox.confine import limit_time
from burnish_engine.data.sandbox.environment import RefusedByTemplateError, TemplateEnvironment
from burnish_engine.data.sandbox.limits import COMPILE_S_PER_CHAR, SPARE_S, depth_limit, float_limit, memory_limit
from burnish_engine.data.sandbox.template_protocol import Messages

_FILE = "<template>"  # jinja's name for a template without one


class TemplateFaultError(Exception):
    """The template cannot be used at all.

    Args:
        what: phrase that names the fault.
        hostile: whether the template tried to leave its sandbox or exceeded a limit.
    """

    def __init__(self, what: str, *, hostile: bool) -> None:
        super().__init__(what)
        self.what = what
        self.hostile = hostile


class CompiledTemplate:
    """A compiled chat template. Not for use by several threads at once.

    Args:
        source: Jinja source.
        special_tokens: special tokens: names such as bos_token and eos_token to their text.
        today: date given to a template that asks for one.

    Attributes:
        memory_bytes: memory limit of this process, bytes, for messages; set by the process.

    Raises:
        TemplateFaultError: The source is not valid Jinja, or cannot be compiled.
    """

    def __init__(self, source: str, special_tokens: dict[str, Any], today: date) -> None:
        self.source = source
        self.special_tokens = special_tokens
        self.memory_bytes = 0
        self._environment = TemplateEnvironment(today)
        self._account = Account()
        self._since, self._allowed_s = 0.0, 0.0
        limit_time(SPARE_S + COMPILE_S_PER_CHAR * len(source))
        try:
            self._template: Template = self._environment.from_string(source)
            self._template.globals = dict(self._template.globals)  # each rendering copies them; jinja's map is slow
        except TemplateSyntaxError as error:
            what = f"is not valid Jinja: line {error.lineno}: {shorten(error.message, 100)}"
            raise TemplateFaultError(what, hostile=False) from None
        except SecurityError as error:
            raise TemplateFaultError(str(error), hostile=True) from None
        except RecursionError:
            raise TemplateFaultError(depth_limit(), hostile=True) from None
        except (TemplateError, SyntaxError, OverflowError, ValueError) as error:
            raise TemplateFaultError(f"cannot be compiled: {type(error).__name__}", hostile=False) from None

    def begin(self) -> None:
        """Begin a request: count time from now, and end this process if the request takes too long."""
        self._since, self._allowed_s = time.process_time(), 0.0
        limit_time(max(self._account.seconds, 0.01))

    def end(self) -> None:
        """End a request: lift the time limit and charge the time.

        Raises:
            TemplateFaultError: The request took too long.
        """
        limit_time(0)
        try:
            self._charge_time()
        except SecurityError as error:
            raise TemplateFaultError(str(error), hostile=True) from None

    def render(self, messages: Messages, *, add_generation_prompt: bool = False, tools: Sequence[Any] = ()) -> str:
        """Render a conversation to text; the arguments are those of `ChatTemplate.render`.

        Raises:
            RowError: The template does not take this conversation.
            TemplateFaultError: The template tries to leave its sandbox or exceeds a limit.
        """
        given = _size(messages, tools)
        allowance = Allowance.of(len(messages), given, len(self.source))
        try:
            self._charge_time()
            self._allowed_s = allowance.seconds
            limit_time(self._account.seconds + allowance.seconds)
            self._environment.start(len(messages), given)
            text = self._environment.collect(
                self._template.generate(
                    messages=[dict(message) for message in messages],
                    tools=list(tools) or None,
                    documents=None,
                    add_generation_prompt=add_generation_prompt,
                    **self.special_tokens,
                )
            )
            self._account.pay_text(len(text), allowance.chars)
        except SecurityError as error:
            raise TemplateFaultError(f"{error}{_line(error)}", hostile=True) from None
        except MemoryError as error:
            raise TemplateFaultError(f"{memory_limit(self.memory_bytes)}{_line(error)}", hostile=True) from None
        except RecursionError as error:
            raise TemplateFaultError(f"{depth_limit()}{_line(error)}", hostile=True) from None
        except OverflowError as error:
            raise TemplateFaultError(f"{float_limit()}{_line(error)}", hostile=True) from None
        except RefusedByTemplateError as error:
            raise RowError(f"refused by the chat template: {shorten(error, 80)}") from None
        except Exception as error:  # noqa: BLE001  # a template can make jinja and Python raise anything
            raise RowError(f"the chat template failed{_line(error)}: {shorten(error, 80)}") from None
        return text

    def _charge_time(self) -> None:
        """Charge the processor time since the last charge."""
        now = time.process_time()
        used, self._since = now - self._since, now
        self._account.pay_time(used, self._allowed_s)
        self._allowed_s = 0.0


def _line(error: BaseException) -> str:
    """Name the template's line that an error came from, as a phrase; empty where that is unknown."""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == _FILE]
    return f" in line {lines[-1]}" if lines else ""


def _size(messages: Messages, tools: Sequence[Any]) -> int:
    """Estimate the length of a conversation, characters."""
    total = len(repr(tools)) if tools else 0
    for message in messages:
        content = message.get("content")
        total += len(content) if isinstance(content, str) else 0
        total += len(repr(message)) if len(message) > 2 else 0
    return total
