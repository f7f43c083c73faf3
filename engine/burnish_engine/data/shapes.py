"""Turn rows into conversations or plain texts, once it is known what their columns mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from burnish_engine.data.conversation import (
    Conversation,
    Message,
    messages_of,
    sound,
    text_of,
    tools_in,
    turns_in,
)
from burnish_engine.data.formats import CONVERSATION_COLUMNS
from burnish_engine.data.problems import RowError

SHAPES = {
    "messages": f"a column {' or '.join(CONVERSATION_COLUMNS)} with lists of {{role, content}}",
    "sharegpt": f"a column {' or '.join(CONVERSATION_COLUMNS)} with lists of {{from, value}}",
    "preference": "columns chosen and rejected, and optionally prompt",
    "kto": "columns prompt, completion and label (true or false)",
    "alpaca": "columns instruction and output or response, and optionally input",
    "prompt_completion": "columns prompt or question, and completion, response or answer",
    "text": "a column text",
}
"""Shape to the columns it needs, in words."""

MEANINGS = {
    "messages": ("conversation",),
    "sharegpt": ("conversation",),
    "preference": ("chosen", "rejected"),
    "kto": ("prompt", "completion", "label"),
    "alpaca": ("instruction", "output"),
    "prompt_completion": ("prompt", "completion"),
    "text": ("text",),
}
"""Shape to the meanings that some column of it must have."""
OPTIONAL_MEANINGS = ("input", "history", "prompt", "system", "tools", "reasoning")
"""Meanings that a column may have besides."""


@dataclass(frozen=True)
class Layout:
    """What the columns of a file mean.

    Attributes:
        shape: A key of `SHAPES`.
        columns: Meaning (of `MEANINGS` or `OPTIONAL_MEANINGS`) to column name.
    """

    shape: str
    columns: dict[str, str]

    def conversation(self, values: dict[str, Any], row: int, file: str, system_prompt: str = "") -> Conversation:
        """The conversation in a row. Of preference pairs it is the chosen one.

        Args:
            values: Column to value.
            row: Number of the row, from 1.
            file: Path of its file.
            system_prompt: Put first in conversations that have no system message. Empty: none is added.

        Raises:
            RowError: The row cannot be used.
        """
        if self.shape == "text":
            return Conversation((), _filled_text(values.get(self.columns["text"]), "text"), row, file)
        messages = _CONVERT[self.shape](values, self.columns)
        if messages[0].role != "system":
            own = values.get(self.columns.get("system", ""))
            system = own if isinstance(own, str) and own.strip() else system_prompt
            if system:
                messages.insert(0, Message("system", sound(system)))
        messages = self._with_reasoning(values, messages)
        _check(messages)
        tools = tools_in(values.get(self.columns["tools"])) if "tools" in self.columns else ()
        return Conversation(tuple(messages), None, row, file, tools)

    def _with_reasoning(self, values: dict[str, Any], messages: list[Message]) -> list[Message]:
        thoughts = values.get(self.columns.get("reasoning", ""))
        last = messages[-1]
        if not isinstance(thoughts, str) or not thoughts.strip() or last.role != "assistant":
            return messages
        extras = {"reasoning_content": sound(thoughts), **last.extras}
        return [*messages[:-1], Message(last.role, last.content, extras, last.learned)]


def _from_conversation(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    turns = turns_in(values.get(columns["conversation"]))
    if turns is None:
        raise RowError("no conversation")
    return messages_of(turns)


def _from_alpaca(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    instruction = text_of(values.get(columns["instruction"]), "instruction")
    extra = values.get(columns.get("input", ""))
    asked = [part for part in (instruction, text_of(extra, "input") if extra is not None else "") if part.strip()]
    if not asked:
        raise RowError("empty instruction")
    output = text_of(values.get(columns["output"]), "output")
    before = messages_of(turns) if (turns := turns_in(values.get(columns.get("history", "")))) else []
    return [*before, Message("user", "\n\n".join(asked)), Message("assistant", output)]


def _from_prompt(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    prompt, completion = values.get(columns["prompt"]), values.get(columns["completion"])
    if isinstance(prompt, list) and isinstance(completion, list):  # chats cut in two, as TRL writes them
        return messages_of([*prompt, *completion])
    return [Message("user", text_of(prompt, "prompt")), Message("assistant", text_of(completion, "completion"))]


def _from_kto(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    label = values.get(columns["label"])
    if not is_label(label):
        raise RowError("a label that is neither true nor false")
    if label in (False, 0) or str(label).lower() in ("false", "0"):
        raise RowError("labeled as a bad reply")
    return _from_prompt(values, columns)


def _from_preference(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    chosen, prompt = values.get(columns["chosen"]), values.get(columns.get("prompt", ""))
    if values.get(columns["rejected"]) is None:
        raise RowError("rejected without content")
    if isinstance(prompt, dict):  # OpenAI's {"input": {"messages": [...]}, "preferred_output": [...]}
        prompt = prompt.get("messages")
    turns = turns_in(chosen)
    if turns is None and isinstance(chosen, dict):
        turns = [chosen]
    if turns is not None:
        whole = messages_of(turns)
        if whole and whole[0].role in ("user", "system"):
            return whole
        before = turns_in(prompt)
        if before is None:
            return [Message("user", text_of(prompt, "prompt")), *whole]
        return [*messages_of(before), *whole]
    before = turns_in(prompt)
    reply = Message("assistant", text_of(chosen, "chosen"))
    if before is not None:
        return [*messages_of(before), reply]
    if prompt is None and isinstance(chosen, str):
        return split_dialog(chosen)
    return [Message("user", text_of(prompt, "prompt")), reply]


def split_dialog(text: str) -> list[Message]:
    """A whole dialog in one text with `Human:` and `Assistant:` before the turns, as Anthropic's HH-RLHF has it.

    Raises:
        RowError: It has another form.
    """
    pieces = _marked(text)
    if len(pieces) < 2:
        raise RowError("a dialog without a prompt")
    return [Message(role, sound(piece)) for role, piece in pieces]


def _marked(text: str) -> list[tuple[str, str]]:
    found = re.split(r"(?:^|\n\n)(Human|Assistant): ?", text)
    if found[0].strip():
        return []
    names = {"Human": "user", "Assistant": "assistant"}
    return [(names[name], piece.strip()) for name, piece in zip(found[1::2], found[2::2], strict=True)]


_CONVERT: dict[str, Callable[[dict[str, Any], dict[str, str]], list[Message]]] = {
    "messages": _from_conversation,
    "sharegpt": _from_conversation,
    "alpaca": _from_alpaca,
    "prompt_completion": _from_prompt,
    "kto": _from_kto,
    "preference": _from_preference,
}


def is_label(value: Any) -> bool:
    """Whether a value says true or false."""
    return value in (0, 1) or (isinstance(value, str) and value.strip().lower() in ("true", "false", "0", "1"))


def _filled_text(value: Any, name: str) -> str:
    text = text_of(value, name)
    if not text.strip():
        raise RowError("empty text")
    return text


def _check(messages: Sequence[Message]) -> None:
    replies = [message for message in messages if message.role == "assistant"]
    if not replies:
        raise RowError("no assistant turn")
    if not all(message.content.strip() or message.extras.get("tool_calls") for message in replies):
        raise RowError("empty reply")
