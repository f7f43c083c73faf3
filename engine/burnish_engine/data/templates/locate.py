"""Locates the replies in a rendered conversation without searching for their text.

Private-use characters are put around each reply as marks, and the conversation is rendered. The marks count only if the
rendering equals the plain one once they are removed. Templates that inspect the replies (to strip reasoning, say) fail
that check; then only the end of each reply is marked. The last method bounds each turn by the renderings before and
after it. A reply that calls tools has no content of its own: it ends with the last closing token before the next turn's
content, which is marked instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.sandbox.template_protocol import Messages, Template
from burnish_engine.data.templates.template_forms import THOUGHTS

ReplyBounds = tuple[int | None, int]
"""Begin of a reply's content (None: unknown) and its end, before the closing token. For a reply that calls tools, the
first is the end of the content of the turn before it."""

_PRIVATE_USE = range(0xE000, 0xF8FF)


class PromptEnd(NamedTuple):
    """The place where the rendering of a reply leaves the generation prompt.

    Attributes:
        at: index in the rendering; -1: unknown.
        whole: whether the rendering has the whole prompt.
    """

    at: int
    whole: bool

    def capped(self, most: int) -> PromptEnd:
        """Return the place, or an earlier one where the reply's own text begins before it."""
        return self if self.at <= most else PromptEnd(most, whole=False)


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

    def content_end(self, messages: Messages, turn: int, text: str, tools: Sequence[Any]) -> int:
        """Find the index where a turn's content ends; -1 if that is unknown.

        Args:
            messages: turns of the conversation.
            turn: index of the turn among them; -1 is the one before the first.
            text: rendering of all turns.
            tools: JSON schemas of the tools, for the template.
        """
        if turn < 0:
            return -1
        mark = unused_characters(messages, text)[0]
        whole = self.render_or_none([*messages[:turn], _ended(messages[turn], mark), *messages[turn + 1 :]], tools)
        before, found, behind = (whole or "").partition(mark)
        return len(before) if found and before + behind == text else -1

    def leaves_prompt(self, before: Messages, text: str, end: int, tools: Sequence[Any]) -> PromptEnd:
        """Find the index where the rendering of a reply leaves the generation prompt for it.

        Only what follows the last content before the reply is compared, since a template may render earlier turns
        otherwise once there are later ones.

        Args:
            before: turns before the reply.
            text: rendering of all turns.
            end: index in the text where the content of the last turn of `before` ends; -1: unknown.
            tools: JSON schemas of the tools, for the template.
        """
        if end < 0 or not before:
            return PromptEnd(-1, whole=False)
        mark = unused_characters(before, text)[0]
        marked = [*before[:-1], _ended(before[-1], mark)]
        prompt = (self.render_or_none(marked, tools, prompt=True) or "").partition(mark)[2]
        alone = (self.render_or_none(marked, tools) or "").partition(mark)[2]
        shared = common_prefix_length(prompt, text[end : end + len(prompt)])
        if prompt and shared == len(prompt):
            return PromptEnd(end + shared, whole=True)
        return PromptEnd(end + shared if shared > common_prefix_length(prompt, alone) else -1, whole=False)

    def begin_of_another(self, messages: Messages, turn: int, text: str, tools: Sequence[Any]) -> int:
        """Find the index where another reply, of one character alone, would begin; -1 if unknown.

        Args:
            messages: turns of the conversation.
            turn: index of the reply among them.
            text: rendering of all turns.
            tools: JSON schemas of the tools, for the template.
        """
        mark = unused_characters(messages, text)[0]
        upto = [*messages[:turn], _another(messages[turn], mark)]
        for after in (messages[turn + 1 :], []) if "tool_calls" in messages[turn] else (messages[turn + 1 :],):
            before, found, _ = (self.render_or_none([*upto, *after], tools) or "").partition(mark)
            if found and text.startswith(before):
                return len(before)
        return -1

    def parts_from_another(self, messages: Messages, turn: int, text: str, low: int, tools: Sequence[Any]) -> int:
        """Find the index where the rendering of a reply and of another in its place part, at a token; -1 if unknown.

        Args:
            messages: turns of the conversation.
            turn: index of the reply among them.
            text: rendering of all turns.
            low: index in the text where the content of the turn before it ends; both share something behind it.
            tools: JSON schemas of the tools, for the template.
        """
        mark = unused_characters(messages, text)[0]
        other = self.render_or_none([*messages[:turn], _another(messages[turn], mark)], tools) or ""
        before, found, _ = other.partition(mark)
        at = common_prefix_length(before, text)
        tokens = (token.span("token") for token in self._turn_end.finditer(text, max(low, 0)))
        at = next((start for start, end in tokens if start < at < end), at)
        return at if found and 0 <= low < at else -1

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
        touched += [messages[turn].get(THOUGHTS) or "" for turn in words]
        if trimmed and all(content == content.strip() for content in touched):
            return None  # the same as untrimmed, which was tried
        if any(messages[turn].get("tool_calls") for turn in (*after, *ahead)):
            return None  # two calls in a row: nothing between them can be marked
        marks = unused_characters(messages, text)
        opening, saying, closing, limit = marks
        marked = [dict(message) for message in messages]
        if not both:
            ahead = []
        for turn in {*words, *after, *ahead}:
            first = limit if turn in after else ""
            last = (closing if turn in words else "") + (opening if turn in ahead else "")
            thoughts = messages[turn].get(THOUGHTS) if turn in words else None
            if both and turn in words:
                first += saying if thoughts else opening
            if both and thoughts:
                marked[turn][THOUGHTS] = _between(thoughts, opening, "", trimmed=trimmed)
            marked[turn]["content"] = _between(messages[turn]["content"] or "", first, last, trimmed=trimmed)
        rendering = self.render_or_none(marked, tools)
        if rendering is None:
            return None
        pieces = re.split(f"([{''.join(marks)}])", rendering)
        if "".join(pieces[::2]) != text:
            return None
        places, at = list[tuple[str, int]](), 0
        for piece, mark in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
            at += len(piece)
            places.append((mark, at))
        return self._bounds_of(turns, set(calls), places, text, marks)

    def _bounds_of(
        self,
        turns: Sequence[int],
        calls: set[int],
        places: Sequence[tuple[str, int]],
        text: str,
        marks: tuple[str, str, str, str],
    ) -> list[ReplyBounds] | None:
        """Compute the replies' bounds from the positions of the marks; None if marks are missing or too many."""
        opening, saying, closing, limit = marks
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
                if mark == saying:
                    start = at if start is None else start
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


def unused_characters(messages: Messages, text: str) -> tuple[str, str, str, str]:
    """Find four private-use characters that do not occur in the conversation or its rendering.

    Raises:
        RowError: Fewer than four are free.
    """
    said = [text]
    for message in messages:
        said += [message["content"] or "", message.get(THOUGHTS) or ""]
    whole = "".join(said)
    free = (mark for mark in map(chr, _PRIVATE_USE) if mark not in whole)
    try:
        return next(free), next(free), next(free), next(free)
    except StopIteration:
        raise RowError("uses every private-use character") from None


def _ended(message: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """Return a turn with a mark at the end of its content."""
    return {**message, "content": f"{(message['content'] or '').rstrip()}{mark}"}


def _another(message: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return a reply that says a text and nothing else, in the place of another."""
    return {**{name: value for name, value in message.items() if name not in (THOUGHTS, "tool_calls")}, "content": text}


def _between(text: str, first: str, last: str, *, trimmed: bool) -> str:
    """Return a text with marks around it, within its outer white space if they shall be trimmed with it."""
    core = text.strip() if trimmed else text
    before, _, behind = text.partition(core) if core else ("", "", text)
    return f"{before}{first}{core}{last}{behind}"


def common_prefix_length(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts, characters."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))
