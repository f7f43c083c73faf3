"""Rows rendered by the batch in the process that renders templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish_engine.data.adapt import Adapter
from burnish_engine.data.conversation import Conversation
from burnish_engine.data.problems import RowError
from burnish_engine.data.spans import Learn, Rendered, plain_text
from burnish_engine.data.template import ChatTemplate


class RowRenderer:
    """As `Renderer`, for many rows at once: one exchange with the other process for all of them.

    Args:
        template: The chat template.
        eos_token: As `Renderer` takes it, and so the others.
        added_tokens: Texts of the tokenizer's added tokens.
        text_bos: Put the beginning-of-sequence id before plain texts.
        learn: What is learned of a conversation.
    """

    def __init__(
        self,
        template: ChatTemplate,
        eos_token: str | None,
        added_tokens: Sequence[str],
        *,
        text_bos: bool = False,
        learn: Learn = "responses",
    ) -> None:
        self._template = template
        self._options = {"eos_token": eos_token, "added_tokens": list(added_tokens), "learn": learn}
        self._has_eos, self._text_bos, self._learn = eos_token is not None, text_bos, learn
        self.takes_tools = Adapter(template).takes_tools

    def render(self, conversations: Sequence[Conversation]) -> list[Rendered | RowError]:
        """Each row as text with its spans, or why it cannot be.

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
    """A conversation as `render_child` takes it."""
    return [(turn.role, turn.content, turn.extras, turn.learned) for turn in chat.messages], chat.tools


def _rendered(row: Any) -> Rendered | RowError:
    if isinstance(row, str):
        return RowError(row)
    text, spans, *rest = row
    return Rendered(text, tuple((start, end) for start, end in spans), *rest)
