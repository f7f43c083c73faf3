"""The interface of models that generate text. Loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@runtime_checkable
class TextGenerator(Protocol):
    """A model that makes several replies at a time. Only the generator looks into its states."""

    @property
    def ends(self) -> Sequence[int | Sequence[int] | None]:
        """Ends of a reply that the model's files declare: every `eos_token_id`, a number or a list."""
        ...

    def inference(self) -> AbstractContextManager[None]:
        """Enter the mode that `start` and `advance` need; afterwards a model in training is as it was."""
        ...

    def start(self, prompts: Sequence[Sequence[int]], reserve: int) -> tuple[Any, torch.Tensor]:
        """Read prompts.

        Args:
            prompts: token ids of each prompt, at least one.
            reserve: most tokens that each reply will grow by.

        Returns:
            The state of these replies, and the logits [B, V] after each prompt, fp32.
        """
        ...

    def advance(self, state: Any, tokens: Sequence[int]) -> torch.Tensor:
        """Add one token to every reply of the state; return the logits [B, V] after it, fp32."""
        ...

    def keep(self, state: Any, rows: Sequence[int]) -> bool:
        """Drop all replies of the state except these; return False where the model cannot, so that all of them stay."""
        ...
