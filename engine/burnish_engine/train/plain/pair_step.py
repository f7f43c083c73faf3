"""Loss of preference pairs on the plain engine, differentiated by autograd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.data.tokens.pack import MicroBatch, held_out_batches
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.engine import CountListener, ignore_count
from burnish_engine.train.base.preference import PairLogProbs, pair_losses
from burnish_engine.train.plain.plain_step import PlainLayout, documents_apart, passes_of, sequence_log_probs


@dataclass(frozen=True)
class StepPairs:
    """Counts over all micro-batches of an optimizer step, which its means divide by.

    Attributes:
        pairs: preference pairs.
        chosen_tokens: supervised tokens of their chosen replies.
    """

    pairs: int
    chosen_tokens: int

    @classmethod
    def of(cls, batches: Sequence[MicroBatch]) -> Self:
        """Count the pairs of an optimizer step."""
        chosen = sum(int(batch.sequence_tokens[::2].sum()) for batch in batches)
        return cls(max(sum(len(batch.rows) for batch in batches), 1), max(chosen, 1))


def pair_loss(
    section: PreferenceSection, log_prob_S: torch.Tensor, batch: MicroBatch, step: StepPairs
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute a pass's share of the step's loss, and of its `PairMeans` as [4] without gradient.

    Args:
        section: recipe section with the objective.
        log_prob_S: [sequences] log-probabilities of the pass, from `sequence_log_probs`.
        batch: preference pairs of the pass.
        step: counts of the step.
    """
    tokens_S = torch.from_numpy(batch.sequence_tokens).to(log_prob_S)
    reference = torch.zeros_like(tokens_S) if batch.reference is None else torch.from_numpy(batch.reference)
    found = pair_losses(section, PairLogProbs.by_turns(log_prob_S, tokens_S, reference.to(log_prob_S)))
    loss = found.loss_P.sum() / step.pairs - section.sft_weight * log_prob_S[::2].sum() / step.chosen_tokens
    return loss, found.figures_4P.detach().sum(dim=1) / step.pairs


@torch.no_grad()
def pair_log_probs(
    model: Any,
    documents: Sequence[Document],
    *,
    budget: int,
    device: torch.device,
    layout: PlainLayout,
    progress: CountListener = ignore_count,
) -> npt.NDArray[np.float32]:
    """Compute [documents, 2] the log-probabilities of chosen and rejected replies; see `Engine.log_probs`."""
    found_N2 = np.zeros((len(documents), 2), dtype=np.float32)
    was_training, done = model.training, 0
    model.eval()
    try:
        whole = held_out_batches(documents, budget)
        for batch in (part for one in whole for part in passes_of(one, layout, budget)):
            with documents_apart(batch, layout):
                log_prob_S = sequence_log_probs(model, batch, device, layout)
            found_N2[list(batch.rows)] = log_prob_S.cpu().numpy().reshape(-1, 2)
            done += len(batch.rows)
            progress(done)
    finally:
        model.train(was_training)
    return found_N2
