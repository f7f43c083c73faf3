"""What a session asks of an engine, whichever trains: Burnish's own decoder (fast) or transformers and PEFT (plain)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from burnish_engine.data.tokenize import Document
from burnish_engine.models.sampling import Reply


@dataclass(frozen=True)
class StepResult:
    """What an optimizer step found.

    Attributes:
        step: Its number, from 1.
        micro_batches: Passes it consisted of.
        tokens: Real tokens of all its passes.
        supervised: Tokens that the loss counts.
        loss: Mean cross entropy over these, nats.
        grad_norm: Global L2 norm before clipping.
        learning_rate: Of the step.
        taken: False where the gradient was not finite, so that nothing was changed.
        loss_scale: What the loss was multiplied by (fp16), else 1.
        seconds: From the step before to this one.
    """

    step: int
    micro_batches: int
    tokens: int
    supervised: int
    loss: float
    grad_norm: float
    learning_rate: float
    taken: bool
    loss_scale: float
    seconds: float


class Engine(Protocol):
    """Trains one adapter.

    Attributes:
        notes: What the person should know, each once.
    """

    notes: list[str]

    @property
    def name(self) -> str:
        """Which engine, "fast" or "plain"."""
        ...

    @property
    def layout(self) -> str:
        """How rows are laid out in a pass, "packed" or "padded"."""
        ...

    def start(self, step: int, total_steps: int, total_micro_batches: int) -> None:
        """Get ready to go on after `step` optimizer steps."""
        ...

    def queue_step(self) -> None:
        """Do the next optimizer step, or let the device begin with it."""
        ...

    def results(self, *, wait: bool = False) -> Iterator[StepResult]:
        """Results that came in since, in order; with `wait`, those of all steps queued."""
        ...

    def held_out_loss(self, documents: Sequence[Document], budget: int) -> tuple[float, int]:
        """Mean cross entropy (nats) over the supervised tokens of documents, and their number."""
        ...

    def replies(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[Reply]:
        """Greedy replies to prompts of token ids, leaving the training as it was."""
        ...

    def save_adapter(self, folder: Path) -> None:
        """Write the adapter in PEFT's format into a folder that does not exist yet."""
        ...

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """The optimizer's state by name, on the CPU."""
        ...

    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        """Put saved state back.

        Raises:
            KeyError: The tensors belong to another adapter.
        """
        ...

    def close(self) -> None:
        """Let go of threads."""
        ...
