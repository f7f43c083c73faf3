"""Chat with a model folder, with or without an adapter: on our decoder, or through transformers where it must be."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

from burnish_engine.chat.prompt import Messages, chat_ids, tokenizer_template
from burnish_engine.contract.errors import UsageError
from burnish_engine.models.generate import generate_stream
from burnish_engine.models.sampling import ReplyStream, Sampling
from burnish_engine.models.source import ModelSource

if TYPE_CHECKING:
    import torch

    from burnish_engine.models.decoder_generate import DecoderSpeaker
    from burnish_engine.models.plain_speaker import PlainSpeaker


class TorchChat:
    """A `ChatBackend` on a base model, or a base model with an adapter.

    With an adapter one loaded model serves both: `use_adapter` says which of the two answers from then on.

    Args:
        source: The base model.
        adapter: A PEFT adapter's folder, or None for the base.
        precision: "fp32" or "bf16", of the base weights.
        device: Where it computes; the CPU where not given.

    Attributes:
        note: Why transformers answers instead of our decoder, a sentence; empty where it does not.

    Raises:
        SetupError: Base, tokenizer or adapter cannot be loaded.
    """

    def __init__(
        self,
        source: ModelSource,
        adapter: Path | None = None,
        *,
        precision: str = "fp32",
        device: torch.device | None = None,
    ) -> None:
        import torch

        from burnish_engine.models.load_fast import load_for_generation
        from burnish_engine.models.tokenizer import load_tokenizer

        self._tokenizer = load_tokenizer(source)
        self._template = tokenizer_template(self._tokenizer)
        device = device or torch.device("cpu")
        fast, self.note = load_for_generation(source, adapter, precision, device)
        self._speaker: DecoderSpeaker | PlainSpeaker | None = fast or _plain(source, adapter, precision, device)
        self._base_name = f"{source.name} (tuned)" if source.trained else source.name
        self._has_adapter = self._adapted = adapter is not None
        self._context = source.spec.max_context if source.spec is not None else None

    @property
    def name(self) -> str:
        """The model's name, and whether it is tuned."""
        return f"{self._base_name} (tuned)" if self._adapted else self._base_name

    def use_adapter(self, use: bool) -> None:
        """Answer from now on with the adapter, or as the base model without it. Not while a reply is streamed.

        Raises:
            UsageError: There is no adapter to use.
        """
        if use and not self._has_adapter:
            raise UsageError(f"{self._base_name} was opened without an adapter.", "Open it with one.")
        if self._speaker is not None and use != self._adapted:
            self._speaker.use_adapter(use)
        self._adapted = use

    def stream(self, messages: Messages, options: Sampling | None = None) -> ReplyStream:
        """Stream the reply to a conversation."""
        if self._speaker is None:
            raise UsageError(f"{self.name} was closed.", "Open it again.")
        ids = chat_ids(self._tokenizer, messages, self._template)
        if self._context is not None and len(ids) >= self._context:
            raise UsageError(
                f"The conversation has {len(ids)} tokens and {self.name} was made for {self._context}.",
                "Start a new conversation.",
            )
        return generate_stream(self._speaker, self._tokenizer, ids, options)

    def close(self) -> None:
        """Free the model, and the GPU's memory."""
        import torch

        self._speaker = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _plain(source: ModelSource, adapter: Path | None, precision: str, device: torch.device) -> PlainSpeaker:
    from burnish_engine.models.plain import load_adapter, load_base
    from burnish_engine.models.plain_speaker import PlainSpeaker

    model = load_base(source, precision, device)
    return PlainSpeaker(load_adapter(model, adapter).eval() if adapter is not None else model)
