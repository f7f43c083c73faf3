"""Loss of preferences on the plain engine, differentiated by autograd."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.train.base.engine import EvaluationRequest
from burnish_engine.train.base.preference import PairLogProbs, label_losses, pair_losses
from burnish_engine.train.plain.evaluate import evaluation_passes
from burnish_engine.train.plain.plain_step import (
    PlainLayout,
    documents_apart,
    evaluating,
    passes_of,
    sequence_log_probs,
    supervised_logits,
)

FIGURES = 7
"""Number of fields of `PreferenceFigures`."""


@dataclass(frozen=True)
class StepCounts:
    """Counts over all micro-batches of an optimizer step, which its means divide by, and its estimated divergence.

    Attributes:
        rows: preference pairs, or labeled replies.
        chosen_tokens: supervised tokens of the pairs' chosen replies.
        good: replies labeled good.
        kl: estimated divergence from the reference, nats a reply; 0 where the objective needs none.
    """

    rows: int
    chosen_tokens: int = 0
    good: int = 0
    kl: float = 0.0

    @classmethod
    def of(cls, section: PreferenceSection, batches: Sequence[MicroBatch], kl: float = 0.0) -> Self:
        """Count the pairs or replies of an optimizer step."""
        rows = max(sum(len(batch.rows) for batch in batches), 1)
        if section.learns_labels:
            good = sum(int(batch.desirable.sum()) for batch in batches if batch.desirable is not None)
            return cls(rows, good=good, kl=kl)
        chosen = sum(int(batch.sequence_tokens[::2].sum()) for batch in batches)
        return cls(rows, max(chosen, 1))


def preference_loss(
    section: PreferenceSection, log_prob_S: torch.Tensor, batch: MicroBatch, step: StepCounts
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute a pass's share of the step's loss, and of its `PreferenceFigures` as [FIGURES] without gradient.

    Args:
        section: recipe section with the objective.
        log_prob_S: [sequences] log-probabilities of the pass, from `sequence_log_probs`.
        batch: preference pairs or labeled replies of the pass.
        step: counts of the step.
    """
    tokens_S = torch.from_numpy(batch.sequence_tokens).to(log_prob_S)
    reference = torch.zeros_like(tokens_S) if batch.reference is None else torch.from_numpy(batch.reference)
    reference_S, share = reference.to(log_prob_S), len(batch.rows) / step.rows
    if section.learns_labels:
        assert batch.desirable is not None
        good_S = torch.from_numpy(batch.desirable).to(log_prob_S)
        kl = torch.tensor(step.kl).to(log_prob_S)
        labeled = label_losses(section, log_prob_S, reference_S, good_S, kl)
        scales = [step.rows / count if count else math.nan for count in (step.good, step.rows - step.good)]
        figures_5 = labeled.figures_5S(log_prob_S, good_S * scales[0], (1 - good_S) * scales[1]).detach().sum(dim=1)
        rest = torch.tensor([0.0, step.kl * share]).to(figures_5)
        return labeled.loss_S.sum() / step.rows, torch.cat([figures_5 / step.rows, rest])
    found = pair_losses(section, PairLogProbs.by_turns(log_prob_S, tokens_S, reference_S))
    sft = -log_prob_S[::2].sum() / step.chosen_tokens
    rest = torch.stack([sft.detach(), torch.zeros_like(sft.detach())])
    figures_5 = found.figures_5P.detach().sum(dim=1) / step.rows
    return found.loss_P.sum() / step.rows + section.sft_weight * sft, torch.cat([figures_5, rest])


@torch.no_grad()
def estimate_kl(
    model: Any, batches: Sequence[MicroBatch], *, budget: int, device: torch.device, layout: PlainLayout
) -> float:
    """Estimate the divergence from the reference, nats a reply, over the mismatched documents of a step.

    Args:
        model: model in any mode, which is restored afterwards.
        batches: micro-batches of the step.
        budget: tokens per forward pass.
        device: device of the model.
        layout: layout of the passes.
    """
    passes = [part for batch in batches for one in batch.mismatched for part in passes_of(one, layout, budget)]
    total = 0.0
    with evaluating(model):
        for one in passes:
            assert one.reference is not None
            if one.supervised_tokens:
                with documents_apart(one, layout):
                    log_prob_S = sequence_log_probs(model, one, device, layout)
                total += float(log_prob_S.double().sum()) - float(one.reference.astype(np.float64).sum())
    ratio = total / max(sum(len(batch.rows) for batch in batches), 1)
    return ratio if math.isnan(ratio) else max(ratio, 0.0)


@torch.no_grad()
def log_probs(
    model: Any, request: EvaluationRequest, device: torch.device, layout: PlainLayout
) -> npt.NDArray[np.float32]:
    """Compute [documents, sequences] the log-probabilities of supervised tokens; see `Engine.log_probs`."""
    documents = request.documents
    each = len(documents[0].sequence_lengths) if len(documents) else 1
    found_NS, done = np.zeros((len(documents), each), dtype=np.float32), 0
    with evaluating(model):
        for batch in evaluation_passes(request, layout):
            if not batch.supervised_tokens:
                continue
            with documents_apart(batch, layout):
                log_prob_S = sequence_log_probs(model, batch, device, layout)
            found_NS[list(batch.rows)] = log_prob_S.cpu().numpy().reshape(-1, each)
            done += len(batch.rows)
            request.progress(done)
    return found_NS


@torch.no_grad()
def mean_divergence(model: Any, request: EvaluationRequest, device: torch.device, layout: PlainLayout) -> float | None:
    """Compute the mean divergence (nats a token) from the model without its adapter; see `Engine.kl_to_base`."""
    total, count = 0.0, 0
    with evaluating(model):
        for batch in evaluation_passes(request, layout):
            if not batch.supervised_tokens:
                continue
            with documents_apart(batch, layout):
                ours = supervised_logits(model, batch, device, layout)[0].log_softmax(dim=1)
                with model.disable_adapter():
                    theirs = supervised_logits(model, batch, device, layout)[0].log_softmax(dim=1)
            total += float((ours.exp() * (ours - theirs)).sum(dtype=torch.float64))
            count += batch.supervised_tokens
    return total / count if count else None
