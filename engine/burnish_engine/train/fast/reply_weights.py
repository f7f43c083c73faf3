"""Weights of the tokens' unit gradients in a pass of preferences, computed on the device from the tokens' losses.

Sums over the tokens of a sequence are sums of whole numbers: these add up to the same in any order, so packing, chunks
and the device's scheduling change no bit.
"""

from __future__ import annotations

import torch

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.train.base.preference import PairLogProbs, label_losses, pair_losses
from burnish_engine.train.fast.packed_batch import BatchFields

SUMS = 8
"""Sums that a step over preferences reports: its loss and the fields of `PreferenceFigures`."""
_SFT, _KL = 6, 7
_UNITS_PER_NAT = 2.0**32  # whole numbers that a nat is divided into; sums of 2^31 nats fit


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
        self._units += _units(values).sum()
        self._strange += values.sum() * 0.0

    def value(self, normalizer: torch.Tensor) -> torch.Tensor:
        """Return the divergence [1] in nats a reply, at least 0.

        Args:
            normalizer: [1] 1 / replies of the step.
        """
        mean = (self._units.double() / -_UNITS_PER_NAT * normalizer).float() + self._strange
        return mean.clamp(min=0.0)

    def reset(self) -> None:
        """Begin the next step."""
        self._units.zero_()
        self._strange.zero_()


def token_weights(
    preference: PreferenceSection, fields: BatchFields, loss_R: torch.Tensor, sums: torch.Tensor, kl: KlEstimate
) -> torch.Tensor:
    """Compute the losses of a pass's pairs or labeled replies, and the weight [T] of each token's unit gradient.

    Args:
        preference: recipe section with the objective.
        fields: uploaded micro-batch.
        loss_R: cross entropy of each row of the head, nats; 0 in padding.
        sums: [SUMS] sums of the step, added to.
        kl: estimate of the step's divergence.
    """
    units_S = torch.zeros(len(fields.sequence_tokens_S), dtype=torch.int64, device=loss_R.device)
    units_S.index_add_(0, fields.sequence_T.index_select(0, fields.head_position_R), _units(loss_R))
    log_prob_S = (units_S.double() / -_UNITS_PER_NAT).float()
    weigh = _weigh_labels if preference.learns_labels else _weigh_pairs
    weight_S = weigh(preference, fields, log_prob_S, sums, kl)
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


def _units(nats: torch.Tensor) -> torch.Tensor:
    return (nats.double() * _UNITS_PER_NAT).round_().long()
