"""Locates the replies in a rendered conversation without searching for their text.

Private-use characters are put around each reply as marks, and the conversation is rendered. The marks count only if the
rendering equals the plain one once they are removed. Templates that inspect the replies (to strip reasoning, say) fail
that check; then only the end of each reply is marked. The last method bounds each turn by the renderings before and
after it. A reply that calls tools has no content of its own: it ends with the last closing token before the next turn's
content, which is marked instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.sandbox.template_protocol import Messages, Template

ReplyBounds = tuple[int | None, int]
"""Begin of a reply's content (None: unknown) and its end, before the closing token. For a reply that calls tools, the
first is the end of the content of the turn before it."""

_PRIVATE_USE = range(0xE000, 0xF8FF)


class ReplyLocator:
    """Locates the replies in renderings of one template.

    Args:
        template: chat template.
        turn_end: pattern of a token that may end a turn, with the white space before it.
        closers: tokens with which the template ends replies.
    """

    def __init__(self, template: Template, turn_end: re.Pattern[str], closers: Sequence[str]) -> None:
        self._template = template
        self._turn_end = turn_end
        self._closer = token_pattern(closers)

    def candidate_bounds(
        self, messages: Messages, turns: Sequence[int], text: str, tools: Sequence[Any]
    ) -> Iterator[list[ReplyBounds] | None]:
        """Yield the replies' bounds by each method, the most direct one first; None where a method fails.

        Args:
            messages: turns of the conversation.
            turns: indices of the turns that are replies.
            text: plain rendering of the conversation.
            tools: JSON schemas of the tools, for the template.
        """
        for both, trimmed in ((True, False), (True, True), (False, False), (False, True)):
            yield self._marked_bounds(messages, turns, text, tools, both=both, trimmed=trimmed)
        yield self._prefix_bounds(messages, turns, text, tools)

    def render_or_none(self, messages: Messages, tools: Sequence[Any] = (), *, prompt: bool = False) -> str | None:
        """Render messages; None where the template does not take them."""
        try:
            return self._template.render(messages, add_generation_prompt=prompt, tools=tools)
        except RowError:
            return None

    def after_prompt(self, before: Messages, text: str, end: int, tools: Sequence[Any]) -> int:
        """Find the index where a reply begins, given the end of the content before it; -1 if that is unknown.

        Args:
            before: turns before the reply.
            text: rendering of all turns.
            end: index in the text where the content of the last turn of `before` ends.
            tools: JSON schemas of the tools, for the template.
        """
        mark = unused_characters(before, text)[0]
        last = before[-1]
        marked = [*before[:-1], {**last, "content": f"{(last['content'] or '').rstrip()}{mark}"}]
        whole = self.render_or_none(marked, tools, prompt=True) or ""
        _, found, behind = whole.partition(mark)
        return end + len(behind) if found and text.startswith(behind, end) else -1

    def begin_of_another(
        self, messages: Messages, turn: int, text: str, tools: Sequence[Any], *, drop: str = ""
    ) -> int:
        """Find the index where another reply, of one character, would begin in a reply's place; -1 if unknown.

        Args:
            messages: turns of the conversation.
            turn: index of the reply among them.
            text: rendering of all turns.
            tools: JSON schemas of the tools, for the template.
            drop: name of a field that the other reply shall not have: its reasoning.
        """
        mark = unused_characters(messages, text)[0]
        other = {name: value for name, value in messages[turn].items() if name != drop} | {"content": mark}
        whole = self.render_or_none([*messages[:turn], other, *messages[turn + 1 :]], tools) or ""
        before, found, _ = whole.partition(mark)
        return len(before) if found and text.startswith(before) else -1

    def _marked_bounds(
        self,
        messages: Messages,
        turns: Sequence[int],
        text: str,
        tools: Sequence[Any],
        *,
        both: bool,
        trimmed: bool,
    ) -> list[ReplyBounds] | None:
        """Find the bounds of each reply's content with private-use marks; None if the check fails.

        A start is unknown where the template cut it off together with the reply's beginning.

        Args:
            messages: turns of the conversation.
            turns: indices of the turns that are replies.
            text: plain rendering of the conversation.
            tools: JSON schemas of the tools, for the template.
            both: whether to mark start and end; otherwise the end only.
            trimmed: whether to put the marks inside the content's outer white space, for templates that trim.
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
        opening, closing, limit = unused_characters(messages, text)
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
    ) -> list[ReplyBounds] | None:
        """Compute the replies' bounds from the positions of the marks; None if marks are missing or too many."""
        opening, closing, limit = marks
        found = iter(places[:-1])
        bounds, low = list[ReplyBounds](), 0
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
        """Find the index of the last closing token between two indices, its white space included; None without one."""
        return max((found.start() for found in self._closer.finditer(text, low, limit)), default=None)

    def _prefix_bounds(
        self, messages: Messages, turns: Sequence[int], text: str, tools: Sequence[Any]
    ) -> list[ReplyBounds] | None:
        """Find the end of each reply, before its end-of-turn token, by rendering up to it; None on failure."""
        bounds = list[ReplyBounds]()
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


def token_pattern(tokens: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern of optional white space and one of the tokens, the longest that fits."""
    longest_first = sorted(set(tokens), key=len, reverse=True)
    return re.compile(rf"\s*(?P<token>{'|'.join(map(re.escape, longest_first)) or '(?!)'})")


def unused_characters(messages: Messages, text: str) -> tuple[str, str, str]:
    """Find three private-use characters that do not occur in the conversation or its rendering.

    Raises:
        RowError: Fewer than three are free.
    """
    said = [text, *(message["content"] or "" for message in messages)]
    free = (chr(code) for code in _PRIVATE_USE if not any(chr(code) in part for part in said))
    try:
        return next(free), next(free), next(free)
    except StopIteration:
        raise RowError("uses every private-use character") from None


def common_prefix_length(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts, characters."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))
