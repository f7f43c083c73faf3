"""Chat with a model folder through transformers, with or without an adapter."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish_engine.chat.prompt import Messages, chat_ids, tokenizer_template
from burnish_engine.contract.errors import UsageError
from burnish_engine.models.generate import generate_stream
from burnish_engine.models.sampling import ReplyStream, Sampling
from burnish_engine.models.source import ModelSource

if TYPE_CHECKING:
    import torch


class TorchChat:
    """A `ChatBackend` on a base model, or a base model with an adapter.

    Args:
        source: The base model.
        adapter: A PEFT adapter's folder, or None for the base.
        precision: "fp32" or "bf16", of the base weights.
        device: Where it computes; the CPU where not given.

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

        from burnish_engine.models.plain import load_adapter, load_base
        from burnish_engine.models.tokenizer import load_tokenizer

        self._tokenizer = load_tokenizer(source)
        self._template = tokenizer_template(self._tokenizer)
        model = load_base(source, precision, device or torch.device("cpu"))
        self._model: Any = load_adapter(model, adapter).eval() if adapter is not None else model
        self._name = f"{source.name} (tuned)" if adapter is not None else source.name
        self._context = source.spec.max_context if source.spec is not None else None

    @property
    def name(self) -> str:
        """The model's name, and whether it is tuned."""
        return self._name

    def stream(self, messages: Messages, options: Sampling | None = None) -> ReplyStream:
        """Stream the reply to a conversation."""
        if self._model is None:
            raise UsageError(f"{self._name} was closed.", "Open it again.")
        ids = chat_ids(self._tokenizer, messages, self._template)
        if self._context is not None and len(ids) >= self._context:
            raise UsageError(
                f"The conversation has {len(ids)} tokens and {self._name} was made for {self._context}.",
                "Start a new conversation.",
            )
        return generate_stream(self._model, self._tokenizer, ids, options)

    def close(self) -> None:
        """Free the model, and the GPU's memory."""
        import torch

        self._model = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
