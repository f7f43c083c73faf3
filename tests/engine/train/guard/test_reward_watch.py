"""The guard's rules on rewards: each way to go wrong is planted and named, and a run that learns is told nothing."""

import pytest

from burnish_engine.contract.recipe.recipe_reinforce import ReinforceSection
from burnish_engine.contract.run.events import JudgedReply, RewardsGiven
from burnish_engine.contract.wording.tables import CHECKS
from burnish_engine.train.guard.reward_watch import CONSTANT, RECENT, RewardState, RewardWatch

ROUNDS = 3 * RECENT


def given(number, **changes):
    values = {
        "step": number, "reward": 0.2 + 0.02 * number, "spread": 0.3, "replies": 16, "groups": 4, "dropped_groups": 1,
        "reply_tokens": 20.0, "cut_replies": 1, "entropy": 1.0, "written_s": 1.0, "judged_s": 0.1,
        "best": JudgedReply(prompt="2 + 2?", reply="Four! Four!", reward=1.0),
    }  # fmt: skip
    return RewardsGiven(**values | changes)


def told(events, scores=(), **settings):
    """Checks that speak over some rounds, with scores after the rounds of these numbers."""
    watch, found, scores = RewardWatch(ReinforceSection(**settings)), [], dict(scores)
    for number, event in enumerate([None, *events]):
        if event is not None:
            found += watch.rewarded(event)
        if number in scores:
            found += watch.scored(scores[number])
    return watch, found


def test_a_run_that_learns_is_told_nothing():
    rising = [given(number, entropy=1.0 - 0.02 * number) for number in range(1, ROUNDS + 1)]
    watch, found = told(rising, {0: 0.1, 5: 0.3, 10: 0.3, 15: 0.5})
    assert found == []
    assert watch.evaluated(0.1) == watch.evaluated(0.2) == []
    assert set(watch.seen()) == {
        "reward_constant", "groups_equal", "reward_tricked", "length_runs", "entropy_collapses", "kl_explodes",
    }  # fmt: skip
    assert set(watch.seen()) <= set(CHECKS)


def test_a_reward_that_never_differs_ends_the_run():
    same = [given(number, reward=0.5, spread=0.0, dropped_groups=4) for number in range(1, CONSTANT + 1)]
    found = told(same)[1]
    assert [(one.check, one.stops) for one in found] == [("reward_constant", True)]
    assert not told([*same[:-1], given(CONSTANT, reward=0.6, spread=0.0)])[1]


def test_groups_without_differences_are_told_once_there_are_enough_rounds():
    equal = [given(number, dropped_groups=4) for number in range(1, RECENT + 1)]
    assert [one.check for one in told(equal)[1]] == ["groups_equal"]
    assert not told(equal[:-1])[1]


def test_a_reward_that_rises_without_the_score_is_named_with_such_a_reply():
    rising = [given(number, reward=0.05 * number) for number in range(1, ROUNDS + 1)]
    found = told(rising, {0: 0.2, 10: 0.2, 15: 0.1})[1]
    assert [one.check for one in found] == ["reward_tricked"]
    assert "Four! Four!" in found[0].sentence
    assert not told(rising, {0: 0.2, 10: 0.2, 15: 0.3})[1]  # the score rose after all
    flat = [given(number, reward=0.2) for number in range(1, ROUNDS + 1)]
    assert not told(flat, {0: 0.2, 10: 0.2, 15: 0.2})[1]  # nothing was earned


def test_replies_that_grow_until_they_are_cut_are_told():
    growing = [given(number, reply_tokens=5.0 * number, cut_replies=min(number, 16)) for number in range(1, ROUNDS + 1)]
    assert {one.check for one in told(growing)[1]} == {"length_runs"}
    longer = [given(number, reply_tokens=5.0 * number) for number in range(1, ROUNDS + 1)]
    assert not told(longer)[1]  # they end by themselves


def test_an_entropy_that_collapses_is_told():
    falling = [given(number, entropy=1.0 / number**2) for number in range(1, ROUNDS + 1)]
    assert {one.check for one in told(falling)[1]} == {"entropy_collapses"}


@pytest.mark.parametrize("where", ["replies", "held-out rows"])
def test_a_divergence_above_the_bound_is_told(where):
    watch = RewardWatch(ReinforceSection(kl_weight=0.1, kl_bound=0.5))
    found = watch.rewarded(given(1, kl=0.6)) if where == "replies" else watch.evaluated(0.6)
    assert [one.check for one in found] == ["kl_explodes"]
    assert not (watch.rewarded(given(2, kl=0.4)) if where == "replies" else watch.evaluated(0.4))


def test_the_state_survives_a_checkpoint():
    events = [given(number) for number in range(1, ROUNDS + 1)]
    watch, _ = told(events, {0: 0.1})
    assert RewardState.model_validate_json(watch.state.model_dump_json()) == watch.state
