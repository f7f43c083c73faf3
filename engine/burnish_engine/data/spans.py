"""Which characters of a rendered conversation are learned: the assistant's replies with their end-of-turn token.

Where the replies are, `locate` says. They begin where the template's own generation prompt ends, so that the model
learns exactly what it will have to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from burnish_engine.data.adapt import Adapter, probe_chat
from burnish_engine.data.conversation import Conversation
from burnish_engine.data.locate import Locator, common_length, one_of
from burnish_engine.data.problems import RowError
from burnish_engine.data.template_protocol import Messages, Template

Span = tuple[int, int]
Learn = Literal["responses", "last", "everything"]

UNVERIFIED = "the reply could not be located in the rendered text"


@dataclass(frozen=True)
class Rendered:
    """A row as text, with what is learned of it.

    Attributes:
        text: the text to tokenize.
        spans: learned characters as (start, end), ascending, not overlapping.
        add_bos: whether the beginning-of-sequence id stands before the text.
        add_eos: whether the end-of-sequence id stands after the text; it is learned.
        turn_end: the token that ends the last reply in the text; None where the text has none.
        prompt_differs: whether the template's generation prompt is not how it renders the last reply's beginning.
    """

    text: str
    spans: tuple[Span, ...]
    add_bos: bool = False
    add_eos: bool = False
    turn_end: str | None = None
    prompt_differs: bool = False


class _Prompt(NamedTuple):
    """How a rendering up to a reply, with the generation prompt, compares to the rendering of all turns.

    Its text is not kept: those of a long conversation's replies together are many times the conversation.

    Attributes:
        length: length of the rendering up to the reply, characters; -1 where the template does not take the turns.
        common: length of the beginning that both have in common, characters; -1 likewise.
    """

    length: int
    common: int

    @property
    def fits(self) -> bool:
        """Whether all turns begin with it."""
        return self.length == self.common >= 0

    @property
    def differs(self) -> bool:
        """Whether there is one, and all turns begin otherwise."""
        return self.length != self.common


class Renderer:
    """Renders conversations and finds the characters in them that are learned.

    Args:
        template: the chat template.
        eos_token: the tokenizer's end-of-sequence token, if it has one.
        added_tokens: texts of the tokenizer's added tokens.
        learn: what is learned: responses, every reply that its row does not exclude; last, the last reply alone;
            everything, the whole text.
    """

    def __init__(
        self,
        template: Template,
        eos_token: str | None,
        added_tokens: Sequence[str],
        *,
        learn: Learn = "responses",
    ) -> None:
        self._template = template
        self.adapter = Adapter(template)
        self._eos_token = eos_token
        self._learn = learn
        self._turn_end = one_of(self._turn_ends(added_tokens))
        self._locator = Locator(template, self._turn_end, self._closers())

    def render(self, conversation: Conversation) -> Rendered:
        """The conversation as text with its spans. For rows of plain text, see `plain_text`.

        Args:
            conversation: a row with messages.

        Raises:
            RowError: The template does not take the conversation, or its replies could not be located.
            DataError: The template is hostile.
        """
        rendered = self._render_chat(self.adapter.turns(conversation), conversation.tools)
        if self._learn == "everything":
            return replace(rendered, spans=((0, len(rendered.text)),))
        replies = [message for message in conversation.messages if message.role == "assistant"]
        spans = rendered.spans
        if self._learn == "last":
            spans, replies = spans[-1:], replies[-1:]
        if all(reply.learned for reply in replies):
            return replace(rendered, spans=spans)
        kept = tuple(span for span, reply in zip(spans, replies, strict=True) if reply.learned)
        return replace(rendered, spans=kept, add_eos=rendered.add_eos and replies[-1].learned)

    def _render_chat(self, messages: Messages, tools: Sequence[Any]) -> Rendered:
        text = self._template.render(messages, tools=tools)
        turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        prompts = [self._prompt(messages[:turn], text, tools) for turn in turns]
        located = self._located(messages, turns, text, prompts, tools)
        if located is None:
            raise RowError(UNVERIFIED)
        ends_with_reply = turns[-1] == len(messages) - 1
        closed = self._closed(text, located, ends_with_reply=ends_with_reply)
        return Rendered(*closed, prompt_differs=prompts[-1].differs)

    def _prompt(self, before: Messages, text: str, tools: Sequence[Any]) -> _Prompt:
        prompt = self._locator.render_or_none(before, tools, prompt=True)
        if prompt is None:
            return _Prompt(length=-1, common=-1)
        fits = text.startswith(prompt)
        return _Prompt(length=len(prompt), common=len(prompt) if fits else common_length(prompt, text))

    def _located(
        self,
        messages: Messages,
        turns: Sequence[int],
        text: str,
        prompts: Sequence[_Prompt],
        tools: Sequence[Any],
    ) -> list[Span] | None:
        """Where each reply begins and where its content ends."""
        for bounds in self._locator.ways(messages, turns, text, tools):
            spans = [
                (self._start(messages[: turn + 1], prompt, text, marked, tools), end)
                for turn, prompt, (marked, end) in zip(turns, prompts, bounds or [], strict=False)
            ]
            if spans and _ascending(spans):
                return spans
        return None

    def _start(self, upto: Messages, prompt: _Prompt, text: str, marked: int | None, tools: Sequence[Any]) -> int:
        """Where learning begins: after the generation prompt; -1 if that is unknown.

        Args:
            upto: the turns up to the reply, with it.
            prompt: the rendering of the turns before the reply, with the generation prompt.
            text: the rendering of all turns.
            marked: index in the text where the reply's content begins, if that is known.
            tools: JSON schemas of the tools, for the template.
        """
        if prompt.fits:
            return prompt.length
        before = upto[:-1]
        if marked is not None and upto[-1].get("tool_calls"):
            return self._locator.after_prompt(before, text, marked, tools)
        if marked is not None:
            return marked
        # The template cut the reply's beginning and has another prompt for it: begin where the two part, in the prompt.
        prefix = self._locator.render_or_none(before, tools)
        if prefix is None or not text.startswith(prefix):
            return -1
        return prompt.common if prompt.common >= len(prefix) else -1

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
            (self._rendered(chat[:1]), self._rendered(chat[:1], prompt=True)),
            (self._rendered(chat[:2]), self._rendered(chat)),
        )
        token = one_of(added_tokens)
        for before, after in pairs:
            if before is not None and after is not None and after.startswith(before):
                found = token.match(after, len(before))
                if found:
                    yield found["token"]

    def _closers(self) -> list[str]:
        """The tokens that end a reply of words and one that calls a tool, by rendering small conversations."""
        spoken = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        found = list[str]()
        for chat in (spoken, probe_chat(self.adapter.call_style)):
            body = (self._rendered(chat) or "").rstrip()
            last = next((end for end in self._turn_end.finditer(body) if end.end() == len(body)), None)
            if last and chat[-1]["role"] == "assistant":
                found.append(last["token"])
        return found or ([self._eos_token] if self._eos_token else [])

    def _rendered(self, messages: Messages, *, prompt: bool = False) -> str | None:
        try:
            return self._template.render(messages, add_generation_prompt=prompt)
        except RowError:
            return None


def plain_text(row: Conversation, *, learn: Learn, add_bos: bool, add_eos: bool) -> Rendered:
    """A row of plain text, learned as a whole; or of segments, of which its spans say what is learned.

    Args:
        row: the row; its text is not None.
        learn: what is learned; everything: all segments.
        add_bos: whether the beginning-of-sequence id stands before a text. Segments are taken as they stand.
        add_eos: whether the end-of-sequence id stands after a text.
    """
    text = row.text or ""
    if row.spans is not None:
        return Rendered(text, row.spans if learn != "everything" else ((0, len(text)),))
    return Rendered(text, ((0, len(text)),), add_bos=add_bos, add_eos=add_eos)


def _ascending(spans: Sequence[Span]) -> bool:
    last = 0
    for start, end in spans:
        if not last <= start < end:
            return False
        last = end
    return True
