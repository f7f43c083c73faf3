"""The curves of rewards: there in runs that learn from them, and in no other."""

import numpy as np
import pytest
from app.facts.reward_facts import rewarded
from app.facts.run_events import events

from burnish_app.curves.reward_curves import RewardCurves, reward_curves
from burnish_engine.contract.run.events import RewardsGiven
from burnish_engine.contract.run.fold import RunState, fold_all


def curves(lines):
    return reward_curves(fold_all(RunState(), lines))


def test_a_run_that_learns_replies_has_none():
    assert curves(events(40)) == RewardCurves()


def test_each_round_has_a_value_in_each_curve():
    found = curves(rewarded(40))
    names = ("reward", "length", "cut", "entropy", "kl", "equal", "writing")
    assert {len(getattr(found, name)) for name in names} == {40}
    assert list(found.parts) == ["task", "distance"]
    assert found.reward.values == pytest.approx(found.parts["task"].values + 0.5 * found.parts["distance"].values)
    assert 0 <= found.equal.values.min() <= found.equal.values.max() <= 100


def test_what_was_not_measured_is_a_gap_or_no_curve():
    lines = [one.model_copy(update={"kl": None, "entropy": None if one.step == 2 else 1.0})
             if isinstance(one, RewardsGiven) else one for one in rewarded(3)]  # fmt: skip
    found = curves(lines)
    assert not len(found.kl)
    assert np.isnan(found.entropy.values).tolist() == [False, True, False]
