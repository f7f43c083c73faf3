"""Finds out in which form a chat template takes texts, thoughts and calls of tools, by rendering small conversations.

Most templates take a turn's content as a text. Those of models with images (SmolVLM, Idefics 3, LLaVA-NeXT) take a list
of parts, those of Ministral 3 and Magistral take thoughts as such a part. `FormedTemplate` hides the difference.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.sandbox.template_protocol import Messages, Template

THOUGHTS = "reasoning_content"
"""Field of a turn that holds its thoughts, before `FormedTemplate` puts them where the template takes them."""
NAME, _VALUE, _TEXT, _THOUGHT = "probe_function", "probe value", "xprobetextx", "xprobethoughtx"
_LONG_ID, _SHORT_ID = "call_0123456789abcdef", "call00001"
_TOOL = {
    "type": "function",
    "function": {
        "name": NAME,
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


@dataclass(frozen=True)
class ThoughtForm:
    """The place where a template takes the thoughts before a reply.

    Attributes:
        field: field of the turn; empty where they are a part of the content.
        part: kind of that part; empty where they are a field.
        key: key of the part that holds them.
        listed: whether the key holds a list of text parts instead of a text.
    """

    field: str = ""
    part: str = ""
    key: str = ""
    listed: bool = False

    def put(self, turn: dict[str, Any], thoughts: str) -> None:
        """Put thoughts into a turn whose content is a text or None."""
        if self.field:
            turn[self.field] = thoughts
            return
        value = [_text_part(thoughts)] if self.listed else thoughts
        said = [_text_part(turn["content"])] if turn["content"] else []
        turn["content"] = [{"type": self.part, self.key: value}, *said]


_THOUGHT_FORMS = (
    ThoughtForm(field="reasoning_content"),
    ThoughtForm(field="reasoning"),
    ThoughtForm(field="thinking"),
    ThoughtForm(part="thinking", key="thinking"),
    ThoughtForm(part="thinking", key="thinking", listed=True),
    ThoughtForm(part="reasoning", key="reasoning"),
    ThoughtForm(part="reasoning", key="text"),
)


class FormedTemplate(Template):
    """A chat template that takes every content as a text, and thoughts in the field `THOUGHTS`.

    Args:
        template: chat template, which may want other forms.
    """

    def __init__(self, template: Template) -> None:
        self._template = template
        self._in_parts = dict[str, bool]()
        self._thought_forms = dict[bool, ThoughtForm | None]()

    @property
    def source(self) -> str:
        """Jinja source."""
        return self._template.source

    @property
    def special_tokens(self) -> dict[str, Any]:
        """Special tokens: names such as bos_token and eos_token to their text."""
        return self._template.special_tokens

    def render(self, messages: Messages, *, add_generation_prompt: bool = False, tools: Sequence[Any] = ()) -> str:
        """Render a conversation to text; arguments and errors are those of `ChatTemplate.render`."""
        turns = messages
        if any(THOUGHTS in message or self._takes_parts(message["role"]) for message in messages):
            turns = [self._formed(dict(message)) for message in messages]
        return self._template.render(turns, add_generation_prompt=add_generation_prompt, tools=tools)

    @cached_property
    def call_style(self) -> CallStyle | None:
        """The form of tool calls that the template writes, found by trying all; None where it writes no calls."""
        styles = (
            CallStyle(text=text, none=none, short_ids=short)
            for short in (False, True)
            for none in (False, True)
            for text in (False, True)
        )
        return next((style for style in styles if self._writes_calls(style)), None)

    def thought_form(self, *, calls: bool = False) -> ThoughtForm | None:
        """Return the place of thoughts apart from the text; None where the template takes them within the text alone.

        Args:
            calls: whether the turn calls tools; some templates write the thoughts of such turns alone.
        """
        if calls not in self._thought_forms:
            forms = (form for form in _THOUGHT_FORMS if form.field in self.source and form.part in self.source)
            found = next((form for form in forms if self._writes_thoughts(form, calls=calls)), None)
            self._thought_forms[calls] = found
        return self._thought_forms[calls]

    @cached_property
    def takes_tools(self) -> bool:
        """Whether the template writes the list of tools."""
        question = self._turn("user", _TEXT)
        starts = ([question], [self._turn("system", "a"), question])
        return any(NAME in (self._rendered(start, tools=[_TOOL]) or "") for start in starts)

    def probe_chat(self) -> list[dict[str, Any]]:
        """Return a question and a tool call that answers it; the question alone where the template writes no calls."""
        question = {"role": "user", "content": "a"}
        return [question, _call_turn(self.call_style)] if self.call_style else [question]

    def _formed(self, turn: dict[str, Any]) -> dict[str, Any]:
        thoughts, content = turn.pop(THOUGHTS, None), turn.get("content")
        form = self.thought_form(calls=bool(turn.get("tool_calls"))) if thoughts else None
        if form:
            form.put(turn, thoughts)
        elif thoughts:
            turn["content"] = content = inline(thoughts, content or "")
        if isinstance(turn.get("content"), str) and self._takes_parts(turn["role"]):
            turn["content"] = [_text_part(turn["content"])]
        return turn

    def _takes_parts(self, role: str) -> bool:
        """Whether the template writes a content of this role as a list of parts alone."""
        if role not in self._in_parts:
            self._in_parts[role] = False
            self._in_parts[role] = self._writes_parts_alone(role)
        return self._in_parts[role]

    def _writes_parts_alone(self, role: str) -> bool:
        turn = {"role": role, "content": _TEXT}
        question = [] if role == "user" else [self._turn("user", "a")]
        before: Messages = question
        after: Messages = []
        if role == "system":
            before, after = [], question
        elif role == "tool" and self.call_style:
            before = [*question, _call_turn(self.call_style)]
            turn["tool_call_id"] = _SHORT_ID if self.call_style.short_ids else _LONG_ID
        if _TEXT in (self._rendered([*before, turn, *after]) or ""):
            return False
        parts = {**turn, "content": [_text_part(_TEXT)]}
        return _shows(self._rendered([*before, parts, *after]), _TEXT)

    def _turn(self, role: str, text: str) -> dict[str, Any]:
        return {"role": role, "content": [_text_part(text)] if self._takes_parts(role) else text}

    def _writes_thoughts(self, form: ThoughtForm, *, calls: bool) -> bool:
        said: dict[str, Any] = {"role": "assistant", "content": _TEXT}
        if calls:
            if self.call_style is None:
                return False
            said = _call_turn(self.call_style)
        form.put(said, _THOUGHT)
        if form.field and said["content"] and self._takes_parts("assistant"):
            said["content"] = [_text_part(said["content"])]
        return _shows(self._rendered([self._turn("user", "a"), said]), _THOUGHT, _VALUE if calls else _TEXT)

    def _writes_calls(self, style: CallStyle) -> bool:
        question = self._turn("user", "a")
        written = self._rendered([question, _call_turn(style)], tools=[_TOOL])
        without = self._rendered([question], tools=[_TOOL])
        if written is None or without is None:
            return False
        return _VALUE in written and written.count(NAME) > without.count(NAME)

    def _rendered(self, turns: Messages, tools: Sequence[Any] = ()) -> str | None:
        try:
            return self._template.render(turns, tools=tools)
        except RowError:
            return None


def inline(thoughts: str, text: str) -> str:
    """Return thoughts and text as the one content of a turn, as reasoning models write it."""
    return f"<think>\n{thoughts}\n</think>\n\n{text}"


def written_call(call: dict[str, Any], name: str, *, text: bool) -> dict[str, Any]:
    """Return a tool call as templates take it.

    Args:
        call: call in OpenAI's form, its arguments an object.
        name: id of the call.
        text: whether the arguments are to be JSON text.
    """
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False) if text else function["arguments"]
    return {"id": name, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _call_turn(style: CallStyle) -> dict[str, Any]:
    call = {"function": {"name": NAME, "arguments": {"word": _VALUE}}}
    made = written_call(call, _SHORT_ID if style.short_ids else _LONG_ID, text=style.text)
    return {"role": "assistant", "content": None if style.none else "", "tool_calls": [made]}


def _shows(written: str | None, *texts: str) -> bool:
    """Whether a rendering has all texts, and does not have them as a list written out with its keys."""
    shown = written or ""
    return all(text in shown for text in texts) and "'type'" not in shown and '"type"' not in shown


def _text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
