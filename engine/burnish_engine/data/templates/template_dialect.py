"""Adapts conversations to a chat template's dialect of tool calls, call ids and reasoning."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation, Message
from burnish_engine.data.sandbox.template_protocol import Template

_NAME, _VALUE = "probe_function", "probe value"
_LONG_ID, _SHORT_ID = "call_0123456789abcdef", "call00001"
_REASONING_NAMES = ("reasoning_content", "reasoning", "thinking")
_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "Says something.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string", "description": "What."}}},
    },
}


@dataclass(frozen=True)
class CallStyle:
    """The form of tool calls that a template takes.

    Attributes:
        text: whether arguments are JSON text instead of an object.
        none: whether a turn without text has None for content instead of an empty text.
        short_ids: whether ids have nine letters and digits (Mistral).
    """

    text: bool
    none: bool
    short_ids: bool


class TemplateDialect:
    """Converts conversations to the dialect of one template.

    Args:
        template: chat template.
    """

    def __init__(self, template: Template) -> None:
        self._template = template

    @cached_property
    def call_style(self) -> CallStyle | None:
        """The form of tool calls that the template writes, found by trying all; None where it writes no calls."""
        for short in (False, True):
            for none in (False, True):
                for text in (False, True):
                    style = CallStyle(text=text, none=none, short_ids=short)
                    if self._writes(style):
                        return style
        return None

    @cached_property
    def reasoning_name(self) -> str:
        """The template's field for a turn's reasoning; empty where the template takes it within the content."""
        source = self._template.source
        return next(
            (
                name
                for name in _REASONING_NAMES
                if any(form in source for form in (f".{name}", f"'{name}'", f'"{name}"'))
            ),
            "",
        )

    @property
    def takes_tools(self) -> bool:
        """Whether the template uses the list of tools."""
        return "tools" in self._template.source

    def turns(self, conversation: Conversation) -> list[dict[str, Any]]:
        """Convert a conversation's turns to the template's dialect.

        Raises:
            RowError: The conversation has tool calls, and the template writes none.
        """
        ids = _Ids()
        return [self._turn(message, ids) for message in conversation.messages]

    def _turn(self, message: Message, ids: _Ids) -> dict[str, Any]:
        turn = {"role": message.role, "content": message.content, **message.extras}
        thoughts = turn.pop("reasoning_content", None)
        if thoughts and self.reasoning_name:
            turn[self.reasoning_name] = thoughts
        elif thoughts and "</think>" not in message.content:
            turn["content"] = f"<think>\n{thoughts}\n</think>\n\n{message.content}"
        if message.role == "tool":
            turn["tool_call_id"] = ids.answered(turn.get("tool_call_id"), short=self._short)
        if "tool_calls" not in turn:
            return turn
        style = self.call_style
        if style is None:
            raise RowError("the chat template does not write calls of tools")
        turn["tool_calls"] = [
            _written(call, ids.made(call.get("id"), short=style.short_ids), text=style.text)
            for call in turn["tool_calls"]
        ]
        if style.none and not turn["content"]:
            turn["content"] = None
        return turn

    @property
    def _short(self) -> bool:
        return self.call_style is not None and self.call_style.short_ids

    def _writes(self, style: CallStyle) -> bool:
        call = {"type": "function", "function": {"name": _NAME, "arguments": {"word": _VALUE}}}
        made = _written(call, _SHORT_ID if style.short_ids else _LONG_ID, text=style.text)
        turn = {"role": "assistant", "content": None if style.none else "", "tool_calls": [made]}
        try:
            written = self._template.render([{"role": "user", "content": "a"}, turn], tools=[_PROBE_TOOL])
            without = self._template.render([{"role": "user", "content": "a"}], tools=[_PROBE_TOOL])
        except RowError:
            return False
        return _VALUE in written and written.count(_NAME) > without.count(_NAME)


class _Ids:
    """Assigns ids to the tool calls of a conversation: the row's own (shortened where needed), or made-up ones."""

    def __init__(self) -> None:
        self._made = 0
        self._open: list[str] = []

    def made(self, own: str | None, *, short: bool) -> str:
        self._made += 1
        name = _fitting(own, short=short) if own else f"call{self._made:05d}"
        self._open.append(name)
        return name

    def answered(self, own: str | None, *, short: bool) -> str:
        name = _fitting(own, short=short) if own else (self._open[0] if self._open else f"call{self._made:05d}")
        if name in self._open:
            self._open.remove(name)
        return name


def _fitting(own: str, *, short: bool) -> str:
    if not short or (len(own) == 9 and own.isalnum()):
        return own
    return hashlib.sha256(own.encode()).hexdigest()[:9]


def _written(call: dict[str, Any], name: str, *, text: bool) -> dict[str, Any]:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False) if text else function["arguments"]
    return {"id": name, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def probe_chat(style: CallStyle | None) -> Sequence[dict[str, Any]]:
    """Return a question and a tool call that answers it, in a template's style; the question alone without a style."""
    question = {"role": "user", "content": "a"}
    if style is None:
        return [question]
    call = {"type": "function", "function": {"name": _NAME, "arguments": {"word": _VALUE}}}
    made = _written(call, _SHORT_ID if style.short_ids else _LONG_ID, text=style.text)
    return [question, {"role": "assistant", "content": None if style.none else "", "tool_calls": [made]}]
