"""Rewards of replies, by a recipe's tables: graded where a metric only says right or wrong. Pure: no model, no file."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from burnish_engine.contract.recipe.checks.json_schema import same_json
from burnish_engine.contract.recipe.checks.patterns import SlowPatternError, find
from burnish_engine.contract.recipe.recipe_reinforce import RewardSection
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.scoring.metrics import json_value, make_metric
from burnish_engine.scoring.numbers_in_text import numbers_in
from burnish_engine.scoring.score import without_thoughts

_DEEPEST = 20  # levels of a JSON value that are looked into
_MOST_PARTS = 10_000  # parts of a JSON value that are counted


@dataclass(frozen=True)
class TriedReply:
    """A reply that the model wrote to a row.

    Attributes:
        prompt: text of the turns before the reply, as the chat template writes them.
        text: the reply.
        wanted: the row's own reply.
        ended: whether the model ended it by itself.
        tokens: its length.
    """

    prompt: str
    text: str
    wanted: str
    ended: bool
    tokens: int


class Reward(ABC):
    """Judges replies by one table."""

    def why_not(self, wanted: str) -> str:  # noqa: ARG002  most rewards judge replies to every row
        """Say why replies to a row cannot be judged, in half a sentence about its own reply; empty where they can."""
        return ""

    @abstractmethod
    def score(self, reply: TriedReply) -> float:
        """Return the reward of a reply before its weight, 0 to 1."""


def make_reward(section: RewardSection, task: TaskSection, wanted: Iterable[str]) -> Reward:
    """Make the reward of a table that is not the person's own function.

    Args:
        section: table of the recipe.
        task: the recipe's score of the task.
        wanted: own replies of all rows, of which the metric `choice` takes its choices where the recipe names none.
    """
    match section.kind:
        case "task":
            return _Task(task, wanted)
        case "keys":
            return _Keys()
        case "distance":
            return _Distance(section.span)
        case "format":
            return _Format(section.pattern)
        case "tags":
            return _Tags(section.tags)
        case "length":
            return _Length(section.tokens)
        case "script":
            return _Script()
        case _:
            raise ValueError(f"a reward of kind {section.kind} is no rule")


def answer(text: str) -> str:
    """Return what of a reply is compared: without the thoughts before it and white space around it."""
    return without_thoughts(text).strip()


class _Task(Reward):
    def __init__(self, section: TaskSection, wanted: Iterable[str]) -> None:
        self._metric, self._whole = make_metric(section, wanted), section.metric == "regex"

    def why_not(self, wanted: str) -> str:
        return self._metric.why_not_scorable(wanted.strip())

    def score(self, reply: TriedReply) -> float:
        text = reply.text.strip() if self._whole else answer(reply.text)
        return float(reply.ended and not self._metric.why_wrong(text, reply.wanted.strip()))


class _Keys(Reward):
    """Parts of a JSON value are its numbers, texts and so on, each with the keys that lead to it.

    A part that only the reply has counts as a wrong one, so that writing many keys does not pay.
    """

    def why_not(self, wanted: str) -> str:
        return "" if json_value(wanted) is not None else "it is no JSON object or list"

    def score(self, reply: TriedReply) -> float:
        found, wanted = _parts_of(answer(reply.text)), _parts_of(reply.wanted.strip())
        right = sum(path in found and same_json(found[path], value) for path, value in wanted.items())
        return right / max(len(found.keys() | wanted.keys()), 1)


class _Distance(Reward):
    def __init__(self, span: float) -> None:
        self._span = Decimal(str(span))

    def why_not(self, wanted: str) -> str:
        return "" if numbers_in(wanted) else "it has no number"

    def score(self, reply: TriedReply) -> float:
        found, right = numbers_in(answer(reply.text)), numbers_in(reply.wanted)[-1]
        if not found:
            return 0.0
        span = self._span or max(abs(right), Decimal(1))
        return float(max(1 - abs(found[-1] - right) / span, Decimal(0)))


class _Format(Reward):
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def score(self, reply: TriedReply) -> float:
        try:
            return float(find(self._pattern, reply.text.strip()) is not None)
        except SlowPatternError:
            return 0.0


class _Tags(Reward):
    def __init__(self, tags: list[str]) -> None:
        self._tags = tags

    def score(self, reply: TriedReply) -> float:
        right, after = 0, 0
        for tag in self._tags:
            opened, closed = f"<{tag}>", f"</{tag}>"
            begin, end = reply.text.find(opened), reply.text.find(closed)
            once = reply.text.count(opened) == reply.text.count(closed) == 1
            if once and after <= begin < end:
                right, after = right + 1, end
        return right / len(self._tags)


class _Length(Reward):
    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def score(self, reply: TriedReply) -> float:
        return min(max(2.0 - reply.tokens / self._tokens, 0.0), 1.0)


class _Script(Reward):
    """The writing system of a letter is the first word of its Unicode name, such as LATIN."""

    def why_not(self, wanted: str) -> str:
        return "" if _scripts(wanted) else "it has no letter"

    def score(self, reply: TriedReply) -> float:
        found, wanted = _scripts(answer(reply.text)), _scripts(reply.wanted)
        return found[wanted.most_common(1)[0][0]] / found.total() if found else 0.0


def _scripts(text: str) -> Counter[str]:
    return Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in text if letter.isalpha())


@lru_cache(maxsize=1024)
def _parts_of(text: str) -> dict[tuple[str | int, ...], Any]:
    return dict(_walk(json_value(text), ()))


def _walk(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the parts of a JSON value; of what is too deep or too long, nothing."""
    if isinstance(value, dict | list) and value:
        if len(path) < _DEEPEST and len(value) <= _MOST_PARTS:
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                yield from _walk(part, (*path, key))
    elif path:
        yield path, value
