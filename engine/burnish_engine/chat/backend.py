"""Interface between a chat window and the model behind it."""

from __future__ import annotations

from typing import Protocol

from burnish_engine.chat.prompt import Messages
from burnish_engine.models.generation.sampling import ReplyStream, Sampling


class ChatBackend(Protocol):
    """A model to chat with; belongs to one thread at a time."""

    @property
    def name(self) -> str:
        """Name of the model for the screen."""

    @property
    def note(self) -> str:
        """Remark on how it runs, in a sentence; empty where there is none."""

    def stream(self, messages: Messages, options: Sampling | None = None) -> ReplyStream:
        """Stream the reply to a conversation; closing the stream stops it.

        Args:
            messages: conversation so far, ending with the user's turn.
            options: sampling options; greedy by default.

        Raises:
            UsageError: The model's template refuses this conversation, or it does not fit the context.
        """

    def close(self) -> None:
        """Free the model."""
