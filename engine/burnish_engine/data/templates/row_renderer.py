"""Renders batches of rows with a chat template, with one request to the render process per batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation
from burnish_engine.data.templates.spans import Learn, RenderedRow, plain_text
from burnish_engine.data.templates.template import ChatTemplate
from burnish_engine.data.templates.written import Lost


class RowRenderer:
    """Renders many rows at a time: conversations in the render process, plain texts in this one.

    Args:
        template: chat template.
        eos_token: the tokenizer's end-of-sequence token, if it has one.
        added_tokens: texts of the tokenizer's added tokens.
        text_bos: whether the beginning-of-sequence id stands before plain texts.
        learn: the recipe's data.learn: the part of a row that is supervised, see `ChatRenderer`.
        respell: whether rows of which the template does not write all are written in an equal form that it does write.
    """

    def __init__(
        self,
        template: ChatTemplate,
        eos_token: str | None,
        added_tokens: Sequence[str],
        *,
        text_bos: bool = False,
        learn: Learn = "responses",
        respell: bool = False,
    ) -> None:
        self._template = template
        self._options = {
            "eos_token": eos_token,
            "added_tokens": list(added_tokens),
            "learn": learn,
            "respell": respell,
        }
        self._has_eos, self._text_bos, self._learn = eos_token is not None, text_bos, learn
        self.takes_tools = template.formed.takes_tools

    def render(self, conversations: Sequence[Conversation]) -> list[RenderedRow | RowError]:
        """Render each row to text with its supervised spans, or return the reason why it cannot be rendered.

        Raises:
            DataError: The template is hostile.
        """
        chats = [chat for chat in conversations if chat.text is None]
        rows = self._template.ask("rows", options=self._options, rows=list(map(_plain, chats)))["rows"] if chats else []
        rendered = iter(rows)
        return [
            _rendered(next(rendered))
            if given.text is None
            else plain_text(given, learn=self._learn, add_bos=self._text_bos, add_eos=self._has_eos)
            for given in conversations
        ]


def _plain(chat: Conversation) -> tuple[list[Any], tuple[Any, ...]]:
    """Convert a conversation to the plain values that `render_child` takes."""
    return [(turn.role, turn.content, turn.extras, turn.supervised) for turn in chat.messages], chat.tools


def _rendered(row: Any) -> RenderedRow | RowError:
    if isinstance(row, str):
        return RowError(row)
    text, spans, add_bos, add_eos, turn_end, differs, lost, offers = row
    bounds, missing = tuple((start, end) for start, end in spans), tuple(Lost(turn, kind) for turn, kind in lost)
    return RenderedRow(text, bounds, add_bos, add_eos, turn_end, differs, missing, tuple(offers))
