"""Rows that ask and have no reply, as conversations that end with the question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.data.files.discover import find_parts
from burnish_engine.data.files.formats import parsed
from burnish_engine.data.files.problems import BrokenRowError
from burnish_engine.data.files.read import Table

_CHATS = ("messages", "conversation", "prompt")
_QUESTIONS = ("prompt", "question", "query", "instruction", "problem", "input", "text")
_SYSTEMS = ("system", "system_prompt")
_ROLES = ("system", "user", "assistant")

Chat = list[dict[str, str]]
"""Turns with role and content; the last one is the user's."""


def open_questions(files: Sequence[str], *, encoding: str = "utf-8", most: int = 0) -> list[Chat]:
    """Read the questions of rows that have no reply, or whose reply does not matter.

    Args:
        files: data files or folders.
        encoding: encoding of their text.
        most: number of questions after which no more are read; 0: all.

    Raises:
        DataError: A file cannot be read, or no row asks anything.
    """
    found = list[Chat]()
    for part in find_parts(files).parts:
        for number, row in Table(part, encoding).raw():
            if isinstance(row, BrokenRowError):
                raise row
            chat = _question(parsed(row, part.name, number) if isinstance(row, str) else row)
            if chat:
                found.append(chat)
            if most and len(found) >= most:
                return found
    if not found:
        raise DataError(
            f"No row of {', '.join(files)} asks anything.",
            'Give rows with a question in the column "prompt" or "question", or with "messages" that end with one.',
        )
    return found


def _question(row: dict[str, Any]) -> Chat:
    names = {name.strip().lower(): name for name in reversed(list(row))}
    for column in _CHATS:
        chat = list(_turns(row.get(names.get(column, ""))))
        while chat and chat[-1]["role"] == "assistant":
            chat.pop()
        if chat and chat[-1]["role"] == "user":
            return chat
    system = next((row[names[name]] for name in _SYSTEMS if name in names and isinstance(row[names[name]], str)), "")
    before = [{"role": "system", "content": system}] if system.strip() else []
    for column in _QUESTIONS:
        text = row.get(names.get(column, ""))
        if isinstance(text, str) and text.strip():
            return [*before, {"role": "user", "content": text}]
    return []


def _turns(value: Any) -> Iterator[dict[str, str]]:
    for turn in value if isinstance(value, list) else []:
        if not isinstance(turn, dict) or turn.get("role") not in _ROLES or not isinstance(turn.get("content"), str):
            return
        yield {"role": turn["role"], "content": turn["content"]}
