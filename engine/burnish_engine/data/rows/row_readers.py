"""Reads rows as conversations or plain texts: one reader for each shape, from the row's fields to the conversation."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

from burnish_engine.data.files.problems import RowError, refuse_unreadable
from burnish_engine.data.rows.conversation import (
    Conversation,
    Message,
    chat_in,
    messages_of,
    text_of,
    tools_in,
    turns_in,
    valid_unicode,
)
from burnish_engine.data.rows.labels import is_good, is_label
from burnish_engine.data.rows.media import NEEDS_MEDIA, has_media_tag, needs_media
from burnish_engine.data.rows.shapes import BAD_REPLY, EMPTY_REJECTED, NO_REJECTED, SAME_REPLIES, ColumnLayout


class ShapeReader(ABC):
    """Reads the rows of one shape.

    Args:
        layout: meaning of the rows' columns.
        system_prompt: text that is put first in conversations without a system message; empty adds none.
        bad_too: whether rows whose reply is labeled bad are wanted too.
    """

    def __init__(self, layout: ColumnLayout, system_prompt: str = "", *, bad_too: bool = False) -> None:
        self._columns, self._named_by_recipe = layout.columns, layout.from_recipe
        self._system_prompt, self._bad_too = system_prompt, bad_too

    def read(self, values: dict[str, Any], row: int, file: str) -> Conversation:
        """Convert a row to a conversation; of a preference pair, the one with the chosen reply.

        Args:
            values: column to value.
            row: number of the row, from 1.
            file: path of the row's file.

        Raises:
            RowError: The row cannot be used.
        """
        conversation = self._conversation(values, row, file)
        if needs_media(values, self._columns.values()):
            texts = [conversation.text or "", *(message.content for message in conversation.messages)]
            # Where the recipe names the columns, the others do not count, unless the text has a place for them.
            if not self._named_by_recipe or has_media_tag(texts):
                raise RowError(NEEDS_MEDIA)
        return conversation

    @abstractmethod
    def _conversation(self, values: dict[str, Any], row: int, file: str) -> Conversation: ...

    def _cell(self, values: dict[str, Any], meaning: str) -> Any:
        """Return the value of the column with a meaning; None without such a column."""
        column = self._columns.get(meaning)
        return None if column is None else values.get(column)


class _TextReader(ShapeReader):
    """Reads plain texts."""

    def _conversation(self, values: dict[str, Any], row: int, file: str) -> Conversation:
        cell = self._cell(values, "text")
        chat = turns_in(cell) if isinstance(cell, list) else None
        if chat and all(isinstance(turn, dict) for turn in chat):  # ms-swift's pre-training rows: replies alone
            text = "\n".join(message.content for message in messages_of(chat))
        else:
            text = _one_text(cell, "text")
        if not text.strip():
            raise RowError("empty text")
        return Conversation((), text, row, file)


class _SegmentsReader(ShapeReader):
    """Reads texts in segments of which each is supervised or not (Axolotl's input_output)."""

    def _conversation(self, values: dict[str, Any], row: int, file: str) -> Conversation:
        segments = turns_in(self._cell(values, "segments"))
        if not segments:
            raise RowError("no segments")
        text, spans = "", list[tuple[int, int]]()
        for segment in segments:
            if not isinstance(segment, dict) or segment.get("text") is None:
                raise RowError("a segment without text")
            if not is_label(segment.get("label")):
                raise RowError("a segment whose label is neither true nor false")
            begins, text = len(text), text + text_of(segment["text"], "segment")
            if is_good(segment["label"]) and len(text) > begins:
                joins = bool(spans) and spans[-1][1] == begins
                spans[-1:] = [(spans[-1][0], len(text))] if joins else [*spans[-1:], (begins, len(text))]
        if not spans:
            raise RowError("no segment is learned")
        return Conversation((), text, row, file, spans=tuple(spans))


class _ChatReader(ShapeReader):
    """Reads conversations that stand in one column."""

    def _conversation(self, values: dict[str, Any], row: int, file: str) -> Conversation:
        messages = self._messages(values)
        thoughts, last = self._cell(values, "reasoning"), messages[-1]
        refuse_unreadable(thoughts)
        if isinstance(thoughts, str) and thoughts.strip() and last.role == "assistant":
            extras = {"reasoning_content": valid_unicode(thoughts), **last.extras}
            messages[-1] = replace(last, extras=extras)
        return self._completed(values, messages, row, file)

    def _messages(self, values: dict[str, Any]) -> list[Message]:
        """Return the turns of a row as it has them."""
        return _chat(self._cell(values, "conversation"))

    def _completed(self, values: dict[str, Any], messages: list[Message], row: int, file: str) -> Conversation:
        """Check the turns of a row; add the tools, and the system message where the turns have none."""
        if messages[0].role != "system":
            own = self._cell(values, "system")
            refuse_unreadable(own)
            system = own if isinstance(own, str) and own.strip() else self._system_prompt
            if system:
                messages.insert(0, Message("system", valid_unicode(system)))
        replies = [message for message in messages if message.role == "assistant"]
        if not replies:
            raise RowError("no assistant turn")
        if not all(message.content.strip() or message.extras.get("tool_calls") for message in replies):
            raise RowError("empty reply")
        return Conversation(tuple(messages), None, row, file, tools_in(self._cell(values, "tools")))


class _ColumnsReader(_ChatReader):
    """Reads a question and its reply, each in a column of its own, which follow earlier turns where there are some."""

    def _messages(self, values: dict[str, Any]) -> list[Message]:
        name = "output" if "output" in self._columns else "completion"
        return [*self._question(values), *_reply(self._cell(values, name), name)]

    def _question(self, values: dict[str, Any]) -> list[Message]:
        """Build the turns before the reply."""
        before = _history(self._cell(values, "history"))
        name = "instruction" if "instruction" in self._columns else "prompt"
        question = self._cell(values, name)
        wrapped = isinstance(question, dict) and "messages" in question  # OpenAI's {"input": {"messages": [...]}, ...}
        if (chat := chat_in(question["messages"] if wrapped else question)) is not None:
            return [*before, *messages_of(chat)]
        text = _one_text(question, name)
        parts = [self._optional(values, "context"), text, self._optional(values, "input")]
        asked = "\n\n".join(part for part in parts if part.strip())
        if not asked and name == "instruction":
            raise RowError("empty instruction")
        return [*before, Message("user", asked)]

    def _optional(self, values: dict[str, Any], meaning: str) -> str:
        cell = self._cell(values, meaning)
        return "" if cell is None else _one_text(cell, meaning)


class _LabeledReader(_ColumnsReader):
    """Reads conversations, in one column or several, whose last reply a label calls good or bad."""

    def _conversation(self, values: dict[str, Any], row: int, file: str) -> Conversation:
        label = self._cell(values, "label")
        if not is_label(label):
            raise RowError("a label that is neither true nor false")
        desirable = is_good(label)
        if not (desirable or self._bad_too):
            raise RowError(BAD_REPLY)
        return replace(super()._conversation(values, row, file), desirable=desirable)

    def _messages(self, values: dict[str, Any]) -> list[Message]:
        chat = "conversation" in self._columns
        return _chat(self._cell(values, "conversation")) if chat else super()._messages(values)


class PreferenceReader(_ColumnsReader):
    """Reads preference pairs: `read` the conversation with the chosen reply, `rejected` the one with the other."""

    def rejected(self, values: dict[str, Any], chosen: Conversation) -> Conversation:
        """Convert a pair to the conversation with the rejected reply.

        Args:
            values: column to value.
            chosen: what `read` made of the row.

        Raises:
            RowError: The row cannot be used, the rejected reply is empty, or both replies are the same.
        """
        turns = self._with_question(values, _reply(self._cell(values, "rejected"), "rejected"), chosen=False)
        if not (turns[-1].content.strip() or turns[-1].extras.get("tool_calls")):
            raise RowError(EMPTY_REJECTED)
        conversation = self._completed(values, turns, chosen.row, chosen.file)
        if conversation.messages == chosen.messages:
            raise RowError(SAME_REPLIES)
        return conversation

    def _messages(self, values: dict[str, Any]) -> list[Message]:
        if self._cell(values, "rejected") is None:
            raise RowError(NO_REJECTED)
        if "chosen" not in self._columns:  # ms-swift: the conversation ends with the chosen reply
            return _chat(self._cell(values, "conversation"))
        return self._with_question(values, _reply(self._cell(values, "chosen"), "chosen"), chosen=True)

    def _with_question(self, values: dict[str, Any], reply: list[Message], *, chosen: bool) -> list[Message]:
        """Put the turns before a reply in front of it, unless the reply begins with them."""
        if reply[0].role in ("user", "system"):
            return reply
        if "conversation" in self._columns:
            context = _chat(self._cell(values, "conversation"))
            return [*(_without_chosen_reply(context, reply) if chosen else _without_replies(context)), *reply]
        if "prompt" in self._columns or "instruction" in self._columns:
            return [*self._question(values), *reply]
        return _split_dialog(reply[0].content)


_READERS: dict[str, type[ShapeReader]] = {
    "messages": _ChatReader,
    "sharegpt": _ChatReader,
    "preference": PreferenceReader,
    "kto": _LabeledReader,
    "alpaca": _ColumnsReader,
    "prompt_completion": _ColumnsReader,
    "segments": _SegmentsReader,
    "text": _TextReader,
}
"""Shape to its reader."""


def row_reader(layout: ColumnLayout, system_prompt: str = "", *, bad_too: bool = False) -> ShapeReader:
    """Return the reader of a layout's shape; the arguments are those of `ShapeReader`."""
    return _READERS[layout.shape](layout, system_prompt, bad_too=bad_too)


def _chat(cell: Any) -> list[Message]:
    turns = turns_in(cell)
    if turns is None:
        raise RowError("no conversation")
    return messages_of(turns)


def _reply(cell: Any, name: str) -> list[Message]:
    """Return the turns of a reply: a text, or a list of turns."""
    chat = chat_in(cell)
    return messages_of(chat) if chat is not None else [Message("assistant", _one_text(cell, name))]


def _history(cell: Any) -> list[Message]:
    if cell in (None, "", []):
        return []
    refuse_unreadable(cell)
    try:
        turns = turns_in(cell)
        return messages_of(turns) if turns else []
    except RowError:
        raise RowError("a history that is no list of turns, nor of pairs of a question and its reply") from None


def _without_replies(context: list[Message]) -> list[Message]:
    """Return the turns before the chosen reply."""
    while context and context[-1].role == "assistant":
        context.pop()
    return context


def _without_chosen_reply(context: list[Message], reply: list[Message]) -> list[Message]:
    """Return the turns before a chosen reply, which some files repeat as the last turn; another reply is refused."""
    if context[-1].role != "assistant":
        return context
    if context[-1].content.strip() != reply[0].content.strip():
        raise RowError("a conversation that ends with another reply than the chosen one")
    return context[:-1]


def _split_dialog(text: str) -> list[Message]:
    """Split a text with `Human:` and `Assistant:` before the turns, the form of Anthropic's HH-RLHF, into turns."""
    before, *pieces = re.split(r"(?:^|\n\n)(Human|Assistant): ?", text)
    if before.strip() or len(pieces) < 4:
        raise RowError("a pair without a prompt: neither a column nor marks in the text say where the reply begins")
    roles = {"Human": "user", "Assistant": "assistant"}
    return [
        Message(roles[name], valid_unicode(piece.strip()))
        for name, piece in zip(pieces[::2], pieces[1::2], strict=True)
    ]


def _one_text(value: Any, name: str) -> str:
    """Return the text in a column; refuse several, such as ranked replies."""
    if isinstance(value, list) and len(value) > 1 and all(isinstance(item, str) for item in value):
        raise RowError(f"several texts where one {name} is needed")
    return text_of(value, name)
