"""The guard's rules on the figures of preferences: what is told, what is not, and that no run fails for it."""

from __future__ import annotations

import pytest

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.run.events import EvaluationDone
from burnish_engine.contract.wording.tables import CHECKS
from burnish_engine.train.base.engine import PreferenceFigures, StepResult
from burnish_engine.train.guard.preference_watch import (
    FALL,
    FAR,
    LOW_ACCURACY,
    RECENT,
    SATURATED,
    PreferenceState,
    PreferenceWatch,
)

WARMUP = 4


def step(number, margin=0.0, accuracy=0.6, kl=None, *, taken=True):
    figures = PreferenceFigures(margin, accuracy, -20.0, -30.0, 0.7, None, kl)
    return StepResult(number, 1, 200, 100, 0.7, 1.0, 1e-5, taken, 1.0, 0.1, figures)


def evaluation(number, chosen=-20.0, kl_to_base=0.0):
    return EvaluationDone(step=number, loss=0.7, tokens=9, seconds=0.1, chosen_log_prob=chosen, kl_to_base=kl_to_base)


def watch(objective="dpo", **settings):
    return PreferenceWatch(PreferenceSection(objective=objective, **settings), WARMUP)


def told(observer, steps):
    return [(one.step, finding.check) for one in steps for finding in observer.step(one)]


def rising(count, **figures):
    return [step(number, margin=0.01 * number, **figures) for number in range(1, count + 1)]


def test_a_run_that_learns_what_it_should_is_told_nothing():
    observer = watch()
    assert told(observer, rising(WARMUP + 3 * RECENT)) == []
    assert [observer.evaluated(evaluation(number, -20.0 - number)) for number in range(3)] == [[], [], []]
    assert set(observer.seen()) == {"swapped_labels", "flat_margin", "chosen_falls", "kl_explodes"}
    assert set(observer.seen()) <= set(CHECKS)
    assert watch("sft").seen() == []


def test_an_accuracy_below_half_is_told_once_there_are_enough_steps_after_the_warm_up():
    found = told(watch(), rising(WARMUP + RECENT, accuracy=LOW_ACCURACY - 0.01))
    assert found == [(WARMUP + RECENT, "swapped_labels")]
    assert told(watch(), rising(WARMUP + 2 * RECENT, accuracy=LOW_ACCURACY + 0.01)) == []
    warming = [step(number, 0.01 * number, accuracy=0.0) for number in range(1, WARMUP + 1)]
    assert told(watch(), [*warming, *rising(WARMUP + RECENT)[WARMUP:]]) == []


@pytest.mark.parametrize("objective", ["orpo", "simpo", "kto"])
def test_without_a_neutral_start_a_low_accuracy_says_nothing(objective):
    assert told(watch(objective), rising(WARMUP + 3 * RECENT, accuracy=0.1)) == []


def test_a_margin_that_stays_is_told_and_one_that_grows_is_not():
    flat = [step(number, margin=0.1) for number in range(1, WARMUP + 2 * RECENT + 1)]
    assert told(watch("simpo"), flat) == [(WARMUP + 2 * RECENT, "flat_margin")]
    assert told(watch("simpo"), rising(WARMUP + 2 * RECENT)) == []
    missing = [step(number, margin=None) for number in range(1, WARMUP + 3 * RECENT)]
    assert told(watch("kto"), missing) == []


def test_chosen_replies_that_become_unlikely_are_told():
    observer = watch()
    assert observer.evaluated(evaluation(0, -20.0)) == []
    assert observer.evaluated(evaluation(5, -20.0 * (1 + FALL) + 0.01)) == []
    (finding,) = observer.evaluated(evaluation(10, -20.0 * (1 + FALL) - 0.01))
    assert finding.check == "chosen_falls"
    assert "rpo_alpha" in finding.remedy


def test_a_divergence_that_flattens_the_loss_or_leaves_the_base_far_behind_is_told():
    observer = watch("kto", beta=0.5)
    assert told(observer, [step(1, kl=SATURATED / 0.5 - 0.1)]) == []
    assert told(observer, [step(2, kl=SATURATED / 0.5)]) == [(2, "kl_explodes")]
    assert observer.evaluated(evaluation(1, kl_to_base=FAR)) == []
    assert [one.check for one in observer.evaluated(evaluation(2, kl_to_base=FAR + 0.1))] == ["kl_explodes"]


def test_no_finding_stops_a_run():
    observer = watch("dpo")
    steps = [step(number, margin=0.1, accuracy=0.1) for number in range(1, WARMUP + 2 * RECENT + 1)]
    found = [finding for one in steps for finding in observer.step(one)]
    found += [finding for chosen in (-1.0, -9.0) for finding in observer.evaluated(evaluation(0, chosen, FAR + 1))]
    assert {finding.check for finding in found} == {"swapped_labels", "flat_margin", "chosen_falls", "kl_explodes"}
    assert not any(finding.stops for finding in found)


def test_a_resumed_watch_goes_on_where_it_stood():
    steps = rising(WARMUP + RECENT, accuracy=0.3)
    whole, first = watch(), watch()
    told(first, steps[:10])
    kept = PreferenceState.model_validate_json(first.state.model_dump_json())
    resumed = PreferenceWatch(first.section, WARMUP, kept)
    assert told(resumed, steps[10:]) == told(whole, steps)


def test_steps_that_were_not_taken_do_not_count():
    assert told(watch(), [step(number, accuracy=0.1, taken=False) for number in range(1, 99)]) == []
