"""The objectives of learning from preferences: loss of a pair or reply, and its derivative by log-probabilities.

Every objective depends on the model only through the summed log-probability s of each reply. The gradient of a token's
hidden state is therefore the gradient of its cross entropy times one number for each reply, -dL/ds: an engine needs one
pass through the head, with unit gradients, and scales them afterwards.

With n tokens of a reply, reference r (the same sum without the adapter), mean a = s / n, c chosen, d rejected:

    dpo      z = beta ((s_c - r_c) - (s_d - r_d))           loss = link(z)
    dpo ipo  z = (s_c - r_c) / n_c - (s_d - r_d) / n_d      loss = (z - 1 / (2 beta))^2
    simpo    z = beta (a_c - a_d) - gamma                   loss = link(z)
    orpo     z = log odds(e^a_c) - log odds(e^a_d)          loss = -beta log sigmoid(z)
    kto      z = beta ((s_c - r_c) - kl), of a good reply   loss = desirable_weight (1 - sigmoid(z))
             z = beta (kl - (s_d - r_d)), of a bad one      loss = undesirable_weight (1 - sigmoid(z))

`link` is -log sigmoid(z), smoothed, or a hinge. To the mean over the pairs of an optimizer step comes the mean cross
entropy over the step's chosen tokens times `PreferenceSection.sft_weight`. Formulas as in TRL 1.16, except that orpo's
cross entropy counts the tokens of the reply, not those of the prompt as well.

The divergence `kl` from the reference is estimated by the mean of s - r over prompts with replies to other prompts
(`data.tokens.mismatch`), at least 0, and not differentiated. TRL takes the mean over the rows of a micro-batch; here it
is over all rows of the optimizer step, which is the same where a step has one micro-batch, and does not depend on how
rows fall into passes. It must be known before the first row is differentiated. So each step first runs the mismatched
documents forward, without keeping activations, and then its rows: not quite half more work, as frozen weights have no
gradient. In the same pass as the rows, mismatched documents would be differentiated too, for nothing, and the estimate
of a step with several passes would still come too late. Dropout is off for the estimate, as it is for the reference.

Everything is plain PyTorch without a word to the host, so that a captured step runs it too. Shapes: P pairs,
S sequences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.engine import PreferenceFigures

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
    def figures_5P(self) -> torch.Tensor:
        """The first fields of `PreferenceFigures` of each pair, [5, pairs]."""
        margin_P = self.chosen_reward_P - self.rejected_reward_P
        accuracy_P = (margin_P > 0).to(margin_P.dtype)
        return torch.stack([margin_P, accuracy_P, self.chosen_log_prob_P, self.rejected_log_prob_P, self.loss_P])


@dataclass(frozen=True)
class LabelLosses:
    """Losses of some replies labeled good or bad.

    Attributes:
        loss_S: loss of each reply, with the weight of its label.
        slope_S: derivative of the loss by the reply's summed log-probability.
        reward_S: implicit reward: beta times the log-probability ratio to the reference.
        agrees_S: 1 where the reward lies on the label's side of the divergence, else 0.
    """

    loss_S: torch.Tensor
    slope_S: torch.Tensor
    reward_S: torch.Tensor
    agrees_S: torch.Tensor

    def figures_5S(self, log_prob_S: torch.Tensor, good_S: torch.Tensor, bad_S: torch.Tensor) -> torch.Tensor:
        """Compute what each reply adds to the sums that become the first fields of `PreferenceFigures`, [5, replies].

        Args:
            log_prob_S: log-probabilities that the losses are of.
            good_S: replies / good replies over all of the step where a reply is good, else 0.
            bad_S: the same of bad replies.
        """
        margin_S = self.reward_S * (good_S - bad_S)
        return torch.stack([margin_S, self.agrees_S, log_prob_S * good_S, log_prob_S * bad_S, self.loss_S])


def label_losses(
    section: PreferenceSection,
    log_prob_S: torch.Tensor,
    reference_S: torch.Tensor,
    desirable_S: torch.Tensor,
    kl: torch.Tensor,
) -> LabelLosses:
    """Compute the loss of each labeled reply and its derivative.

    Args:
        section: recipe section of the objective kto.
        log_prob_S: summed log-probabilities of the replies, nats.
        reference_S: those of the reference.
        desirable_S: 1 where the reply is labeled good, 0 where bad; as floats.
        kl: estimated divergence, one number; 0 where the section estimates none.
    """
    sign_S = 2 * desirable_S - 1
    weight_S = torch.where(desirable_S > 0, section.desirable_weight, section.undesirable_weight)
    ratio_S = log_prob_S - reference_S
    z_S = section.beta * sign_S * (ratio_S - kl)
    falls_S = torch.sigmoid(-z_S)  # 1 - sigmoid(z), exact where it is small
    return LabelLosses(
        loss_S=weight_S * falls_S,
        slope_S=-weight_S * section.beta * sign_S * torch.sigmoid(z_S) * falls_S,
        reward_S=section.beta * ratio_S,
        agrees_S=(z_S > 0).to(z_S.dtype),
    )


def figures_of(section: PreferenceSection, values: Sequence[float]) -> PreferenceFigures:
    """Make the figures from sums over a step, leaving out those that the objective does not have.

    Args:
        section: recipe section with the objective.
        values: [7] in the order of the fields; of labels that no reply has, not a number.
    """
    margin, accuracy, chosen, rejected, preference, sft, kl = values
    if section.learns_labels:
        margin_or, chosen_or, rejected_or = (None if math.isnan(one) else one for one in (margin, chosen, rejected))
        return PreferenceFigures(margin_or, accuracy, chosen_or, rejected_or, preference, None, kl)
    return PreferenceFigures(margin, accuracy, chosen, rejected, preference, sft if section.sft_weight else None)


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
) -> tuple[float, PreferenceFigures]:
    """Compute the mean loss of some pairs, cross entropy of chosen replies included, and their figures.

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
    sft = float(-log_prob_P2[:, 0].sum() / tokens_P2[:, 0].sum())
    values = [*found.figures_5P.mean(dim=1).tolist(), sft, 0.0]
    return float(found.loss_P.mean()) + section.sft_weight * sft, figures_of(section, values)


def evaluate_labels(
    section: PreferenceSection,
    log_probs: Floats,
    reference: Floats,
    documents: Sequence[Document],
    mismatched: tuple[Floats, Floats] | None,
) -> tuple[float, PreferenceFigures]:
    """Compute the mean loss of some labeled replies, and their figures.

    Args:
        section: recipe section of the objective kto.
        log_probs: [documents, 1] log-probabilities of the replies.
        reference: [documents, 1] those of the reference.
        documents: the rows.
        mismatched: both of the same prompts with replies to other prompts; None where no divergence is estimated.
    """
    log_prob_S, reference_S = (torch.from_numpy(one).double().flatten() for one in (log_probs, reference))
    desirable_S = torch.tensor([float(one.desirable) for one in documents], dtype=torch.float64)
    ratio = float((mismatched[0].astype(np.float64) - mismatched[1]).mean()) if mismatched else 0.0
    kl = torch.tensor(ratio, dtype=torch.float64).clamp(min=0)
    found = label_losses(section, log_prob_S, reference_S, desirable_S, kl)
    good_S, bad_S = (side / side.mean() for side in (desirable_S, 1 - desirable_S))
    figures = found.figures_5S(log_prob_S, good_S, bad_S).mean(dim=1).tolist()
    return float(found.loss_S.mean()), figures_of(section, [*figures, math.nan, float(kl)])


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
