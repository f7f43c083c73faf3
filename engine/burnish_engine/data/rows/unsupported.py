"""Refuses files whose layout other tools train on and Burnish does not, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.data.rows.column_readings import SURE, ByName, CandidateReading
from burnish_engine.data.rows.conversation import is_reply, is_turn, may_reply, turns_in

_QUESTIONS = ("question", "prompt", "query", "instruction", "problem")
_BY_HAND = "Where some columns hold what is to be learned all the same, name them in data.columns."


@dataclass(frozen=True)
class _SampledFile:
    """A file's columns and first rows, with the tests that tell its layout.

    Attributes:
        names: column names in lower case to their names in the file.
        samples: first rows, as column to value.
        found: ways to read the columns.
    """

    names: ByName
    samples: Sequence[dict[str, Any]]
    found: Sequence[CandidateReading]

    def has(self, *names: str) -> bool:
        """Whether the file has all of these columns."""
        return all(name in self.names for name in names)

    def values(self, name: str) -> list[Any]:
        """Return a column's values without empty cells."""
        column = self.names.get(name, "")
        return [value for row in self.samples if (value := row.get(column)) not in (None, "", [])]

    def holds_lists(self, name: str) -> bool:
        """Whether a column holds nothing but lists and objects."""
        values = self.values(name)
        return bool(values) and all(isinstance(value, (list, dict)) for value in values)

    @property
    def is_read(self) -> bool:
        """Whether some reading of the columns is sure."""
        return any(reading.confidence >= SURE for reading in self.found)

    @property
    def chats(self) -> list[list[Any]]:
        """The conversations that must hold replies; none where the file is read as preference pairs."""
        if any(one.layout.shape == "preference" for one in self.found):
            return []
        columns = [one.layout.columns.get("conversation") for one in self.found if one.confidence >= SURE]
        column = next((name for name in columns if name), "")
        return [chat for row in self.samples if (chat := turns_in(row.get(column)))]


def refuse_unsupported(
    source: str, samples: Sequence[dict[str, Any]], names: ByName, found: Sequence[CandidateReading]
) -> None:
    """Refuse a file whose layout is known, but not one for training a chat model on text.

    Args:
        source: name of the file in messages.
        samples: some of the file's rows, as column to value.
        names: column names in lower case to their names in the file.
        found: ways to read the columns.

    Raises:
        DataError: The file has such a layout.
    """
    file = _SampledFile(names, samples, found)
    for fits, what, remedy in _UNSUPPORTED:
        if fits(file):
            raise DataError(f"{source} holds {what}.", remedy)


def _is_tokenized(file: _SampledFile) -> bool:
    return any(file.holds_lists(name) for name in file.names if name.endswith("input_ids")) and not file.is_read


def _has_steps(file: _SampledFile) -> bool:
    return file.has("completions", "labels") and file.holds_lists("completions") and file.holds_lists("labels")


def _is_ranked(file: _SampledFile) -> bool:
    lists = [value for name in ("answers", "responses", "completions") for value in file.values(name)]
    items = [item for value in lists if isinstance(value, list) for item in value]
    return any(isinstance(item, dict) and {"rank", "score", "rating"} & item.keys() for item in items)


def _is_for_embedding(file: _SampledFile) -> bool:
    beside = [("anchor", "positive"), ("query", "positive"), ("sentence1", "sentence2"), ("sentence_a", "sentence_b")]
    return file.has("positive_messages") or file.has("negative_messages") or any(file.has(*pair) for pair in beside)


def _has_parts_of_a_question(file: _SampledFile) -> bool:
    parts = ("choices", "options", "context")
    return any(file.has(name) for name in _QUESTIONS) and any(file.holds_lists(name) for name in parts)


def _is_classified(file: _SampledFile) -> bool:
    return bool(file.values("label")) and _lacks_replies(file)


def _lacks_replies(file: _SampledFile) -> bool:
    chats = file.chats
    return bool(chats) and not any(may_reply(turn) for chat in chats for turn in chat)


def _is_turns(file: _SampledFile) -> bool:
    turns = [row for row in file.samples if is_turn(row)]
    others = any(one.layout.shape != "text" and one.confidence >= SURE for one in file.found)
    return len(turns) * 2 > len(file.samples) and any(map(is_reply, turns)) and not others


def _is_prompts(file: _SampledFile) -> bool:
    asked = any(file.values(name) for name in (*_QUESTIONS, "input", "unanswerable_question"))
    guesses = not file.has("privileged_context") and any(reading.layout.shape != "text" for reading in file.found)
    return asked and not file.is_read and not guesses


_UNSUPPORTED: tuple[tuple[Callable[[_SampledFile], bool], str, str], ...] = (
    (
        _is_tokenized,
        "token ids (input_ids), which belong to one tokenizer that the file does not name",
        "Give the text that the ids were made of.",
    ),
    (
        _has_steps,
        "steps that are labeled one by one, from which a process reward model is trained, not a chat model",
        "Write the good steps as one reply into a column completion.",
    ),
    (
        _is_turns,
        "the turns of chats as rows of their own, so that it does not say what is asked and what is replied",
        'Put the turns of each chat into one row: {"messages": [{"role": ..., "content": ...}, ...]}.',
    ),
    (_is_ranked, "ranked lists of replies", "Write the best reply of each list into a column completion."),
    (
        _is_for_embedding,
        "pairs of similar texts, from which an embedding or a reranking model is trained, not a chat model",
        _BY_HAND,
    ),
    (
        _has_parts_of_a_question,
        "questions of which a part (choices, options or context) is a list in a column of its own, so that the "
        "question alone does not say what is asked",
        "Write the whole question into one column. " + _BY_HAND,
    ),
    (
        _is_classified,
        "texts with labels, from which a classifier is trained; there are no replies to learn",
        "Add the label as the reply of the assistant.",
    ),
    (
        _lacks_replies,
        "conversations without replies, as for training with rewards (PPO, GRPO); there is nothing to learn from them",
        "Add the replies of the assistant.",
    ),
    (
        _is_prompts,
        "questions without replies in a column of a usual name, as for training with rewards (PPO, GRPO)",
        'Add a column with the replies, or name the one that holds them: data.columns = ["prompt=...", '
        '"completion=..."].',
    ),
)
"""Unsupported layouts: test, description of what the file holds, remedy. The first whose test succeeds counts."""
