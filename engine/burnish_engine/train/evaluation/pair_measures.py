"""Measures of held-out preference pairs that all objectives share, so that they can be compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from burnish_engine.data.tokens.tokenize import Document


def shared_measures(log_probs: npt.NDArray[np.float32], pairs: Sequence[Document]) -> tuple[float, float]:
    """Compute the share of pairs whose chosen reply is the likelier one, and the loss of chosen replies.

    Args:
        log_probs: [pairs, 2] summed log-probabilities of chosen and rejected replies, nats.
        pairs: documents of the pairs.

    Returns:
        The share, 0 to 1, and the mean cross entropy per token, nats.
    """
    log_prob_P2 = log_probs.astype(np.float64)
    tokens = sum(pair.first_sequence().supervised_tokens for pair in pairs)
    return float((log_prob_P2[:, 0] > log_prob_P2[:, 1]).mean()), float(-log_prob_P2[:, 0].sum() / tokens)
