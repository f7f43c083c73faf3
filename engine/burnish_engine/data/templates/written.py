"""Checks that the rendering of a conversation holds everything that the conversation says.

A chat template may leave something out without a word: the text beside a call of a tool, the second of two calls, all
thoughts. Each piece of each turn is searched for between the replies around it. A piece counts as written also with its
outer white space trimmed, escaped as in JSON, or with other white space inside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from burnish_engine.data.sandbox.template_protocol import Messages
from burnish_engine.data.templates.template_forms import THOUGHTS

_NOT_WRITTEN = "that the chat template does not write"
SYSTEM = f"a system message {_NOT_WRITTEN}"
QUESTION = f"a question {_NOT_WRITTEN}"
REPLY = f"the text of a reply {_NOT_WRITTEN}"
BESIDE_CALL = f"text beside a call of a tool {_NOT_WRITTEN} with it"
LAST_THOUGHTS = f"thoughts {_NOT_WRITTEN}"
EARLIER_THOUGHTS = f"thoughts of replies before the last {_NOT_WRITTEN}"
CALL = f"a call of a tool {_NOT_WRITTEN}"
RESULT = f"a tool's result {_NOT_WRITTEN}"
KINDS = (CALL, BESIDE_CALL, REPLY, LAST_THOUGHTS, EARLIER_THOUGHTS, RESULT, QUESTION, SYSTEM)
"""Kinds of what may be missing from a rendering, as findings word them, the most harmful first."""

_ROLES = {"system": SYSTEM, "user": QUESTION, "tool": RESULT}


class Lost(NamedTuple):
    """Something that a rendering lacks.

    Attributes:
        turn: index of the turn that says it.
        kind: one of `KINDS`.
    """

    turn: int
    kind: str


def lost_content(messages: Messages, text: str, replies: Mapping[int, tuple[int, int]]) -> list[Lost]:
    """List what turns say and their rendering lacks.

    Args:
        messages: turns in the template's dialect, with contents as texts.
        text: rendering of all turns.
        replies: bounds in the text of each turn that is a reply, by its index.
    """
    lost = list[Lost]()
    last = max(replies, default=-1)
    low = 0
    ends = iter([*(start for start, _ in replies.values()), len(text)])
    between = _SearchedPart(text, 0, next(ends))
    for turn, message in enumerate(messages):
        if turn in replies:
            begin = between.at  # a prompt may hold what a reply begins with, but not what is said before it
            lost += [
                Lost(turn, kind)
                for kind in _lost_of_reply(message, text, begin, replies[turn][1], is_last=turn == last)
            ]
            low = replies[turn][1]
            between = _SearchedPart(text, low, next(ends))
            continue
        kind = _ROLES.get(message["role"], QUESTION)
        window = _SearchedPart(text, 0, len(text)) if kind == SYSTEM else between
        if not window.take(message["content"] or ""):
            lost.append(Lost(turn, kind))
    return lost


class _SearchedPart:
    """A part of a rendering in which the pieces of turns are searched for, one after another."""

    def __init__(self, text: str, low: int, high: int) -> None:
        self._text, self._low, self._high, self.at = text, low, high, low
        self._taken = list[str]()

    def take(self, piece: str) -> bool:
        """Whether the part holds a piece behind those taken before, or often enough for all of them."""
        core = piece.strip()
        if not core:
            return True
        end = self._find(core)
        if end < 0:
            taken = sum(other.count(core) for other in self._taken)
            return any(self._text.count(one, self._low, self._high) > taken for one in _spellings(core))
        self.at = end
        self._taken.append(core)
        return True

    def has(self, piece: str) -> bool:
        """Whether the part holds a piece behind those taken before."""
        core = piece.strip()
        return not core or self._find(core) >= 0

    def has_value(self, value: Any) -> bool:
        """Whether the part holds the keys and values of a call's argument, in any form."""
        if isinstance(value, dict):
            return all(self.has(str(key)) and self.has_value(item) for key, item in value.items())
        if isinstance(value, list):
            return all(map(self.has_value, value))
        return self.has(value) if isinstance(value, str) else self.has(json.dumps(value)) or self.has(str(value))

    def skip(self, piece: str) -> None:
        """Continue behind a piece, if it is there."""
        self.at = max(self.at, self._find(piece.strip()))

    def _find(self, core: str) -> int:
        """Find the index behind a piece in any of its spellings; -1 without one."""
        for spelling in _spellings(core):
            found = self._text.find(spelling, self.at, self._high)
            if found >= 0:
                return found + len(spelling)
        return self.at if "".join(core.split()) in "".join(self._text[self.at : self._high].split()) else -1


def _spellings(core: str) -> Iterator[str]:
    yield core
    for ascii_only in (False, True):
        spelled = json.dumps(core, ensure_ascii=ascii_only)[1:-1]
        if spelled != core:
            yield spelled
    if "\n" in core:
        yield core.replace("\n", "\\n")
    if "\\" in core or "\n" in core:
        yield repr(core)[1:-1]


def _lost_of_reply(message: Mapping[str, Any], text: str, low: int, high: int, *, is_last: bool) -> Iterator[str]:
    """Yield the kinds of what is missing of a reply between two indices of the text."""
    calls = message.get("tool_calls") or ()
    thoughts, said = message.get(THOUGHTS) or "", message["content"] or ""
    if not thoughts and "</think>" in said:
        opening, _, said = said.partition("</think>")
        thoughts = opening.strip().removeprefix("<think>")
    words, called = _SearchedPart(text, low, high), _SearchedPart(text, low, high)
    if not words.take(thoughts):
        yield LAST_THOUGHTS if is_last else EARLIER_THOUGHTS
    has_calls = all(_takes_call(call["function"], called) for call in calls)
    if not words.take(said):
        yield BESIDE_CALL if calls else REPLY
    if not has_calls:
        yield CALL


def _takes_call(function: Mapping[str, Any], window: _SearchedPart) -> bool:
    """Whether the rendering has a call, and continue behind it."""
    arguments = function["arguments"]
    spelled = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    written = window.has(spelled) or window.has_value(
        json.loads(arguments) if isinstance(arguments, str) else arguments
    )
    if not (written and window.has(function["name"])):
        return False
    window.skip(function["name"])
    for leaf in [spelled] if window.has(spelled) else _leaves(arguments):
        window.skip(leaf)
    return True


def _leaves(value: Any) -> Sequence[str]:
    """Return the texts among a call's arguments."""
    if isinstance(value, dict | list):
        return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in _leaves(item)]
    return [value] if isinstance(value, str) else []
