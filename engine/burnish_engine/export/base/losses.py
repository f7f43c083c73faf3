"""Compute held-out losses of a model before and after training, and the share of the gain that a file keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.export.base.staging import Canceled, never, stop_if

Flags = npt.NDArray[np.bool_]
LEAST_GAIN = 0.02
"""Smallest gain from training, nats per supervised token, of which a share is reported."""


@dataclass
class MeanLoss:
    """Accumulate the mean of -log p over supervised tokens.

    Attributes:
        total: sum of -log p, nats.
        tokens: number of tokens in the sum.
    """

    total: float = 0.0
    tokens: int = 0

    def add(
        self, log_probs: npt.NDArray[np.floating[Any]], ids: Sequence[int], supervised: Flags, start: int = 0
    ) -> None:
        """Add the tokens that follow some positions of a row.

        Args:
            log_probs: log-probabilities after the row's tokens from `start` on [T, V].
            ids: token ids of the whole row.
            supervised: whether each token of the row counts for the loss [T].
            start: index of the first position in the row.
        """
        last = min(start + len(log_probs), len(ids) - 1)
        targets = np.asarray(ids[start + 1 : last + 1])
        counted = supervised[start + 1 : last + 1]
        losses = -log_probs[np.arange(len(targets)), targets].astype(np.float64)
        self.total += float(losses[counted].sum())
        self.tokens += int(counted.sum())

    @property
    def mean(self) -> float | None:
        """Mean loss, nats per token; None where no token counts."""
        return self.total / self.tokens if self.tokens else None


def token_kl(log_probs: npt.NDArray[np.float32], others: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Compute KL(p || q) of each position, nats, from log p and log q [T, V]."""
    wanted = log_probs.astype(np.float64)
    kl: npt.NDArray[np.float64] = (np.exp(wanted) * (wanted - others)).sum(axis=-1)
    return kl


def gain_kept(base: float | None, tuned: float | None, file: float | None) -> float | None:
    """Share of the loss reduction from training that a file keeps.

    None where training gained less than `LEAST_GAIN`, or where a loss is unknown.
    """
    if base is None or tuned is None or file is None or not np.isfinite(file) or base - tuned < LEAST_GAIN:
        return None
    return (base - file) / (base - tuned)


def model_loss(
    model: Any, documents: Sequence[Sequence[int]], supervised: Sequence[Flags], canceled: Canceled = never
) -> float | None:
    """Compute the mean loss of a transformers model on the supervised tokens of rows, nats.

    Args:
        model: loaded transformers model.
        documents: token ids of each row.
        supervised: for each row, whether each of its tokens counts for the loss [T].
        canceled: callback polled between rows; True stops the work.

    Returns:
        The loss; None where no token counts.

    Raises:
        StoppedError: Canceled.
    """
    import torch

    from burnish_engine.models.generation.transformers_generate import evaluating

    found = MeanLoss()
    for document, flags in zip(documents, supervised, strict=True):
        stop_if(canceled, "The verification")
        with evaluating(model):
            logits = model(input_ids=torch.tensor([list(document)], device=model.device)).logits[0].float()
            found.add(torch.log_softmax(logits, dim=-1).cpu().numpy(), document, flags)
    return found.mean
