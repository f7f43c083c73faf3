"""Recognize what the columns of a file mean, and turn rows into conversations or plain texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.data.formats import CONVERSATION_COLUMNS
from burnish_engine.data.problems import RowError, shorten

SHAPES = {
    "messages": f"a column {' or '.join(CONVERSATION_COLUMNS)} with lists of {{role, content}}",
    "sharegpt": f"a column {' or '.join(CONVERSATION_COLUMNS)} with lists of {{from, value}}",
    "alpaca": "columns instruction and output or response, and optionally input",
    "prompt_completion": "columns prompt or question, and completion, response or answer",
    "text": "a column text",
}
"""Shape to the columns it needs, in words. Recognized in this order."""

_PROMPTS = ("prompt", "question", "query", "input")
_COMPLETIONS = ("completion", "response", "answer", "output")
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}


@dataclass(frozen=True)
class Message:
    """One turn.

    Attributes:
        role: system, user, assistant or tool.
        content: Its text.
    """

    role: str
    content: str


@dataclass(frozen=True)
class Conversation:
    """One usable row.

    Attributes:
        messages: The turns; empty for plain text.
        text: The plain text of a row of the text shape, else None.
        row: Number in its file, from 1.
        file: Path of the file.
    """

    messages: tuple[Message, ...]
    text: str | None
    row: int
    file: str

    def as_dicts(self) -> list[dict[str, str]]:
        """The turns as chat templates take them."""
        return [{"role": message.role, "content": message.content} for message in self.messages]


@dataclass(frozen=True)
class Layout:
    """What the columns of a file mean.

    Attributes:
        shape: A key of `SHAPES`.
        columns: Meaning (conversation, instruction, input, output, prompt, completion, text, system) to column name.
    """

    shape: str
    columns: dict[str, str]

    def conversation(self, values: dict[str, Any], row: int, file: str, system_prompt: str = "") -> Conversation:
        """The conversation in a row.

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
                messages.insert(0, Message("system", _sound(system)))
        _check(messages)
        return Conversation(tuple(messages), None, row, file)


def recognize(samples: Sequence[dict[str, Any]], source: str, forced: str = "auto") -> Layout:
    """What the columns of a file mean.

    Args:
        samples: Some of its rows, as column to value.
        source: What to call the file in messages.
        forced: The only shape to consider, or "auto".

    Raises:
        DataError: The columns fit no shape, or not the forced one.
    """
    columns = columns_of(samples)
    by_name = {name.strip().lower(): name for name in reversed(columns)}
    for shape in SHAPES if forced == "auto" else [forced]:
        found = _MATCH[shape](by_name, samples)
        if found:
            if "system" in by_name and shape != "text":
                found["system"] = by_name["system"]
            return Layout(shape, found)
    shown = ", ".join(shorten(name, 40) for name in columns[:20]) or "none"
    if forced != "auto":
        raise DataError(
            f"The columns of {source} ({shown}) do not fit the shape {forced}, which needs {SHAPES[forced]}.",
            'Rename the columns, or set data.shape = "auto".',
        )
    preference = " It looks like preference pairs (chosen, rejected), which supervised training does not use."
    known = "; ".join(f"{shape}: {needs}" for shape, needs in SHAPES.items())
    raise DataError(
        f"The columns of {source} ({shown}) fit no known shape.{preference if 'chosen' in by_name else ''}",
        f"Rename the columns to fit one of these. {known}.",
    )


def columns_of(samples: Sequence[dict[str, Any]]) -> list[str]:
    """Every column of the rows, in order of appearance."""
    return list(dict.fromkeys(name for values in samples for name in values))


def _first(by_name: dict[str, str], names: Sequence[str]) -> str | None:
    return next((by_name[name] for name in names if name in by_name), None)


def _match_conversation(role_key: str) -> Callable[[dict[str, str], Sequence[dict[str, Any]]], dict[str, str]]:
    def match(by_name: dict[str, str], samples: Sequence[dict[str, Any]]) -> dict[str, str]:
        for name in CONVERSATION_COLUMNS:
            column = by_name.get(name, "")
            chats = (_turns(values.get(column)) for values in samples if column)
            first = next((chat[0] for chat in chats if chat and isinstance(chat[0], dict)), {})
            if role_key in first:
                return {"conversation": column}
        return {}

    return match


