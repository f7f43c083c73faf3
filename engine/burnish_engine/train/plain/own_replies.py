"""Loss of replies that the model wrote itself, on the plain engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from burnish_engine.contract.recipe.recipe_reinforce import ReinforceSection
from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.train.base.engine import EvaluationRequest
from burnish_engine.train.base.policy import TokenTerms, token_losses
from burnish_engine.train.plain.evaluate import evaluation_passes
from burnish_engine.train.plain.plain_step import (
    PlainLayout,
    documents_apart,
    evaluating,
    sequence_numbers,
    supervised_log_probs,
)


def own_replies_loss(
    section: ReinforceSection, log_prob_R: torch.Tensor, batch: MicroBatch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute a pass's share of the step's loss, and the sums of entropy, divergence and clipped tokens.

    Args:
        section: recipe section.
        log_prob_R: [tokens] log-probabilities of the pass with gradient, from `supervised_log_probs`.
        batch: replies of the pass; rows of the data without `ReplyTerms` count as replies of no advantage.

    Returns:
        The loss, whose gradient is the one of `token_losses`, and [3] sums without gradient.
    """
    now_R, device, terms = log_prob_R.detach(), log_prob_R.device, batch.replies

    def given(values: npt.NDArray[np.float32] | None, missing: torch.Tensor) -> torch.Tensor:
        return missing if values is None else torch.from_numpy(values).to(missing)

    tokens_S = torch.from_numpy(batch.sequence_tokens).to(now_R)
    none_S = torch.zeros_like(tokens_S)
    found = token_losses(
        section,
        TokenTerms(
            log_prob_R=now_R,
            sequence_R=sequence_numbers(batch, device),
            tokens_S=tokens_S,
            advantage_S=given(terms.advantage if terms else None, none_S),
            share_S=given(terms.share if terms else None, none_S),
            old_R=given(terms.old if terms else None, now_R),
            reference_R=given(terms.reference if terms else None, now_R),
        ),
    )
    loss = found.loss_R.sum() + (found.slope_R * (log_prob_R - now_R)).sum()
    return loss, torch.stack([-now_R.sum(), found.kl_R.sum(), found.clipped_R.sum()])


@torch.no_grad()
def token_log_probs(
    model: Any, request: EvaluationRequest, device: torch.device, layout: PlainLayout
) -> list[npt.NDArray[np.float32]]:
    """Compute the log-probability (nats) of each supervised token; see `Engine.token_log_probs`."""
    found = [np.zeros(0, dtype=np.float32)] * len(request.documents)
    with evaluating(model):
        for batch in evaluation_passes(request, layout):
            if not batch.supervised_tokens:
                continue
            with documents_apart(batch, layout):
                log_prob_R = supervised_log_probs(model, batch, device, layout).cpu().numpy()
            parts = np.split(log_prob_R, np.cumsum(batch.sequence_tokens)[:-1])
            for row, part in zip(batch.rows, parts, strict=True):
                found[row] = part
    return found
