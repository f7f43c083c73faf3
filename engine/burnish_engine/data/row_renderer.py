"""Batches of rows rendered with a chat template, one exchange with the process that renders for each batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish_engine.data.adapt import Adapter
from burnish_engine.data.conversation import Conversation
from burnish_engine.data.problems import RowError
from burnish_engine.data.spans import Learn, Rendered, plain_text
from burnish_engine.data.template import ChatTemplate


class RowRenderer:
    """Renders rows, many at a time: conversations in the process that renders templates, plain texts here.

    Args:
        template: the chat template.
        eos_token: the tokenizer's end-of-sequence token, if it has one.
        added_tokens: texts of the tokenizer's added tokens.
        text_bos: whether the beginning-of-sequence id stands before plain texts.
        learn: what is learned of a row, see `Renderer`.
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
