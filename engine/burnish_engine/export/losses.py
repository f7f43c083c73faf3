"""Held-out loss of a model before and after training, and of a file: what was gained, and what of it was kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.export.aside import Cancelled, never, stop_if

Flags = npt.NDArray[np.bool_]
LEAST_GAIN = 0.02
"""Nats a learned token below which a share of the gain says nothing."""


@dataclass
class MeanLoss:
    """A running mean of -log p over learned tokens.

    Attributes:
        total: Sum, nats.
        tokens: How many.
    """

    total: float = 0.0
    tokens: int = 0

    def add(self, log_probs: npt.NDArray[np.floating[Any]], ids: Sequence[int], learned: Flags, start: int = 0) -> None:
        """Count the tokens that some of a row's positions predict.

        Args:
            log_probs: After the row's tokens from `start` on [T, V].
            ids: The whole row.
            learned: For each of its tokens, whether it counts.
            start: Place of the first position.
        """
        last = min(start + len(log_probs), len(ids) - 1)
        targets = np.asarray(ids[start + 1 : last + 1])
        counted = learned[start + 1 : last + 1]
        losses = -log_probs[np.arange(len(targets)), targets].astype(np.float64)
        self.total += float(losses[counted].sum())
        self.tokens += int(counted.sum())

    @property
    def mean(self) -> float | None:
        """Nats a token; None where none counts."""
        return self.total / self.tokens if self.tokens else None


def gain_kept(base: float | None, tuned: float | None, file: float | None) -> float | None:
    """Share of what training gained that a file keeps; None where it gained less than `LEAST_GAIN` or is not known."""
    if base is None or tuned is None or file is None or not np.isfinite(file) or base - tuned < LEAST_GAIN:
        return None
    return (base - file) / (base - tuned)


def model_loss(
    model: Any, documents: Sequence[Sequence[int]], learned: Sequence[Flags], cancelled: Cancelled = never
) -> float | None:
    """Mean loss of a transformers model on learned tokens of some rows, nats.

    Args:
        model: The model.
        documents: Token ids of the rows.
        learned: For each row, which tokens count.
        cancelled: Polled between rows.

    Returns:
        The loss; None where no token counts.

    Raises:
        StoppedError: Cancelled.
    """
    import torch

    from burnish_engine.models.plain_speaker import evaluating

    found = MeanLoss()
    for document, flags in zip(documents, learned, strict=True):
        stop_if(cancelled, "The verification")
        with evaluating(model):
            logits = model(input_ids=torch.tensor([list(document)], device=model.device)).logits[0].float()
            found.add(torch.log_softmax(logits, dim=-1).cpu().numpy(), document, flags)
    return found.mean
