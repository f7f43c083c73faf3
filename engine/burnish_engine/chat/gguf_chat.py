"""Chat with a GGUF file, with the template and the end tokens that it carries."""

from __future__ import annotations

from pathlib import Path

from burnish_engine.chat.prompt import Messages, gguf_chat_ids, gguf_template, render
from burnish_engine.models.generation.sampling import ReplyStream, Sampling
from burnish_engine.models.gguf.gguf_runtime import GgufModel

CHAT_CONTEXT = 4096
"""Longest conversation, tokens, where the file was made for as many."""


class GgufChat:
    """`ChatBackend` on a GGUF file, on the CPU.

    Args:
        path: The file.
        context: length of the longest conversation, tokens.
        threads: number of CPU threads; 0 means one per physical core.

    Raises:
        UsageError: There is no such file, it is no GGUF, or it carries no chat template.
        SetupError: The file cannot be loaded.
    """

    note = ""

    def __init__(self, path: Path, *, context: int = CHAT_CONTEXT, threads: int = 0) -> None:
        self._model = GgufModel(path, context=context, threads=threads)
        try:
            self._template = gguf_template(self._model)
        except BaseException:
            self._model.close()
            raise

    @property
    def name(self) -> str:
        """Name of the file."""
        return self._model.path.name

    def stream(self, messages: Messages, options: Sampling | None = None) -> ReplyStream:
        """Stream the reply to a conversation; only the part that is new since the last call is evaluated."""
        ids = gguf_chat_ids(self._model, render(self._template, messages))
        return self._model.generate(ids, options)

    def close(self) -> None:
        """Free the model."""
        self._model.close()
