"""Rows that ask and have no reply, as conversations that end with the question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.files.discover import find_parts
from burnish_engine.data.files.formats import parsed
from burnish_engine.data.files.problems import BrokenRowError, RowError
from burnish_engine.data.files.read import Table
from burnish_engine.data.rows.conversation import chat_in, messages_of, valid_unicode

_CHATS = ("messages", "conversation", "conversations", "prompt", "instruction")
_QUESTIONS = ("prompt", "question", "query", "instruction", "problem", "text")
_AROUND = ("context", "input")  # texts before and behind a question
_SYSTEMS = ("system", "system_prompt")
_ROLES = ("system", "user", "assistant")

Chat = list[dict[str, str]]
"""Turns with role and content; the last one is the user's."""


@dataclass(frozen=True)
class OpenQuestions:
    """Questions of rows.

    Attributes:
        chats: conversation of each row that asks something; it ends with the question.
        left_out: number of rows that could not be read or ask nothing.
    """

    chats: list[Chat]
    left_out: int


def open_questions(data: DataSection, *, most: int = 0) -> OpenQuestions:
    """Read the questions of rows that have no reply, or whose reply does not matter.

    Args:
        data: the recipe's section: files, encoding, columns, system prompt, and what happens to broken rows.
        most: number of questions after which no more are read; 0: all.

    Raises:
        DataError: A file cannot be read, a row is broken and is to stop the reading, or no row asks anything.
    """
    chats, left_out = list[Chat](), 0
    meanings = dict(_pair(pair) for pair in data.columns)
    for row in _rows(data):
        try:
            chat = _question(_renamed(row, meanings))
        except RowError:
            chat = []
        if not chat:
            left_out += 1
            continue
        is_added = data.system_prompt and chat[0]["role"] != "system"
        chats.append([_turn("system", data.system_prompt), *chat] if is_added else chat)
        if len(chats) == most:
            break
    if not chats:
        raise DataError(
            f"No row of {', '.join(data.files)} asks anything.",
            'Give rows with a question in the column "prompt" or "question", or with "messages" that end with one, or '
            'name the column, such as data.columns = ["prompt=Frage"].',
        )
    return OpenQuestions(chats, left_out)


def _rows(data: DataSection) -> Iterator[dict[str, Any]]:
    """Yield the rows of all files; an empty one in place of a broken one that is left out."""
    for part in find_parts(data.files).parts:
        for number, row in Table(part, data.encoding).raw():
            try:
                if isinstance(row, BrokenRowError):
                    raise row
                yield parsed(row, part.name, number)
            except BrokenRowError:
                if data.broken_rows == "stop":
                    raise
                yield {}


def _pair(pair: str) -> tuple[str, str]:
    meaning, _, name = (part.strip() for part in pair.partition("="))
    return meaning, name


def _renamed(row: dict[str, Any], meanings: dict[str, str]) -> dict[str, Any]:
    """Return a row with the columns that the recipe names under their usual names, before all others."""
    named = {meaning: row[name] for meaning, name in meanings.items() if name in row}
    return {**named, **{name: value for name, value in row.items() if name.strip().lower() not in named}}


def _question(row: dict[str, Any]) -> Chat:
    values = {name.strip().lower(): row[name] for name in reversed(list(row))}
    for column in _CHATS:
        chat = _turns(values.get(column))
        while chat and chat[-1]["role"] == "assistant":
            chat.pop()
        if chat and chat[-1]["role"] == "user":
            return chat
    texts = {name: valid_unicode(value) for name, value in values.items() if isinstance(value, str) and value.strip()}
    before = [_turn("system", texts[name]) for name in _SYSTEMS if name in texts][:1]
    question = next((name for name in _QUESTIONS if name in texts), "")
    asked = [texts[name] for name in (_AROUND[0], question, _AROUND[1]) if name in texts]
    return [*before, _turn("user", "\n\n".join(asked))] if question or "input" in texts else []


def _turns(value: Any) -> Chat:
    """Return the turns of a chat in any dialect; none where it has others than those of a person and a model."""
    turns = chat_in(value)
    messages = messages_of(turns) if turns else []
    known = all(message.role in _ROLES for message in messages)
    return [_turn(message.role, message.content) for message in messages] if known else []


def _turn(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}
