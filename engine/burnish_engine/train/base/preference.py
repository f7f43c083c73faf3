"""The objectives of learning from preferences: loss of a pair, and its derivative by both log-probabilities.

Every objective depends on the model only through the summed log-probability s of each reply. The gradient of a token's
hidden state is therefore the gradient of its cross entropy times one number for each reply, -dL/ds: an engine needs one
pass through the head, with unit gradients, and scales them afterwards.

With n tokens of a reply, reference r (the same sum without the adapter), mean a = s / n, c chosen, d rejected:

    dpo      z = beta ((s_c - r_c) - (s_d - r_d))           loss = link(z)
    dpo ipo  z = (s_c - r_c) / n_c - (s_d - r_d) / n_d      loss = (z - 1 / (2 beta))^2
    simpo    z = beta (a_c - a_d) - gamma                   loss = link(z)
    orpo     z = log odds(e^a_c) - log odds(e^a_d)          loss = -beta log sigmoid(z)

`link` is -log sigmoid(z), smoothed, or a hinge. To the mean over the pairs of an optimizer step comes the mean cross
entropy over the step's chosen tokens times `PreferenceSection.sft_weight`. Formulas as in TRL 1.16, except that orpo's
cross entropy counts the tokens of the reply, not those of the prompt as well.

Everything is plain PyTorch without a word to the host, so that a captured step runs it too. Shapes: P pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.engine import PairMeans

Floats = npt.NDArray[np.float32]

_LARGEST_MEAN = -1e-6  # orpo: the odds of a reply that is certain are infinite


@dataclass(frozen=True)
class PairLogProbs:
    """Log-probabilities of the replies of some pairs, nats.

    Attributes:
        chosen_P: sum over the supervised tokens of each chosen reply.
        rejected_P: the same of each rejected reply.
        chosen_tokens_P: number of supervised tokens of each chosen reply, as floats.
        rejected_tokens_P: the same of each rejected reply.
        reference_chosen_P: `chosen_P` of the reference; not used where the objective needs none.
        reference_rejected_P: `rejected_P` of the reference.
    """

    chosen_P: torch.Tensor
    rejected_P: torch.Tensor
    chosen_tokens_P: torch.Tensor
    rejected_tokens_P: torch.Tensor
    reference_chosen_P: torch.Tensor
    reference_rejected_P: torch.Tensor

    @classmethod
    def by_turns(cls, log_prob_S: torch.Tensor, tokens_S: torch.Tensor, reference_S: torch.Tensor) -> Self:
        """Take the replies apart of S sequences, chosen and rejected by turns."""
        return cls(*(values_S[side::2] for values_S in (log_prob_S, tokens_S, reference_S) for side in (0, 1)))


@dataclass(frozen=True)
class PairLosses:
    """Losses of some pairs, and what they say about the model.

    Attributes:
        loss_P: loss of each pair, without the cross entropy of the chosen reply.
        chosen_slope_P: derivative of the loss by the chosen reply's summed log-probability.
        rejected_slope_P: derivative by the rejected reply's.
        chosen_reward_P: implicit reward of the chosen reply: dpo, beta times its log-probability ratio to the
            reference; else beta times its mean log-probability.
        rejected_reward_P: the same of the rejected reply.
        chosen_log_prob_P: log-probability of the chosen reply as it is reported: dpo, its sum; else its mean.
        rejected_log_prob_P: the same of the rejected reply.
    """

    loss_P: torch.Tensor
    chosen_slope_P: torch.Tensor
    rejected_slope_P: torch.Tensor
    chosen_reward_P: torch.Tensor
    rejected_reward_P: torch.Tensor
    chosen_log_prob_P: torch.Tensor
    rejected_log_prob_P: torch.Tensor

    @property
    def figures_4P(self) -> torch.Tensor:
        """The fields of `PairMeans` of each pair, [4, pairs]."""
        margin_P = self.chosen_reward_P - self.rejected_reward_P
        accuracy_P = (margin_P > 0).to(margin_P.dtype)
        return torch.stack([margin_P, accuracy_P, self.chosen_log_prob_P, self.rejected_log_prob_P])


def pair_losses(section: PreferenceSection, pairs: PairLogProbs) -> PairLosses:
    """Compute the loss of each pair and its derivatives.

    Args:
        section: recipe section with the objective.
        pairs: log-probabilities; every reply has at least one token.

    Raises:
        ValueError: The objective does not learn from pairs.
    """
    if section.objective == "dpo":
        return _dpo(section, pairs)
    mean_c_P = pairs.chosen_P / pairs.chosen_tokens_P
    mean_d_P = pairs.rejected_P / pairs.rejected_tokens_P
    if section.objective == "simpo":
        loss_P, slope_P = _link(section, section.beta * (mean_c_P - mean_d_P) - section.simpo_gamma)
        slope_c_P, slope_d_P = section.beta * slope_P, -section.beta * slope_P
    elif section.objective == "orpo":
        loss_P, slope_c_P, slope_d_P = _odds_ratio(section.beta, mean_c_P, mean_d_P)
    else:
        raise ValueError(f"{section.objective} does not learn from pairs")
    return PairLosses(
        loss_P=loss_P,
        chosen_slope_P=slope_c_P / pairs.chosen_tokens_P,
        rejected_slope_P=slope_d_P / pairs.rejected_tokens_P,
        chosen_reward_P=section.beta * mean_c_P,
        rejected_reward_P=section.beta * mean_d_P,
        chosen_log_prob_P=mean_c_P,
        rejected_log_prob_P=mean_d_P,
    )


def evaluate_pairs(
    section: PreferenceSection, log_probs: Floats, documents: Sequence[Document], reference: Floats | None
) -> tuple[float, PairMeans]:
    """Compute the mean loss of some pairs, cross entropy of chosen replies included, and their means.

    Args:
        section: recipe section with the objective.
        log_probs: [documents, 2] log-probabilities of chosen and rejected replies.
        documents: the pairs.
        reference: [documents, 2] those of the reference; None where the objective needs none.
    """
    counts = [(one.first_sequence().supervised_tokens, one.supervised_tokens) for one in documents]
    tokens_P2 = torch.tensor([(chosen, both - chosen) for chosen, both in counts], dtype=torch.float64)
    log_prob_P2 = torch.from_numpy(log_probs).double()
    reference_P2 = torch.zeros_like(log_prob_P2) if reference is None else torch.from_numpy(reference).double()
    pairs = PairLogProbs.by_turns(log_prob_P2.flatten(), tokens_P2.flatten(), reference_P2.flatten())
    found = pair_losses(section, pairs)
    loss = found.loss_P.mean() - section.sft_weight * log_prob_P2[:, 0].sum() / tokens_P2[:, 0].sum()
    return float(loss), PairMeans(*found.figures_4P.mean(dim=1).tolist())


def _dpo(section: PreferenceSection, pairs: PairLogProbs) -> PairLosses:
    beta = section.beta
    ratio_c_P = pairs.chosen_P - pairs.reference_chosen_P
    ratio_d_P = pairs.rejected_P - pairs.reference_rejected_P
    if section.loss_type == "ipo":
        off_P = ratio_c_P / pairs.chosen_tokens_P - ratio_d_P / pairs.rejected_tokens_P - 1 / (2 * beta)
        loss_P = off_P.square()
        slope_c_P, slope_d_P = 2 * off_P / pairs.chosen_tokens_P, -2 * off_P / pairs.rejected_tokens_P
    else:
        loss_P, slope_P = _link(section, beta * (ratio_c_P - ratio_d_P))
        slope_c_P, slope_d_P = beta * slope_P, -beta * slope_P
    return PairLosses(
        loss_P=loss_P,
        chosen_slope_P=slope_c_P,
        rejected_slope_P=slope_d_P,
        chosen_reward_P=beta * ratio_c_P,
        rejected_reward_P=beta * ratio_d_P,
        chosen_log_prob_P=pairs.chosen_P,
        rejected_log_prob_P=pairs.rejected_P,
    )


def _link(section: PreferenceSection, z_P: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the loss of a scaled difference of rewards, and its derivative."""
    kind = section.loss_type if section.objective == "dpo" else "sigmoid"
    if kind == "hinge":
        return functional.relu(1 - z_P), -(z_P < 1).to(z_P.dtype)
    swapped = section.label_smoothing
    right_P, wrong_P = -functional.logsigmoid(z_P), -functional.logsigmoid(-z_P)
    right_slope_P, wrong_slope_P = -torch.sigmoid(-z_P), torch.sigmoid(z_P)
    if kind == "robust":
        of = 1 - 2 * swapped
        return (
            ((1 - swapped) * right_P - swapped * wrong_P) / of,
            ((1 - swapped) * right_slope_P - swapped * wrong_slope_P) / of,
        )
    return (
        (1 - swapped) * right_P + swapped * wrong_P,
        (1 - swapped) * right_slope_P + swapped * wrong_slope_P,
    )


def _odds_ratio(
    beta: float, mean_c_P: torch.Tensor, mean_d_P: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute orpo's loss, and its derivatives by both mean log-probabilities."""
    mean_c_P, mean_d_P = mean_c_P.clamp(max=_LARGEST_MEAN), mean_d_P.clamp(max=_LARGEST_MEAN)
    rest_c_P, rest_d_P = -torch.expm1(mean_c_P), -torch.expm1(mean_d_P)  # 1 - probability, exact where it is small
    z_P = (mean_c_P - rest_c_P.log()) - (mean_d_P - rest_d_P.log())
    slope_P = -beta * torch.sigmoid(-z_P)
    return -beta * functional.logsigmoid(z_P), slope_P / rest_c_P, -slope_P / rest_d_P
