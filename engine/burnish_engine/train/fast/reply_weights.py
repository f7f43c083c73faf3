"""Weights of the tokens' unit gradients in a pass of preferences or own replies, computed on the device from losses.

Sums over the tokens of a sequence are sums of whole numbers: these add up to the same in any order, so packing, chunks
and the device's scheduling change no bit.
"""

from __future__ import annotations

import torch

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_reinforce import ReinforceSection
from burnish_engine.data.tokens.pack import IGNORED
from burnish_engine.train.base.policy import UNITS_PER_NAT, TokenTerms, token_losses, whole_units
from burnish_engine.train.base.preference import PairLogProbs, label_losses, pair_losses
from burnish_engine.train.fast.packed_batch import BatchFields

SUMS = 8
"""Sums that a step over preferences reports: its loss and the fields of `PreferenceFigures`."""
_SFT, _KL = 6, 7


class KlEstimate:
    """Sum of log-probability ratios over a step's mismatched documents, on the device.

    Args:
        device: device of the passes.
    """

    def __init__(self, device: torch.device) -> None:
        self._units = torch.zeros(1, dtype=torch.int64, device=device)
        self._strange = torch.zeros(1, dtype=torch.float32, device=device)  # not a number where a ratio is none

    def subtract(self, values: torch.Tensor) -> None:
        """Subtract losses of tokens (their log-probabilities, negated), or log-probabilities under the reference."""
        self._units += whole_units(values).sum()
        self._strange += values.sum() * 0.0

    def value(self, normalizer: torch.Tensor) -> torch.Tensor:
        """Return the divergence [1] in nats a reply, at least 0.

        Args:
            normalizer: [1] 1 / replies of the step.
        """
        mean = (self._units.double() / -UNITS_PER_NAT * normalizer).float() + self._strange
        return mean.clamp(min=0.0)

    def reset(self) -> None:
        """Begin the next step."""
        self._units.zero_()
        self._strange.zero_()


def token_weights(
    objective: PreferenceSection | ReinforceSection,
    fields: BatchFields,
    loss_R: torch.Tensor,
    sums: torch.Tensor,
    kl: KlEstimate,
) -> torch.Tensor:
    """Compute the losses of a pass's pairs, labeled or own replies, and the weight [T] of each token's unit gradient.

    Args:
        objective: recipe section with the objective.
        fields: uploaded micro-batch.
        loss_R: cross entropy of each row of the head, nats; 0 in padding.
        sums: [SUMS] sums of the step, added to.
        kl: estimate of the step's divergence.
    """
    if isinstance(objective, ReinforceSection):
        return _weigh_own(objective, fields, loss_R, sums)
    units_S = torch.zeros(len(fields.sequence_tokens_S), dtype=torch.int64, device=loss_R.device)
    units_S.index_add_(0, fields.sequence_T.index_select(0, fields.head_position_R), whole_units(loss_R))
    log_prob_S = (units_S.double() / -UNITS_PER_NAT).float()
    weigh = _weigh_labels if objective.learns_labels else _weigh_pairs
    weight_S = weigh(objective, fields, log_prob_S, sums, kl)
    sums[:1].add_(loss_R.sum() * 0.0)  # 0, or not a number where a loss is none, which whole numbers do not show
    return weight_S.index_select(0, fields.sequence_T)


def _weigh_pairs(
    preference: PreferenceSection, fields: BatchFields, log_prob_S: torch.Tensor, sums: torch.Tensor, _kl: KlEstimate
) -> torch.Tensor:
    tokens_S = fields.sequence_tokens_S.clamp(min=1.0)
    real_P = fields.sequence_tokens_S[::2] > 0
    found = pair_losses(preference, PairLogProbs.by_turns(log_prob_S, tokens_S, fields.reference_S))
    pair, chosen = fields.normalizer, preference.sft_weight * fields.chosen_normalizer
    weight_P2 = torch.stack([chosen - found.chosen_slope_P * pair, -found.rejected_slope_P * pair], dim=1)
    summed_chosen = -(log_prob_S[::2] * real_P).sum()
    terms_6P = torch.cat([found.loss_P[None], found.figures_5P])
    sums[:_SFT].add_((terms_6P * real_P).sum(dim=1) * pair)
    sums[:1].add_(summed_chosen * chosen)
    sums[_SFT:_KL].add_(summed_chosen * fields.chosen_normalizer)
    return (weight_P2 * real_P[:, None]).view(-1)


def _weigh_labels(
    preference: PreferenceSection, fields: BatchFields, log_prob_S: torch.Tensor, sums: torch.Tensor, kl: KlEstimate
) -> torch.Tensor:
    real_S = (fields.sequence_tokens_S > 0).float()
    good_S = fields.desirable_S
    divergence, row = kl.value(fields.normalizer), fields.normalizer
    found = label_losses(preference, log_prob_S, fields.reference_S, good_S, divergence)
    figures_5S = found.figures_5S(log_prob_S, good_S * fields.good_scale, (real_S - good_S) * fields.bad_scale)
    terms_6S = torch.cat([found.loss_S[None], figures_5S])
    sums[:_SFT].add_((terms_6S * real_S).sum(dim=1) * row)
    sums[_KL:].add_(divergence * real_S.sum() * row)
    return -found.slope_S * real_S * row


def _weigh_own(
    section: ReinforceSection, fields: BatchFields, loss_R: torch.Tensor, sums: torch.Tensor
) -> torch.Tensor:
    log_prob_R, place_R = -loss_R, fields.head_position_R
    is_old = fields.has_old > 0
    terms = TokenTerms(
        log_prob_R=log_prob_R,
        sequence_R=fields.sequence_T.index_select(0, place_R),
        tokens_S=fields.sequence_tokens_S,
        advantage_S=fields.advantage_S,
        share_S=fields.share_S,
        old_R=torch.where(is_old, fields.old_R, log_prob_R),
        reference_R=fields.reference_R,
    )
    found = token_losses(section, terms)
    real_R = (fields.head_target_R != IGNORED).to(loss_R.dtype)
    token = fields.normalizer
    sums[:1].add_((found.loss_R * real_R).sum())
    figures_3R = torch.stack([loss_R, found.kl_R, found.clipped_R])
    sums[1:4].add_((figures_3R * real_R).sum(dim=1) * token)
    # The rows of the padding share one place, whose unit gradient is 0.
    return torch.zeros_like(fields.sequence_T, dtype=loss_R.dtype).index_copy_(0, place_R.long(), -found.slope_R)
