"""The curves of a run that learns from rewards, from the state that its events add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from burnish_app.curves.curve import NO_CURVE, Curve
from burnish_engine.contract.run.events import RewardsGiven
from burnish_engine.contract.run.fold import RunState


@dataclass(frozen=True)
class RewardCurves:
    """The curves of replies that a run writes to learn from. In a run that does not, all are empty.

    Attributes:
        reward: mean reward of each round.
        parts: mean of each reward before its weight, by its name.
        length: mean length of a reply, tokens.
        cut: share of replies that were cut, percent.
        entropy: mean negative log-probability of a token, nats.
        kl: estimated divergence from the model as training began, nats a token.
        equal: share of groups whose rewards were all the same, percent.
        writing: tokens written a second.
    """

    reward: Curve = NO_CURVE
    parts: Mapping[str, Curve] = field(default_factory=dict)
    length: Curve = NO_CURVE
    cut: Curve = NO_CURVE
    entropy: Curve = NO_CURVE
    kl: Curve = NO_CURVE
    equal: Curve = NO_CURVE
    writing: Curve = NO_CURVE


def reward_curves(state: RunState) -> RewardCurves:
    """Make the curves of a run.

    Args:
        state: state folded from the run's events so far.
    """
    given = state.rewards.items()
    if not given:
        return RewardCurves()
    names = dict.fromkeys(name for one in given for name in one.parts)
    return RewardCurves(
        reward=_curve(given, [one.reward for one in given]),
        parts={name: _curve(given, [one.parts.get(name) for one in given]) for name in names},
        length=_curve(given, [one.reply_tokens for one in given]),
        cut=_curve(given, [100 * one.cut_replies / one.replies for one in given]),
        entropy=_curve(given, [one.entropy for one in given]),
        kl=_curve(given, [one.kl for one in given]),
        equal=_curve(given, [100 * one.dropped_groups / one.groups for one in given]),
        writing=_curve(given, [one.tokens_per_s or None for one in given]),
    )


def _curve(given: Sequence[RewardsGiven], values: Sequence[float | None]) -> Curve:
    known = [np.nan if value is None else value for value in values]
    return Curve.known([one.step for one in given], known)
