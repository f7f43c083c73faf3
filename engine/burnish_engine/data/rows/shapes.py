"""Converts rows to conversations or plain texts, by the meaning of their columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.data.files.formats import CONVERSATION_COLUMNS
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

SHAPES = {
    "messages": f"a column {' or '.join(CONVERSATION_COLUMNS)} with lists of {{role, content}}",
    "sharegpt": f"a column {' or '.join(CONVERSATION_COLUMNS)} with lists of {{from, value}}",
    "preference": "columns chosen and rejected, and optionally prompt, instruction or a conversation",
    "kto": "a column label (true or false) beside a conversation, or beside prompt and completion",
    "alpaca": "columns instruction and output or response, and optionally input",
    "prompt_completion": "columns prompt or question, and completion, response or answer",
    "segments": "a column segments with lists of {text, label}",
    "text": "a column text",
}
"""Shape of a dataset to a description of the columns that it needs."""

MEANINGS: dict[str, tuple[tuple[str, ...], ...]] = {
    "messages": (("conversation",),),
    "sharegpt": (("conversation",),),
    "preference": (("chosen", "rejected"), ("conversation", "rejected")),
    "kto": (("conversation", "label"), ("prompt", "completion", "label"), ("instruction", "output", "label")),
    "alpaca": (("instruction", "output"),),
    "prompt_completion": (("prompt", "completion"),),
    "segments": (("segments",),),
    "text": (("text",),),
}
"""Shape to its sets of required meanings; in one of the sets, every meaning must have a column."""
OPTIONAL_MEANINGS = (
    *("conversation", "instruction", "input", "context", "history", "prompt", "system", "tools", "reasoning"),
)
"""Further meanings that a column may have."""
TEXT_SHAPES = ("text", "segments")
"""Shapes whose rows are plain text, which is not rendered with a chat template."""
PREFERENCE_SHAPES = ("preference", "kto")
"""Shapes of which the recipe has to say what is learned."""
SAME_REPLIES = "a rejected reply that is the chosen one"
NO_REJECTED = "rejected without content"
EMPTY_REJECTED = "an empty rejected reply"
PAIR_TOO_LONG = "a pair of which a reply ends behind"
"""Begins the reason for leaving out a pair that is longer than `data.max_length`."""
BAD_REPLY = "labeled as a bad reply, and only good ones are learned"


def preferences_among(shapes: str) -> list[str]:
    """List the shapes of preferences among those of a dataset.

    Args:
        shapes: `DatasetFacts.shape`.
    """
    found = shapes.split(", ")
    return [shape for shape in PREFERENCE_SHAPES if shape in found]


def undecided_preferences(name: str, shape: str) -> DataError:
    """Make the error for preferences whose recipe does not say what to learn of them.

    Args:
        name: name of the file, or another subject.
        shape: shape of the rows, one of `PREFERENCE_SHAPES`.
    """
    objective = "dpo" if shape == "preference" else "kto"
    replies = "chosen replies" if shape == "preference" else "replies labeled good"
    return DataError(
        f"{name} holds preferences (shape {shape}), and the recipe does not say what to learn.",
        f'To learn the {replies} as they stand, set data.shape = "{shape}"; to learn what is preferred, '
        f'preference.objective = "{objective}".',
    )


@dataclass(frozen=True)
class ColumnLayout:
    """The meaning of a file's columns.

    Attributes:
        shape: key of `SHAPES`.
        columns: meaning (of `MEANINGS` or `OPTIONAL_MEANINGS`) to column name.
        from_recipe: whether the recipe names the columns.
    """

    shape: str
    columns: dict[str, str]
    from_recipe: bool = False

    @property
    def is_text(self) -> bool:
        """Whether rows are plain text."""
        return self.shape in TEXT_SHAPES

    def conversation(
        self, values: dict[str, Any], row: int, file: str, system_prompt: str = "", *, bad_too: bool = False
    ) -> Conversation:
        """Convert a row to a conversation; of a preference pair, the one with the chosen reply.

        Args:
            values: column to value.
            row: number of the row, from 1.
            file: path of the row's file.
            system_prompt: text that is put first in conversations without a system message; empty adds none.
            bad_too: whether rows whose reply is labeled bad are wanted too.

        Raises:
            RowError: The row cannot be used.
        """
        desirable = self.shape != "kto" or self._is_labeled_good(values)
        if not (desirable or bad_too):
            raise RowError(BAD_REPLY)
        found = replace(self._conversation(values, row, file, system_prompt), desirable=desirable)
        if needs_media(values, self.columns.values()):
            texts = [found.text or "", *(message.content for message in found.messages)]
            # Where the recipe names the columns, the others do not count, unless the text has a place for them.
            if not self.from_recipe or has_media_tag(texts):
                raise RowError(NEEDS_MEDIA)
        return found

    def rejected(self, values: dict[str, Any], chosen: Conversation, system_prompt: str = "") -> Conversation:
        """Convert a preference pair to the conversation with the rejected reply.

        Args:
            values: column to value.
            chosen: what `conversation` made of the row.
            system_prompt: the same as there.

        Raises:
            RowError: The row cannot be used, the rejected reply is empty, or both replies are the same.
        """
        turns = _rejected_turns(values, self.columns)
        if not (turns[-1].content.strip() or turns[-1].extras.get("tool_calls")):
            raise RowError(EMPTY_REJECTED)
        found = self._whole(values, turns, chosen.row, chosen.file, system_prompt)
        if found.messages == chosen.messages:
            raise RowError(SAME_REPLIES)
        return found

    def _is_labeled_good(self, values: dict[str, Any]) -> bool:
        label = values.get(self.columns["label"])
        if not is_label(label):
            raise RowError("a label that is neither true nor false")
        return is_good(label)

    def _conversation(self, values: dict[str, Any], row: int, file: str, system_prompt: str) -> Conversation:
        if self.shape == "text":
            return Conversation((), _filled_text(values.get(self.columns["text"])), row, file)
        if self.shape == "segments":
            text, spans = _from_segments(values.get(self.columns["segments"]))
            return Conversation((), text, row, file, spans=spans)
        messages = self._with_reasoning(values, _CONVERT[self.shape](values, self.columns))
        return self._whole(values, messages, row, file, system_prompt)

    def _whole(
        self, values: dict[str, Any], messages: list[Message], row: int, file: str, system_prompt: str
    ) -> Conversation:
        """Check the turns of a row, and add what comes before them and the tools."""
        if messages[0].role != "system":
            own = values.get(self.columns.get("system", ""))
            refuse_unreadable(own)
            system = own if isinstance(own, str) and own.strip() else system_prompt
            if system:
                messages.insert(0, Message("system", valid_unicode(system)))
        _check(messages)
        tools = tools_in(values.get(self.columns["tools"])) if "tools" in self.columns else ()
        return Conversation(tuple(messages), None, row, file, tools)

    def _with_reasoning(self, values: dict[str, Any], messages: list[Message]) -> list[Message]:
        thoughts = values.get(self.columns.get("reasoning", ""))
        refuse_unreadable(thoughts)
        last = messages[-1]
        if not isinstance(thoughts, str) or not thoughts.strip() or last.role != "assistant":
            return messages
        return [*messages[:-1], replace(last, extras={"reasoning_content": valid_unicode(thoughts), **last.extras})]


def _from_conversation(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    turns = turns_in(values.get(columns["conversation"]))
    if turns is None:
        raise RowError("no conversation")
    return messages_of(turns)


def _from_columns(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    """Convert a question and its reply, each in a column, to turns that follow the history where there is one."""
    return [*_question_turns(values, columns), *_reply_turns(values, columns)]


def _question_turns(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    """Build the turns before the reply."""
    before = _history(values.get(columns.get("history", "")))
    name = "instruction" if "instruction" in columns else "prompt"
    question = values.get(columns.get(name, ""))
    if (chat := _prompt_turns(question)) is not None:
        return [*before, *chat]
    parts = [_one_text(question, name)]
    further = values.get(columns.get("input", ""))
    context = values.get(columns.get("context", ""))
    parts = [*_optional(context, "context"), *parts, *_optional(further, "input")]
    asked = "\n\n".join(part for part in parts if part.strip())
    if not asked and name == "instruction":
        raise RowError("empty instruction")
    return [*before, Message("user", asked)]


def _history(value: Any) -> list[Message]:
    if value in (None, "", []):
        return []
    refuse_unreadable(value)
    try:
        turns = turns_in(value)
        return messages_of(turns) if turns else []
    except RowError:
        raise RowError("a history that is no list of turns, nor of pairs of a question and its reply") from None


def _prompt_turns(prompt: Any) -> list[Message] | None:
    if isinstance(prompt, dict) and "messages" in prompt:  # OpenAI's {"input": {"messages": [...]}, ...}
        prompt = prompt["messages"]
    chat = chat_in(prompt)
    return None if chat is None else messages_of(chat)


def _reply_turns(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    name = "output" if "output" in columns else "completion"
    reply = values.get(columns[name])
    chat = chat_in(reply)
    return messages_of(chat) if chat is not None else [Message("assistant", _one_text(reply, name))]


def _from_kto(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    return (_from_conversation if "conversation" in columns else _from_columns)(values, columns)


def _from_preference(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    if values.get(columns["rejected"]) is None:
        raise RowError(NO_REJECTED)
    if "chosen" not in columns:  # ms-swift: the conversation ends with the chosen reply
        return _from_conversation(values, columns)
    chosen = values.get(columns["chosen"])
    chat = chat_in(chosen)
    whole = messages_of(chat) if chat is not None else [Message("assistant", _one_text(chosen, "chosen"))]
    if whole[0].role in ("user", "system"):
        return whole
    if "conversation" in columns:
        return [*_without_chosen_reply(_from_conversation(values, columns), whole), *whole]
    if "prompt" not in columns and "instruction" not in columns:
        return split_dialog(whole[0].content)
    return [*_question_turns(values, columns), *whole]


def _rejected_turns(values: dict[str, Any], columns: dict[str, str]) -> list[Message]:
    rejected = values.get(columns["rejected"])
    chat = chat_in(rejected)
    reply = messages_of(chat) if chat is not None else [Message("assistant", _one_text(rejected, "rejected"))]
    if "chosen" in columns and "conversation" not in columns:
        return _from_preference({**values, columns["chosen"]: rejected}, columns)
    if reply[0].role in ("user", "system"):
        return reply
    context = _from_conversation(values, columns)
    while context and context[-1].role == "assistant":  # the chosen reply
        context.pop()
    return [*context, *reply]


def _without_chosen_reply(context: list[Message], reply: Sequence[Message]) -> list[Message]:
    """Return the turns before a chosen reply; some files repeat that reply as the last turn, which is removed.

    Raises:
        RowError: The turns end with another reply.
    """
    if context[-1].role != "assistant":
        return context
    if context[-1].content.strip() != reply[0].content.strip():
        raise RowError("a conversation that ends with another reply than the chosen one")
    return context[:-1]


def split_dialog(text: str) -> list[Message]:
    """Split a text with `Human:` and `Assistant:` before the turns, the form of Anthropic's HH-RLHF, into turns.

    Raises:
        RowError: The text has another form.
    """
    pieces = _speaker_pieces(text)
    if len(pieces) < 2:
        raise RowError("a pair without a prompt: neither a column nor marks in the text say where the reply begins")
    return [Message(role, valid_unicode(piece)) for role, piece in pieces]


def _speaker_pieces(text: str) -> list[tuple[str, str]]:
    found = re.split(r"(?:^|\n\n)(Human|Assistant): ?", text)
    if found[0].strip():
        return []
    names = {"Human": "user", "Assistant": "assistant"}
    return [(names[name], piece.strip()) for name, piece in zip(found[1::2], found[2::2], strict=True)]


def _from_segments(value: Any) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Join a row of segments (Axolotl's input_output) into a text, and return its supervised characters."""
    segments = turns_in(value)
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
    return text, tuple(spans)


