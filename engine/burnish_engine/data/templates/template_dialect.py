"""Adapts conversations to a chat template's dialect of tool calls, call ids and thoughts."""

from __future__ import annotations

import hashlib
from typing import Any

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation, Message
from burnish_engine.data.templates.template_forms import THOUGHTS, FormedTemplate, inline, written_call


class TemplateDialect:
    """Converts conversations to the dialect of one template.

    Args:
        template: chat template.
    """

    def __init__(self, template: FormedTemplate) -> None:
        self._template = template

    def turns(self, conversation: Conversation) -> list[dict[str, Any]]:
        """Convert the turns of a conversation, with thoughts apart where the template takes them so.

        Raises:
            RowError: The conversation has tool calls, and the template writes none.
        """
        ids = _Ids()
        return [self._turn(message, ids) for message in conversation.messages]

    def _turn(self, message: Message, ids: _Ids) -> dict[str, Any]:
        turn = {"role": message.role, "content": message.content, **message.extras}
        thoughts = turn.pop(THOUGHTS, None)
        if message.role == "assistant":
            self._place_thoughts(turn, thoughts)
        if message.role == "tool":
            turn["tool_call_id"] = ids.answered(turn.get("tool_call_id"), short=self._short)
        if "tool_calls" not in turn:
            return turn
        style = self._template.call_style
        if style is None:
            raise RowError("the chat template does not write calls of tools")
        turn["tool_calls"] = [
            written_call(call, ids.made(call.get("id"), short=style.short_ids), text=style.text)
            for call in turn["tool_calls"]
        ]
        if style.none and not turn["content"]:
            turn["content"] = None
        return turn

    def _place_thoughts(self, turn: dict[str, Any], thoughts: str | None) -> None:
        """Put a reply's thoughts, wherever the row has them, where the template takes them."""
        said = turn["content"]
        if self._template.thought_form(calls="tool_calls" in turn):
            if not thoughts:
                thoughts, turn["content"] = split_thoughts(said)
            if thoughts:
                turn[THOUGHTS] = thoughts
        elif thoughts and "</think>" not in said:
            turn["content"] = inline(thoughts, said)

    @property
    def _short(self) -> bool:
        return self._template.call_style is not None and self._template.call_style.short_ids


def split_thoughts(text: str) -> tuple[str, str]:
    """Split the text of a reply into the thoughts that it begins with, if it does, and what follows."""
    opening, _, said = text.partition("</think>")
    before, opened, thoughts = opening.partition("<think>")
    if not opened or len(opening) == len(text) or before.strip() or not thoughts.strip():
        return "", text
    return thoughts.strip("\n"), said.lstrip("\n")


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
