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
    """Accumulate the mean of -log p over supervised tokens."""

    total: float = 0.0  # sum of -log p, nats
    tokens: int = 0  # number of tokens in the sum

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


@dataclass(frozen=True)
class ModelDistance:
    """Distance of a model from another one on the same rows."""

    loss: float | None  # mean loss of the model on supervised tokens, nats; None where no token counts
    mean_kl: float  # mean KL(other one || model) of next-token probabilities, nats
    top1: float  # share of positions whose most likely token is the same, 0 to 1


def model_distance(
    model: Any,
    documents: Sequence[Sequence[int]],
    log_probs: Sequence[npt.NDArray[np.float32]],
    supervised: Sequence[Flags],
    canceled: Canceled = never,
) -> ModelDistance:
    """Compare a transformers model on rows with another one, given that one's log-probabilities.

    Where the vocabularies differ in size, the tokens that both have are compared.

    Args:
        model: loaded transformers model.
        documents: token ids of each row.
        log_probs: log-probabilities of the other model, [T, V] for each row.
        supervised: for each row, whether each of its tokens counts for the loss [T].
        canceled: callback polled between rows; True stops the work.

    Raises:
        StoppedError: Canceled.
    """
    import torch

    from burnish_engine.models.generation.transformers_generate import evaluating

    loss, kl, same = MeanLoss(), [], 0
    for document, truth, flags in zip(documents, log_probs, supervised, strict=True):
        stop_if(canceled, "The verification")
        with evaluating(model):
            logits = model(input_ids=torch.tensor([list(document)], device=model.device)).logits[0]
        found = torch.log_softmax(logits.double(), dim=-1).cpu().numpy()
        both = min(found.shape[-1], truth.shape[-1])
        kl.append(token_kl(truth[:, :both], found[:, :both]))
        same += int((truth.argmax(-1) == found.argmax(-1)).sum())
        loss.add(found, document, flags)
    all_kl = np.concatenate(kl)
    return ModelDistance(loss.mean, max(float(all_kl.mean()), 0.0), same / len(all_kl))
