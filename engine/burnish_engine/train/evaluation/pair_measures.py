"""Measures of held-out preference pairs that all objectives share, so that they can be compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.run.events import HeldOutPairsDone
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import Engine
from burnish_engine.train.lifecycle.run_setup import RunSetup


def measure_pairs(setup: RunSetup, engine: Engine, recorder: Recorder, step: int) -> None:
    """Measure the held-out pairs after the last step of a run that learns from pairs; else do nothing.

    Args:
        setup: settings and inputs of the run.
        engine: engine that trained.
        recorder: recorder of the result.
        step: optimizer steps done.
    """
    pairs = setup.inputs.held_out
    if not setup.recipe.preference.learns_pairs or not pairs or step != setup.inputs.budget.steps:
        return
    log_probs = engine.log_probs(pairs, setup.recipe.train.micro_batch_tokens)
    accuracy, chosen_loss = shared_measures(log_probs, pairs)
    recorder.emit(HeldOutPairsDone(step=step, pairs=len(pairs), accuracy=accuracy, chosen_loss=chosen_loss))


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
