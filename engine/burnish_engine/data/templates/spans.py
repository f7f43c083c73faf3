"""Finds the supervised characters of a rendered conversation: the assistant's replies with their end-of-turn token.

`locate` finds the replies. A supervised span begins where the template's own generation prompt ends, so that the model
learns exactly what it will have to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation
from burnish_engine.data.sandbox.template_protocol import Messages, Template
from burnish_engine.data.templates.locate import PromptEnd, ReplyLocator, common_prefix_length, token_pattern
from burnish_engine.data.templates.template_dialect import TemplateDialect
from burnish_engine.data.templates.template_forms import FormedTemplate
from burnish_engine.data.templates.written import EARLIER_THOUGHTS, Lost, lost_content

Span = tuple[int, int]
Learn = Literal["responses", "last", "everything"]

NOT_LOCATED = "could not be located in the rendered text"
NOTHING_LEFT = "the chat template leaves nothing of a reply to learn"
_FROM_HERE_ALIKE = 10  # replies from here on are not told apart in reasons, which are counted


@dataclass(frozen=True)
class RenderedRow:
    """A row as text, with its supervised characters.

    Attributes:
        text: text to tokenize.
        spans: supervised characters as (start, end), ascending, not overlapping.
        add_bos: whether the beginning-of-sequence id stands before the text.
        add_eos: whether the end-of-sequence id stands after the text; it is supervised.
        turn_end: token that ends the last reply in the text; None where the text has none.
        prompt_differs: whether the template's generation prompt is not how it renders the last reply's beginning.
        lost: what the conversation says and the text lacks.
        offers: kinds among it that an equal form of the conversation, which the template writes, does not lose.
    """

    text: str
    spans: tuple[Span, ...]
    add_bos: bool = False
    add_eos: bool = False
    turn_end: str | None = None
    prompt_differs: bool = False
    lost: tuple[Lost, ...] = ()
    offers: tuple[str, ...] = ()


class _PromptMatch(NamedTuple):
    """The comparison of the generation prompt before a reply with the rendering of all turns.

    The prompt's text is not kept: for a long conversation, all prompts together are many times its length.

    Attributes:
        length: length of the rendering up to the reply with the generation prompt, characters; -1 where the template
            does not take the turns.
        common: length of the prefix that both renderings share, characters; -1 likewise.
    """

    length: int
    common: int

    @property
    def fits(self) -> bool:
        """Whether the rendering of all turns begins with the prompt."""
        return self.length == self.common >= 0

    @property
    def differs(self) -> bool:
        """Whether the template takes the turns, and the rendering of all turns does not begin with the prompt."""
        return self.length != self.common


class ChatRenderer:
    """Renders conversations and finds their supervised characters.

    Args:
        template: chat template.
        eos_token: the tokenizer's end-of-sequence token, if it has one.
        added_tokens: texts of the tokenizer's added tokens.
        learn: the recipe's data.learn: responses supervises every reply that its row does not exclude; last, the last
            reply alone; everything, the whole text.
    """

    def __init__(
        self,
        template: Template,
        eos_token: str | None,
        added_tokens: Sequence[str],
        *,
        learn: Learn = "responses",
    ) -> None:
        self._template = template = FormedTemplate(template)
        self._dialect = TemplateDialect(template)
        self._eos_token = eos_token
        self._learn = learn
        self._turn_end = token_pattern(self._turn_ends(added_tokens))
        self._reply_locator = ReplyLocator(template, self._turn_end, self._closers())

    @property
    def inline_thoughts(self) -> set[bool]:
        """Turns whose thoughts the template takes within the text alone: False for replies, True for calls of tools."""
        return {calls for calls in (False, True) if self._template.thought_form(calls=calls) is None}

    def render(self, conversation: Conversation) -> RenderedRow:
        """Render a conversation to text with its supervised spans; `plain_text` does it for plain texts.

        Args:
            conversation: row with messages.

        Raises:
            RowError: The template does not take the conversation, or leaves nothing of a reply to learn; or the replies
                could not be located.
            DataError: The template is hostile.
        """
        rendered = self._render_chat(self._dialect.turns(conversation), conversation.tools)
        if rendered.lost:
            rendered = replace(rendered, lost=tuple(self._of_interest(rendered.lost, conversation)))
        if self._learn == "everything":
            return replace(rendered, spans=((0, len(rendered.text)),))
        replies = [message for message in conversation.messages if message.role == "assistant"]
        spans = rendered.spans
        if self._learn == "last":
            spans, replies = spans[-1:], replies[-1:]
        if all(reply.supervised for reply in replies):
            return replace(rendered, spans=spans)
        kept = tuple(span for span, reply in zip(spans, replies, strict=True) if reply.supervised)
        return replace(rendered, spans=kept, add_eos=rendered.add_eos and replies[-1].supervised)

    def _of_interest(self, lost: Sequence[Lost], conversation: Conversation) -> Iterator[Lost]:
        """Yield what is lost, but for thoughts of replies that are not learned: they are cut in use as well."""
        for one in lost:
            learned = self._learn != "last" and conversation.messages[one.turn].supervised
            if one.kind != EARLIER_THOUGHTS or learned:
                yield one

    def _render_chat(self, messages: Messages, tools: Sequence[Any]) -> RenderedRow:
        text = self._template.render(messages, tools=tools)
        turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        prompts = [self._prompt(messages[:turn], text, tools) for turn in turns]
        try:
            located, follows = self._located(messages, turns, text, prompts, tools)
        except RowError as error:
            raise (
                RowError(self._unlocated(messages, turns, tools)) if error.reason == NOT_LOCATED else error
            ) from None
        ends_with_reply = turns[-1] == len(messages) - 1
        closed = self._closed(text, located, ends_with_reply=ends_with_reply)
        lost = lost_content(messages, closed[0], dict(zip(turns, closed[1], strict=True)))
        return RenderedRow(*closed, prompt_differs=prompts[-1].differs and not follows, lost=tuple(lost))

    def _prompt(self, before: Messages, text: str, tools: Sequence[Any]) -> _PromptMatch:
        prompt = self._reply_locator.render_or_none(before, tools, prompt=True)
        if prompt is None:
            return _PromptMatch(length=-1, common=-1)
        fits = text.startswith(prompt)
        return _PromptMatch(length=len(prompt), common=len(prompt) if fits else common_prefix_length(prompt, text))

    def _located(
        self,
        messages: Messages,
        turns: Sequence[int],
        text: str,
        prompts: Sequence[_PromptMatch],
        tools: Sequence[Any],
    ) -> tuple[list[Span], bool]:
        """Find the begin of each reply and the end of its content, and whether the last follows the whole prompt.

        Raises:
            RowError: No method locates them, or the template leaves nothing of a reply to learn.
        """
        reason = NOT_LOCATED
        for bounds in self._reply_locator.candidate_bounds(messages, turns, text, tools):
            starts = [
                self._start(messages, turn, prompt, text, marked=marked, tools=tools)
                for turn, prompt, (marked, _) in zip(turns, prompts, bounds or [], strict=False)
            ]
            spans = [(start.at, end) for start, (_, end) in zip(starts, bounds or [], strict=True)]
            if spans and _ascending(spans):
                begins = [
                    self._reply_locator.begin_of_another(messages, turn, text, tools)
                    if marked is None and start == end
                    else marked or 0
                    for turn, (start, end), (marked, _) in zip(turns, spans, bounds or [], strict=True)
                ]
                if all(self._is_left(span, text, begin) for span, begin in zip(spans, begins, strict=True)):
                    return spans, starts[-1].whole
                reason = NOTHING_LEFT
        raise RowError(reason)

    def _unlocated(self, messages: Messages, turns: Sequence[int], tools: Sequence[Any]) -> str:
        """Name the first reply that cannot be located, and what the rendering lacks of it."""
        number, turn, upto, text = 0, turns[-1], messages, ""
        for number, behind in enumerate([*turns[1:], len(messages)], 1):
            turn, upto = turns[number - 1], messages[:behind]
            text = self._reply_locator.render_or_none(upto, tools) or ""
            if text and not self._is_located(upto, turns[:number], text, tools):
                break
        missing = [one.kind for one in lost_content(upto, text, {turn: (0, len(text))}) if one.turn == turn]
        which = str(number) if number < _FROM_HERE_ALIKE else f"{_FROM_HERE_ALIKE} or later"
        what = ", a call of a tool," if messages[turn].get("tool_calls") else ""
        return f"reply {which}{what} {NOT_LOCATED}{': it has ' if missing else ''}{', '.join(missing)}"

    def _is_located(self, messages: Messages, turns: Sequence[int], text: str, tools: Sequence[Any]) -> bool:
        """Whether all replies can be located."""
        try:
            self._located(messages, turns, text, [self._prompt(messages[:turn], text, tools) for turn in turns], tools)
        except RowError as error:
            return error.reason != NOT_LOCATED
        return True

    def _is_left(self, span: Span, text: str, begin: int) -> bool:
        """Whether anything of a reply, which begins there, is left to learn: text, or its end behind the prompt."""
        start, end = span
        return start < end or (0 <= begin < end and self._turn_end.match(text, end) is not None)

    def _start(
        self,
        messages: Messages,
        turn: int,
        prompt: _PromptMatch,
        text: str,
        *,
        marked: int | None,
        tools: Sequence[Any],
    ) -> PromptEnd:
        """Find where supervision of a reply begins, after the generation prompt; at -1 if that is unknown.

        Args:
            messages: turns of the conversation.
            turn: index of the reply among them.
            prompt: comparison of the reply's generation prompt with the text.
            text: rendering of all turns.
            marked: index in the text where the reply's content begins, if that is known.
            tools: JSON schemas of the tools, for the template.
        """
        if prompt.fits:
            return PromptEnd(prompt.length, whole=True)
        calls = bool(messages[turn].get("tool_calls"))
        end = marked if calls else self._reply_locator.content_end(messages, turn - 1, text, tools)
        leaves = self._reply_locator.leaves_prompt(messages[:turn], text, -1 if end is None else end, tools)
        own = None if calls else marked
        if leaves.whole and (calls or own is not None):
            return leaves if own is None else leaves.capped(own)
        # The template cut an earlier reply, or this one: what it writes begins where another in its place would.
        another = self._reply_locator.begin_of_another(messages, turn, text, tools)
        if leaves.whole:
            return leaves if another < 0 else leaves.capped(another)
        if own is None:
            start = another if another >= 0 else leaves.at
            if start < 0 and calls and end is not None:  # templates without a prompt of their own before this turn
                start = self._reply_locator.parts_from_another(messages, turn, text, end, tools)
            return PromptEnd(start, whole=False)
        start = max(another, leaves.at)  # thoughts in the prompt begin as the reply's own do
        return PromptEnd(min(start, own) if start >= 0 else own, whole=False)

    def _closed(
        self, text: str, located: Sequence[Span], *, ends_with_reply: bool
    ) -> tuple[str, tuple[Span, ...], bool, bool, str | None]:
        """Extend each reply over its end-of-turn token, and ensure that the last one has such a token.

        Returns:
            The first five fields of `RenderedRow`.
        """
        spans = list[Span]()
        ending: re.Match[str] | None = None
        for start, end in located:
            ending = self._turn_end.match(text, end)
            spans.append((start, ending.end() if ending else end))
        if ending is None and ends_with_reply:
            # No data follows here, so a search is safe. Text that the template puts in between is supervised.
            start, end = located[-1]
            ending = self._turn_end.search(text, end)
            text = text if ending else text[: max(end, len(text.rstrip()))]
            spans[-1] = (start, ending.end() if ending else len(text))
        add_eos = ending is None and ends_with_reply and self._eos_token is not None
        return text, tuple(spans), False, add_eos, ending["token"] if ending else None

    def _turn_ends(self, added_tokens: Sequence[str]) -> list[str]:
        """List the tokens that may end a turn: the end-of-sequence token, and added tokens that do not begin turns."""
        special = self._template.special_tokens
        not_ends = {str(special[name]) for name in ("bos_token", "unk_token") if name in special}
        not_ends.update(self._openers(added_tokens))
        # Some vocabularies add runs of white space as tokens.
        ends = [token for token in added_tokens if token.strip() and token not in not_ends]
        return [*([self._eos_token] if self._eos_token else []), *ends]

    def _openers(self, added_tokens: Sequence[str]) -> Iterator[str]:
        """Yield the added tokens that begin a turn or a reply in the template, by rendering a small conversation."""
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
        token = token_pattern(added_tokens)
        for before, after in pairs:
            if before is not None and after is not None and after.startswith(before):
                found = token.match(after, len(before))
                if found:
                    yield found["token"]

    def _closers(self) -> list[str]:
        """List the tokens that end a reply of text and one that calls a tool, by rendering small conversations."""
        spoken = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        found = list[str]()
        for chat in (spoken, self._template.probe_chat()):
            body = (self._rendered(chat) or "").rstrip()
            last = next((end for end in self._turn_end.finditer(body) if end.end() == len(body)), None)
            if last and chat[-1]["role"] == "assistant" and not self._always_prompts(chat):
                found.append(last["token"])
        return found or ([self._eos_token] if self._eos_token else [])

    def _always_prompts(self, chat: Messages) -> bool:
        """Whether the template writes the generation prompt unasked, so that renderings do not end with their turn."""
        text, after = self._rendered(chat), self._rendered([*chat, {"role": "user", "content": "c"}])
        continued = text is None or after is None or after.startswith(text)
        return not continued and text == self._rendered(chat, prompt=True)

    def _rendered(self, messages: Messages, *, prompt: bool = False) -> str | None:
        try:
            return self._template.render(messages, add_generation_prompt=prompt)
        except RowError:
            return None


def plain_text(row: Conversation, *, learn: Learn, add_bos: bool, add_eos: bool) -> RenderedRow:
    """Render a row of plain text, which is supervised as a whole, or of segments, which is supervised in its spans.

    Args:
        row: row whose text is not None.
        learn: the recipe's data.learn; everything supervises all segments.
        add_bos: whether the beginning-of-sequence id stands before a plain text; segments get no such id.
        add_eos: whether the end-of-sequence id stands after a plain text; segments get no such id.
    """
    text = row.text or ""
    if row.spans is not None:
        return RenderedRow(text, row.spans if learn != "everything" else ((0, len(text)),))
    return RenderedRow(text, ((0, len(text)),), add_bos=add_bos, add_eos=add_eos)


def _ascending(spans: Sequence[Span]) -> bool:
    last = 0
    for start, end in spans:
        if not last <= start <= end:
            return False
        last = end
    return True
