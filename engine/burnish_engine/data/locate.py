"""Where the replies of a rendered conversation are, by ways that find nothing by looking for it in the data.

Private-use characters are put around each reply, the conversation is rendered, and the result counts only if it equals
the plain rendering once they are taken out. Templates that look into the replies (to strip thoughts, say) fail that
check; then only the reply's end is marked, and as the last way each turn is bounded by the renderings before and after
it. A reply that calls tools has no end of its own in the data: it ends with the last closing token before the next
turn's content, which is marked instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from burnish_engine.data.problems import RowError
from burnish_engine.data.template_protocol import Messages, Template

Bounds = tuple[int | None, int]
"""Where a reply's content begins, if that is known, and where it ends: before its closing token. Of a reply that calls
tools, the first is where the content of the turn before it ends."""

_PRIVATE_USE = range(0xE000, 0xF8FF)


class Locator:
    """Finds the replies in renderings of one template.

    Args:
        template: The template.
        turn_end: Matches a token that may end a turn, after white space.
        closers: The tokens with which the template does end replies.
    """

    def __init__(self, template: Template, turn_end: re.Pattern[str], closers: Sequence[str]) -> None:
        self._template = template
        self._turn_end = turn_end
        self._closer = one_of(closers)

    def ways(
        self, messages: Messages, turns: Sequence[int], text: str, tools: Sequence[Any]
    ) -> Iterator[list[Bounds] | None]:
        """What each way of locating the replies says, the most direct one first; None where it fails.

        Args:
            messages: The conversation.
            turns: Which of them are replies.
            text: The plain rendering.
            tools: Handed to the template.
        """
        for both, trimmed in ((True, False), (True, True), (False, False), (False, True)):
            yield self._marks(messages, turns, text, tools, both=both, trimmed=trimmed)
        yield self._turn_bounds(messages, turns, text, tools)

    def render_or_none(self, messages: Messages, tools: Sequence[Any] = (), *, prompt: bool = False) -> str | None:
        """The rendering; None where the template does not take the messages."""
        try:
            return self._template.render(messages, add_generation_prompt=prompt, tools=tools)
        except RowError:
            return None

    def after_prompt(self, before: Messages, text: str, end: int, tools: Sequence[Any]) -> int:
        """Where a reply begins, from where the content of the turn before it ends; -1 if that is unknown.

        Args:
            before: The turns before the reply.
            text: The rendering of all turns.
            end: Where the content of the last of those ends in it.
            tools: Handed to the template.
        """
        mark = unused(before, text)[0]
        last = before[-1]
        marked = [*before[:-1], {**last, "content": f"{(last['content'] or '').rstrip()}{mark}"}]
        whole = self.render_or_none(marked, tools, prompt=True) or ""
        _, found, behind = whole.partition(mark)
        return end + len(behind) if found and text.startswith(behind, end) else -1

    def _marks(
        self,
        messages: Messages,
        turns: Sequence[int],
        text: str,
        tools: Sequence[Any],
        *,
        both: bool,
        trimmed: bool,
    ) -> list[Bounds] | None:
        """Start and end of each reply's content by private-use characters; None if the check fails.

        A start may be missing, where the template took it away with what it cut from the reply's beginning.

        Args:
            messages: The conversation.
            turns: Which of them are replies.
            text: The plain rendering.
            tools: Handed to the template.
            both: Mark start and end; otherwise the end only.
            trimmed: Put the marks inside the content's outer white space, for templates that trim.
        """
        calls = [turn for turn in turns if messages[turn].get("tool_calls")]
        after = [turn + 1 for turn in calls if turn + 1 < len(messages)]
        ahead = [turn - 1 for turn in calls if turn]
        words = [turn for turn in turns if turn not in calls]
        touched = [messages[turn]["content"] or "" for turn in (*words, *after, *ahead)]
        if trimmed and all(content == content.strip() for content in touched):
            return None  # the same as untrimmed, which was tried
        if any(messages[turn].get("tool_calls") for turn in (*after, *ahead)):
            return None  # two calls in a row: nothing between them can be marked
        opening, closing, limit = unused(messages, text)
        marked = [dict(message) for message in messages]
        if not both:
            ahead = []
        for turn in {*words, *after, *ahead}:
            content = messages[turn]["content"] or ""
            core = content.strip() if trimmed else content
            before, _, behind = content.partition(core) if core else ("", "", content)
            first = (limit if turn in after else "") + (opening if both and turn in words else "")
            last = (closing if turn in words else "") + (opening if turn in ahead else "")
            marked[turn]["content"] = f"{before}{first}{core}{last}{behind}"
        rendering = self.render_or_none(marked, tools)
        if rendering is None:
            return None
        pieces = re.split(f"([{opening}{closing}{limit}])", rendering)
        if "".join(pieces[::2]) != text:
            return None
        places, at = list[tuple[str, int]](), 0
        for piece, mark in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
            at += len(piece)
            places.append((mark, at))
        return self._bounds_of(turns, set(calls), places, text, (opening, closing, limit))

    def _bounds_of(
        self,
        turns: Sequence[int],
        calls: set[int],
        places: Sequence[tuple[str, int]],
        text: str,
        marks: tuple[str, str, str],
    ) -> list[Bounds] | None:
        """The replies' bounds, from where the marks came to stand; None if some are missing or too many."""
        opening, closing, limit = marks
        found = iter(places[:-1])
        bounds, low = list[Bounds](), 0
        mark, at = next(found, ("", len(text)))
        for turn in turns:
            start = None
            if turn in calls:
                if mark == opening:
                    start = at
                    mark, at = next(found, ("", len(text)))
                if mark not in (limit, ""):
                    return None
                end = self._last_closer(text, low, at)
                if end is None:
                    return None
                if mark:
                    mark, at = next(found, ("", len(text)))
            else:
                if mark == opening:
                    start = at
                    mark, at = next(found, ("", len(text)))
                if mark != closing:
                    return None
                end = at
                mark, at = next(found, ("", len(text)))
            bounds.append((start, end))
            low = end
        return None if mark else bounds

    def _last_closer(self, text: str, low: int, limit: int) -> int | None:
        """Where the last closing token before a place begins, with the white space before it."""
        return max((found.start() for found in self._closer.finditer(text, low, limit)), default=None)

    def _turn_bounds(
        self, messages: Messages, turns: Sequence[int], text: str, tools: Sequence[Any]
    ) -> list[Bounds] | None:
        """The end of each reply by rendering the conversation up to it, without the end-of-turn token."""
        bounds = list[Bounds]()
        for turn in turns:
            upto = self.render_or_none(messages[: turn + 1], tools)
            before = self.render_or_none(messages[:turn], tools)
            if upto is None or before is None or not (upto.startswith(before) and text.startswith(upto)):
                return None
            body = upto.rstrip()
            endings = (found for found in self._turn_end.finditer(body, len(before)) if found.end() == len(body))
            ending = next(endings, None)
            bounds.append((None, ending.start() if ending else len(body)))
        return bounds


def one_of(tokens: Sequence[str]) -> re.Pattern[str]:
    """Optional white space, then one of the tokens, the longest that fits."""
    longest_first = sorted(set(tokens), key=len, reverse=True)
    return re.compile(rf"\s*(?P<token>{'|'.join(map(re.escape, longest_first)) or '(?!)'})")


def unused(messages: Messages, text: str) -> tuple[str, str, str]:
    """Three private-use characters that occur nowhere in the conversation.

    Raises:
        RowError: There are none.
    """
    said = [text, *(message["content"] or "" for message in messages)]
    free = (chr(code) for code in _PRIVATE_USE if not any(chr(code) in part for part in said))
    try:
        return next(free), next(free), next(free)
    except StopIteration:
        raise RowError("uses every private-use character") from None


def common_length(one: str, other: str) -> int:
    """Length of the common beginning, characters."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))
