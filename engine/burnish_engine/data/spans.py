"""Which characters of a rendered conversation are learned: the assistant's replies with their end-of-turn token.

Nothing is found by searching for a marker that could also occur in the data. Two private-use characters are put around
each reply, the conversation is rendered, and the result counts only if it equals the plain rendering once they are
taken out. Templates that look into the replies (to strip thoughts, say) fail that check; then only the reply's end is
marked, and as the last way each turn is bounded by the renderings before and after it. All ways take the reply's
beginning from the template's own generation prompt, so that the model learns exactly what it will have to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from burnish_engine.data.problems import RowError
from burnish_engine.data.shapes import Conversation
from burnish_engine.data.template import ChatTemplate, Messages

Span = tuple[int, int]
Bounds = tuple[int | None, int]
"""Where a reply's content begins, if that is known, and where it ends."""

_PRIVATE_USE = range(0xE000, 0xF8FF)
UNVERIFIED = "the reply could not be located in the rendered text"


@dataclass(frozen=True)
class Rendered:
    """A row as text, with what is learned of it.

    Attributes:
        text: What is tokenized.
        spans: Learned characters as (start, end), ascending, not overlapping.
        add_bos: Put the beginning-of-sequence id before the text.
        add_eos: Put the end-of-sequence id after the text, learned.
        turn_end: The token that ends the last reply in the text; None where the text has none.
        prompt_differs: The template's generation prompt is not how it renders the last reply's beginning.
    """

    text: str
    spans: tuple[Span, ...]
    add_bos: bool = False
    add_eos: bool = False
    turn_end: str | None = None
    prompt_differs: bool = False


