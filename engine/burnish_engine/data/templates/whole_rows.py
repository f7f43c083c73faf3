"""Renders rows wholly where the chat template can: in an equal form, if it leaves out a part of the row's own form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation
from burnish_engine.data.sandbox.template_protocol import Template
from burnish_engine.data.templates.respell import THINKING_ENDS, has_parallel_calls, respelled
from burnish_engine.data.templates.spans import ChatRenderer, Learn, RenderedRow
from burnish_engine.data.templates.written import KINDS, Lost

PARALLEL_REFUSED = "several calls of tools in one turn, which the chat template refuses"
_ROUNDS = 3  # most forms that are tried, each from the one before
_MARKS = range(0xF8FF, 0xE000, -1)


class WholeRowRenderer:
    """Renders rows, and says of each what the template leaves out.

    Args:
        template: chat template.
        eos_token: the tokenizer's end-of-sequence token, if it has one.
        added_tokens: texts of the tokenizer's added tokens.
        learn: part of a row that is supervised, see `ChatRenderer`.
        respell: whether an equal form is rendered where the template leaves something out of the row's own; otherwise
            the row says which of its losses such a form would avoid.
    """

    def __init__(
        self,
        template: Template,
        eos_token: str | None,
        added_tokens: Sequence[str],
        *,
        learn: Learn = "responses",
        respell: bool = False,
    ) -> None:
        self._renderer = ChatRenderer(template, eos_token, added_tokens, learn=learn)
        self._respell = respell
        self._offers = dict[frozenset[tuple[str, int]], tuple[str, ...]]()

    def render(self, conversation: Conversation) -> RenderedRow:
        """Render a row; arguments and errors are those of `ChatRenderer.render`."""
        try:
            own = self._renderer.render(conversation)
        except RowError:
            other = self._other_form(conversation, None) if has_parallel_calls(conversation) else None
            if other is None:
                raise
            if self._respell:
                return other
            raise RowError(PARALLEL_REFUSED) from None
        if not own.lost:
            return own
        if self._respell:
            return self._other_form(conversation, own) or own
        key = frozenset((one.kind, _call_count(conversation, one.turn)) for one in own.lost)
        if key not in self._offers:  # the first such row speaks for the others
            kinds = {one.kind for one in own.lost}
            other = self._other_form(conversation, own)
            still = {one.kind for one in other.lost} if other else kinds
            self._offers[key] = tuple(kind for kind in KINDS if kind in kinds - still)
        return replace(own, offers=self._offers[key])

    def _other_form(self, conversation: Conversation, own: RenderedRow | None) -> RenderedRow | None:
        """Render the form of a row that loses least; None where none loses less than its own."""
        best, lost, left_out = own, own.lost if own else (), list[Lost]()
        mark, inline = _unused(conversation), self._renderer.inline_thoughts
        for _ in range(_ROUNDS):
            other, without = respelled(conversation, lost, mark, inline=inline)
            if other is conversation:
                break
            left_out += without
            try:
                rendered = self._renderer.render(other)
            except RowError:
                break
            conversation, lost = other, rendered.lost
            whole = replace(rendered, lost=(*lost, *left_out))
            if best is None or _harm(whole) < _harm(best):
                best = whole
            if not lost:
                break
        return None if best is own or best is None else _restored(best, mark)


def _call_count(conversation: Conversation, turn: int) -> int:
    """Count the calls of a turn as none, one or several."""
    return min(len(conversation.messages[turn].extras.get("tool_calls", ())), 2)


def _harm(row: RenderedRow) -> list[int]:
    """Count what a rendering lacks, the most harmful kind first."""
    return [sum(one.kind == kind for one in row.lost) for kind in KINDS]


def _unused(conversation: Conversation) -> str:
    """Return a private-use character that a row does not have."""
    said = repr(conversation.messages) + "".join(message.content for message in conversation.messages)
    return next(mark for mark in map(chr, _MARKS) if mark not in said)


def _restored(row: RenderedRow, mark: str) -> RenderedRow:
    """Put `</think>` where its mark stands."""
    if mark not in row.text:
        return row
    longer = len(THINKING_ENDS) - 1
    spans = tuple(
        (start + longer * row.text.count(mark, 0, start), end + longer * row.text.count(mark, 0, end))
        for start, end in row.spans
    )
    return replace(row, text=row.text.replace(mark, THINKING_ENDS), spans=spans)
