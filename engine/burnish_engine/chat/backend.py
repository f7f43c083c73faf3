"""What a chat window needs, whatever runs behind it."""

from __future__ import annotations

from typing import Protocol

from burnish_engine.chat.prompt import Messages
from burnish_engine.models.sampling import ReplyStream, Sampling


class ChatBackend(Protocol):
    """A model one can talk to. Belongs to one thread at a time."""

    @property
    def name(self) -> str:
        """What to call it on screen."""

    @property
    def note(self) -> str:
        """What the person should know of how it runs, a sentence; empty where there is nothing."""

    def stream(self, messages: Messages, options: Sampling | None = None) -> ReplyStream:
        """Stream the reply to a conversation; closing the stream stops it.

        Args:
            messages: The conversation so far, ending with the person's turn.
            options: How to choose tokens; greedy where not given.

        Raises:
            UsageError: The model's template does not take this conversation, or it does not fit the context.
        """

    def close(self) -> None:
        """Free the model."""