class Renderer:
    """Renders conversations and finds their spans.

    Args:
        template: The chat template.
        eos_token: The tokenizer's end-of-sequence token, if it has one.
        added_tokens: Texts of the tokenizer's added tokens.
        text_bos: Put the beginning-of-sequence id before plain texts.
        everything: Learn all, not the replies only.
    """

    def __init__(
        self,
        template: ChatTemplate,
        eos_token: str | None,
        added_tokens: Sequence[str],
        *,
        text_bos: bool = False,
        everything: bool = False,
    ) -> None:
        self._template = template
        self._eos_token = eos_token
        self._text_bos = text_bos
        self._everything = everything
        self._turn_end = _one_of(self._turn_ends(added_tokens))

    def render(self, conversation: Conversation) -> Rendered:
        """The row as text with its spans.

        Raises:
            RowError: The template does not take the conversation, or its replies could not be located.
            DataError: The template is hostile.
        """
        if conversation.text is not None:
            text = conversation.text
            return Rendered(text, ((0, len(text)),), add_bos=self._text_bos, add_eos=self._eos_token is not None)
        rendered = self._render_chat(conversation.as_dicts())
        if not self._everything:
            return rendered
        return Rendered(
            rendered.text,
            ((0, len(rendered.text)),),
            add_eos=rendered.add_eos,
            turn_end=rendered.turn_end,
            prompt_differs=rendered.prompt_differs,
        )

    def _render_chat(self, messages: Messages) -> Rendered:
        text = self._template.render(messages)
        turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        prompts = [self._render_or_none(messages[:turn], prompt=True) for turn in turns]
        located = self._located(messages, turns, text, prompts)
        if located is None:
            raise RowError(UNVERIFIED)
        ends_with_reply = turns[-1] == len(messages) - 1
        closed = self._closed(text, located, ends_with_reply=ends_with_reply)
        return Rendered(*closed, prompt_differs=prompts[-1] is not None and not text.startswith(prompts[-1]))

    def _located(
        self, messages: Messages, turns: Sequence[int], text: str, prompts: Sequence[str | None]
    ) -> list[Span] | None:
        """Where each reply begins and where its content ends."""
        for bounds in self._ways(messages, turns, text):
            spans = [
                (self._start(messages[:turn], prompt, text, marked), end)
                for turn, prompt, (marked, end) in zip(turns, prompts, bounds or [], strict=False)
            ]
            if spans and _ascending(spans):
                return spans
        return None

    def _ways(self, messages: Messages, turns: Sequence[int], text: str) -> Iterator[list[Bounds] | None]:
        """What each way of locating the replies says, the most direct one first."""
        for both, trimmed in ((True, False), (True, True), (False, False), (False, True)):
            yield self._marks(messages, turns, text, both=both, trimmed=trimmed)
        yield self._turn_bounds(messages, turns, text)

    def _start(self, before: Messages, prompt: str | None, text: str, marked: int | None) -> int:
        """Where learning begins: after the generation prompt; -1 if that is unknown.

        Args:
            before: The turns before the reply.
            prompt: Their rendering with the generation prompt, if the template takes them.
            text: The rendering of all turns.
            marked: Where the reply's content begins, if that is known.
        """
        if prompt is not None and text.startswith(prompt):
            return len(prompt)
        if marked is not None:
            return marked
        # The template cut the reply's beginning and has another prompt for it: begin where the two part, in the prompt.
        prefix = self._render_or_none(before)
        if prompt is None or prefix is None or not text.startswith(prefix):
            return -1
        common = _common_length(prompt, text)
        return common if common >= len(prefix) else -1

    def _marks(
        self, messages: Messages, turns: Sequence[int], text: str, *, both: bool, trimmed: bool
    ) -> list[Bounds] | None:
        """Start and end of each reply's content by private-use characters; None if the check fails.

        A start may be missing, where the template took it away with what it cut from the reply's beginning.

        Args:
            messages: The conversation.
            turns: Which of them are replies.
            text: The plain rendering.
            both: Mark start and end; otherwise the end only.
            trimmed: Put the marks inside the content's outer white space, for templates that trim.
        """
        if trimmed and all(messages[turn]["content"] == messages[turn]["content"].strip() for turn in turns):
            return None  # the same as untrimmed, which was tried
        opening, closing = _unused(messages, text)
        marked = [dict(message) for message in messages]
        for turn in turns:
            content = messages[turn]["content"]
            core = content.strip() if trimmed else content
            before, _, after = content.partition(core)
            marked[turn]["content"] = f"{before}{opening if both else ''}{core}{closing}{after}"
        rendering = self._render_or_none(marked)
        if rendering is None:
            return None
        pieces = re.split(f"([{opening}{closing}])", rendering)
        if "".join(pieces[::2]) != text:
            return None
        bounds, start, at = list[Bounds](), None, 0
        for piece, mark in zip(pieces[::2], pieces[1::2], strict=False):
            at += len(piece)
            if mark == closing:
                bounds.append((start, at))
                start = None
            elif start is None:
                start = at
            else:
                return None
        return bounds if start is None and len(bounds) == len(turns) else None

    def _turn_bounds(self, messages: Messages, turns: Sequence[int], text: str) -> list[Bounds] | None:
        """The end of each reply by rendering the conversation up to it, without the end-of-turn token."""
        bounds = list[Bounds]()
        for turn in turns:
            upto = self._render_or_none(messages[: turn + 1])
            before = self._render_or_none(messages[:turn])
            if upto is None or before is None or not (upto.startswith(before) and text.startswith(upto)):
                return None
            body = upto.rstrip()
            endings = (found for found in self._turn_end.finditer(body, len(before)) if found.end() == len(body))
            ending = next(endings, None)
            bounds.append((None, ending.start() if ending else len(body)))
        return bounds

    def _closed(
        self, text: str, located: Sequence[Span], *, ends_with_reply: bool
    ) -> tuple[str, tuple[Span, ...], bool, bool, str | None]:
        """Extend each reply over its end-of-turn token; see to it that the last one has one.

        Returns:
            The first fields of `Rendered`.
        """
        spans = list[Span]()
        ending: re.Match[str] | None = None
        for start, end in located:
            ending = self._turn_end.match(text, end)
            spans.append((start, ending.end() if ending else end))
        if ending is None and ends_with_reply:
            # Nothing of the data follows here, so a search is safe. Words the template puts in between are learned.
            start, end = located[-1]
            ending = self._turn_end.search(text, end)
            text = text if ending else text[: max(end, len(text.rstrip()))]
            spans[-1] = (start, ending.end() if ending else len(text))
        add_eos = ending is None and ends_with_reply and self._eos_token is not None
        return text, tuple(spans), False, add_eos, ending["token"] if ending else None

    def _turn_ends(self, added_tokens: Sequence[str]) -> list[str]:
        """Tokens that may end a turn: the end-of-sequence token, and added tokens that do not begin turns."""
        special = self._template.special_tokens
        not_ends = {str(special[name]) for name in ("bos_token", "unk_token") if name in special}
        not_ends.update(self._openers(added_tokens))
        # Some vocabularies add runs of white space as tokens.
        ends = [token for token in added_tokens if token.strip() and token not in not_ends]
        return [*([self._eos_token] if self._eos_token else []), *ends]

    def _openers(self, added_tokens: Sequence[str]) -> Iterator[str]:
        """Added tokens with which the template begins a turn or a reply, by rendering a small conversation."""
        if not added_tokens:
            return
        chat = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]
        pairs = (
            (self._render_or_none(chat[:1]), self._render_or_none(chat[:1], prompt=True)),
            (self._render_or_none(chat[:2]), self._render_or_none(chat)),
        )
        token = _one_of(added_tokens)
        for before, after in pairs:
            if before is not None and after is not None and after.startswith(before):
                found = token.match(after, len(before))
                if found:
                    yield found["token"]

    def _render_or_none(self, messages: Messages, *, prompt: bool = False) -> str | None:
        try:
            return self._template.render(messages, add_generation_prompt=prompt)
        except RowError:
            return None


def _one_of(tokens: Sequence[str]) -> re.Pattern[str]:
    """Optional white space, then one of the tokens, the longest that fits."""
    longest_first = sorted(set(tokens), key=len, reverse=True)
    return re.compile(rf"\s*(?P<token>{'|'.join(map(re.escape, longest_first)) or '(?!)'})")


def _unused(messages: Messages, text: str) -> tuple[str, str]:
    """Two private-use characters that occur nowhere in the conversation."""
    seen = set(text).union(*(message["content"] for message in messages))
    free = (chr(code) for code in _PRIVATE_USE if chr(code) not in seen)
    try:
        return next(free), next(free)
    except StopIteration:
        raise RowError("uses every private-use character") from None


def _common_length(one: str, other: str) -> int:
    """Length of the common beginning, characters."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _ascending(spans: Sequence[Span]) -> bool:
    last = 0
    for start, end in spans:
        if not last <= start < end:
            return False
        last = end
    return True