def _match_alpaca(by_name: dict[str, str], _: Sequence[dict[str, Any]]) -> dict[str, str]:
    output = _first(by_name, ("output", "response"))
    if "instruction" not in by_name or not output:
        return {}
    found = {"instruction": by_name["instruction"], "output": output}
    return found | ({"input": by_name["input"]} if "input" in by_name else {})


def _match_prompt(by_name: dict[str, str], _: Sequence[dict[str, Any]]) -> dict[str, str]:
    prompt, completion = _first(by_name, _PROMPTS), _first(by_name, _COMPLETIONS)
    return {"prompt": prompt, "completion": completion} if prompt and completion else {}


def _match_text(by_name: dict[str, str], _: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {"text": by_name["text"]} if "text" in by_name else {}


_MATCH: dict[str, Callable[[dict[str, str], Sequence[dict[str, Any]]], dict[str, str]]] = {
    "messages": _match_conversation("role"),
    "sharegpt": _match_conversation("from"),
    "alpaca": _match_alpaca,
    "prompt_completion": _match_prompt,
    "text": _match_text,
}


def _from_conversation(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    turns = _turns(values.get(columns["conversation"]))
    if turns is None:
        raise RowError("no conversation")
    if not turns:
        raise RowError("empty conversation")
    return [_message(turn) for turn in turns]


def _from_alpaca(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    instruction = _text(values.get(columns["instruction"]), "instruction")
    extra = values.get(columns.get("input", ""))
    asked = [part for part in (instruction, _text(extra, "input") if extra is not None else "") if part.strip()]
    if not asked:
        raise RowError("empty instruction")
    output = _text(values.get(columns["output"]), "output")
    return [Message("user", "\n\n".join(asked)), Message("assistant", output)]


def _from_prompt(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    prompt, completion = values.get(columns["prompt"]), values.get(columns["completion"])
    if isinstance(prompt, list) and isinstance(completion, list):  # chats cut in two, as TRL writes them
        return [_message(turn) for turn in (*prompt, *completion)] or _no_turns()
    return [Message("user", _text(prompt, "prompt")), Message("assistant", _text(completion, "completion"))]


_CONVERT: dict[str, Callable[[dict[str, Any], dict[str, str]], list[Message]]] = {
    "messages": _from_conversation,
    "sharegpt": _from_conversation,
    "alpaca": _from_alpaca,
    "prompt_completion": _from_prompt,
}


def _no_turns() -> list[Message]:
    raise RowError("empty conversation")


def _turns(value: Any) -> list[Any] | None:
    """The turns in a cell; CSV and some Parquet files hold them as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) else None


def _message(turn: Any) -> Message:
    if not isinstance(turn, dict):
        raise RowError("a message is not an object")
    role = turn.get("role", turn.get("from"))
    if not isinstance(role, str):
        raise RowError("a message has no role")
    known = _ROLES.get(role.strip().lower())
    if known is None:
        raise RowError(f'unknown role "{shorten(role, 30)}"')
    return Message(known, _text(turn.get("content", turn.get("value")), "message"))


def _text(value: Any, name: str) -> str:
    """A text, or OpenAI's list of text parts joined.

    Raises:
        RowError: It is missing, not text, or not valid Unicode.
    """
    if value is None:
        raise RowError(f"{name} without content")
    if isinstance(value, list):
        value = "".join(_part(part) for part in value)
    if not isinstance(value, str):
        raise RowError(f"{name} content is not text")
    return _sound(value)


def _part(part: Any) -> str:
    if isinstance(part, dict) and part.get("type", "text") == "text":
        part = part.get("text")
    if not isinstance(part, str):
        raise RowError("message content is not text")
    return part


def _filled_text(value: Any, name: str) -> str:
    text = _text(value, name)
    if not text.strip():
        raise RowError("empty text")
    return text


def _sound(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # JSON may spell half a surrogate pair, "\ud83d", which is no character
        raise RowError("broken Unicode (half a surrogate pair)") from None
    return text


def _check(messages: Sequence[Message]) -> None:
    replies = [message for message in messages if message.role == "assistant"]
    if not replies:
        raise RowError("no assistant turn")
    if not all(message.content.strip() for message in replies):
        raise RowError("empty reply")