_CONVERT: dict[str, Callable[[dict[str, Any], dict[str, str]], list[Message]]] = {
    "messages": _from_conversation,
    "sharegpt": _from_conversation,
    "alpaca": _from_columns,
    "prompt_completion": _from_columns,
    "kto": _from_kto,
    "preference": _from_preference,
}


def _one_text(value: Any, name: str) -> str:
    """Return the text in a column.

    Raises:
        RowError: The text is missing or no text, or there are several, such as ranked replies.
    """
    if isinstance(value, list) and len(value) > 1 and all(isinstance(item, str) for item in value):
        raise RowError(f"several texts where one {name} is needed")
    return text_of(value, name)


def _optional(value: Any, name: str) -> list[str]:
    return [] if value is None else [_one_text(value, name)]


def _filled_text(value: Any) -> str:
    chat = turns_in(value) if isinstance(value, list) else None
    if chat and all(isinstance(turn, dict) for turn in chat):  # ms-swift's pre-training rows: replies without questions
        text = "\n".join(message.content for message in messages_of(chat))
    else:
        text = _one_text(value, "text")
    if not text.strip():
        raise RowError("empty text")
    return text


def _check(messages: Sequence[Message]) -> None:
    replies = [message for message in messages if message.role == "assistant"]
    if not replies:
        raise RowError("no assistant turn")
    if not all(message.content.strip() or message.extras.get("tool_calls") for message in replies):
        raise RowError("empty reply")
