"""The loss of replies that the model wrote itself, by their rewards, and its derivative by log-probabilities.

With p a token's log-probability, old and ref the same as the reply was written and in the model as training began, A
the reply's advantage and w the weight of its tokens (`ReplyTerms`):

    ratio r = exp(p - old)                                       token; GRPO, DAPO, Dr. GRPO
    ratio r = exp(mean of p - old over the reply)                sequence; GSPO
    loss    = -w min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + w kl_weight (exp(ref - p) - (ref - p) - 1)

The derivative by p is a number for each token, -w A r where nothing is clipped. In the first step on some replies the
old probabilities are the present ones, r is 1, and nothing has to be computed before. The estimate of the divergence is
the unbiased one of Schulman (2020, "Approximating KL Divergence"). Plain PyTorch without a word to the host, so that a
captured step runs it too. Shapes: R tokens, S sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from burnish_engine.contract.recipe.recipe_reinforce import ReinforceSection

Floats = npt.NDArray[np.float32]

_FARTHEST = 20.0  # nats between two log-probabilities that still count: exp(20) is finite times any advantage
_SAME = 1e-9  # spread below which all rewards of a group count as the same, by their size
UNITS_PER_NAT = 2.0**32
"""Whole numbers that a nat is divided into: their sums are the same in any order, and sums of 2^31 nats fit."""


@dataclass(frozen=True)
class ReplyFigures:
    """Means over the tokens of the replies that a step learned from.

    Attributes:
        entropy: mean negative log-probability, nats; of replies drawn at temperature 1, an estimate of the entropy.
        kl: estimated divergence from the model as training began, nats; None where it is not computed.
        clipped: share of tokens that taught nothing because their ratio had gone too far, 0 to 1.
    """

    entropy: float
    kl: float | None
    clipped: float


@dataclass(frozen=True)
class TokenTerms:
    """Tokens of a pass and what they are learned by.

    Attributes:
        log_prob_R: log-probability of each token now, nats; without gradient.
        sequence_R: number of each token's reply.
        tokens_S: tokens of each reply, as floats; 0 where there is none.
        advantage_S: see `ReplyTerms`.
        share_S: see `ReplyTerms`.
        old_R: see `ReplyTerms`; the same as `log_prob_R` where the weights are still those that wrote.
        reference_R: see `ReplyTerms`; not read without `kl_weight`.
    """

    log_prob_R: torch.Tensor
    sequence_R: torch.Tensor
    tokens_S: torch.Tensor
    advantage_S: torch.Tensor
    share_S: torch.Tensor
    old_R: torch.Tensor
    reference_R: torch.Tensor


@dataclass(frozen=True)
class TokenLosses:
    """Losses of the tokens of a pass.

    Attributes:
        loss_R: part of each token in the step's loss.
        slope_R: derivative of the step's loss by the token's log-probability.
        kl_R: estimated divergence at each token, nats; 0 without `kl_weight`.
        clipped_R: 1 where the ratio went too far, else 0.
    """

    loss_R: torch.Tensor
    slope_R: torch.Tensor
    kl_R: torch.Tensor
    clipped_R: torch.Tensor


def token_losses(section: ReinforceSection, terms: TokenTerms) -> TokenLosses:
    """Compute the loss of each token and its derivative; see the module."""
    advantage_R = terms.advantage_S.index_select(0, terms.sequence_R)
    share_R = terms.share_S.index_select(0, terms.sequence_R)
    moved_R = (terms.log_prob_R - terms.old_R).clamp(-_FARTHEST, _FARTHEST)
    if section.ratio == "sequence":
        moved_R = _reply_means(moved_R, terms).index_select(0, terms.sequence_R)
    ratio_R = moved_R.exp()
    over_R = (advantage_R > 0) & (ratio_R > 1 + section.clip_high)
    under_R = (advantage_R < 0) & (ratio_R < 1 - section.clip_low)
    kept_R = ratio_R.clamp(1 - section.clip_low, 1 + section.clip_high)
    clipped_R = (over_R | under_R).to(ratio_R.dtype)
    loss_R = -share_R * torch.minimum(ratio_R * advantage_R, kept_R * advantage_R)
    slope_R = -share_R * advantage_R * ratio_R * (1 - clipped_R)
    kl_R = torch.zeros_like(loss_R)
    if section.kl_weight:
        apart_R = (terms.reference_R - terms.log_prob_R).clamp(-_FARTHEST, _FARTHEST)
        kl_R = torch.expm1(apart_R) - apart_R
        loss_R = loss_R + section.kl_weight * share_R * kl_R
        slope_R = slope_R - section.kl_weight * share_R * torch.expm1(apart_R)
    return TokenLosses(loss_R, slope_R, kl_R, clipped_R)


def whole_units(nats: torch.Tensor) -> torch.Tensor:
    """Return nats as whole numbers, whose sums do not depend on the order."""
    return (nats.double() * UNITS_PER_NAT).round_().long()


def _reply_means(moved_R: torch.Tensor, terms: TokenTerms) -> torch.Tensor:
    """Compute the mean [S] over the tokens of each reply."""
    units_S = torch.zeros(len(terms.tokens_S), dtype=torch.int64, device=moved_R.device)
    units_S.index_add_(0, terms.sequence_R, whole_units(moved_R))
    return (units_S.double() / UNITS_PER_NAT).to(moved_R.dtype) / terms.tokens_S.clamp(min=1.0)


def figures_from(section: ReinforceSection, values: Sequence[float]) -> ReplyFigures:
    """Make the figures from means over the step's tokens: entropy, divergence, share clipped."""
    entropy, kl, clipped = values[:3]
    return ReplyFigures(entropy, kl if section.kl_weight else None, clipped)


def advantages(section: ReinforceSection, rewards_GN: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Compute the advantage of each reply in its group.

    Args:
        section: recipe section.
        rewards_GN: [groups, replies] rewards.

    Returns:
        [groups, replies]; all 0 in groups whose rewards are the same.
    """
    found_GN = rewards_GN - rewards_GN.mean(axis=1, keepdims=True)
    spread_G1 = rewards_GN.std(axis=1, keepdims=True)
    same_G1 = spread_G1 <= _SAME * np.maximum(np.abs(rewards_GN).max(axis=1, keepdims=True), 1.0)
    if section.spread == "group":
        found_GN = found_GN / np.where(same_G1, 1.0, spread_G1)
    return np.where(same_G1, 0.0, found_GN)


def token_shares(section: ReinforceSection, tokens_N: npt.NDArray[np.int64]) -> Floats:
    """Compute the weight of a token of each of a step's N replies, whose tokens are counted."""
    if section.average == "tokens":
        shares = np.full(len(tokens_N), 1 / max(int(tokens_N.sum()), 1))
    elif section.average == "replies":
        shares = 1 / (len(tokens_N) * np.maximum(tokens_N, 1))
    else:
        shares = np.full(len(tokens_N), 1 / (len(tokens_N) * section.max_tokens))
    return shares.astype(np.float32)
