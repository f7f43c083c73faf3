"""Whether conditions were the same is read from the runs, and a difference ends the duel."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.duel.measures.checks import fairness_checks, refuse_unlike
from burnish_engine.duel.sides.differences import changed_conditions

from support.runs.duels import CONDITIONS, outcome, pairs, sides


def by_what(outcomes):
    return {one.what.partition(":")[0]: one for one in fairness_checks(outcomes, sides("plain", "fancy"))}


def test_equal_conditions_are_all_the_same():
    checks = fairness_checks(pairs([2.0, 2.1, 2.2], [2.3, 2.4, 2.5]), sides("plain", "fancy"))
    assert len(checks) == len(CONDITIONS)
    assert {one.verdict for one in checks} == {"same"}
    refuse_unlike(checks)
    assert fairness_checks([], sides("plain", "fancy")) == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("data", "e" * 64, "its hash differs"),
        ("order", "e" * 64, "its hash differs"),
        ("schedule", "e" * 64, "its hash differs"),
        ("held_out", "9 rows", "8 rows, 90 learned tokens evaluated / 9 rows"),
        ("steps", "9 steps", "10 steps, 1,000 tokens / 9 steps"),
        ("precision", "bf16", "fp32 / bf16"),
        ("device", "Lamp 1", "Lamp 9000, 8.0 GiB, 4 threads / Lamp 1"),
        ("base", "e" * 64, "its hash differs"),
        ("versions", {"burnish": "0.1.0", "torch": "2.14.0", "peft": "1"}, "torch 2.13.0 / 2.14.0, peft none / 1"),
    ],
)
def test_a_condition_that_differs_ends_the_duel_and_is_named(key, value, words):
    runs = [outcome(0, 2.0), outcome(1, 2.0, conditions={key: value})]
    checks = fairness_checks(runs, sides("plain", "fancy"))
    (unlike,) = [one for one in checks if one.verdict == "differs"]
    assert words in unlike.detail
    assert "plain (seed 1) and fancy (seed 1)" in unlike.detail
    with pytest.raises(UsageError, match="not held under the same conditions"):
        refuse_unlike(checks)


def test_a_condition_that_a_factor_changes_has_to_be_the_same_at_each_of_its_values():
    tried = [SweepSetting(key="adapter.rank", values=[4, 8]), SweepSetting(key="train.precision", values=["a", "b"])]
    runs = [outcome(side, 2.0, conditions={"precision": "ab"[side % 2]}) for side in range(4)]
    changed, names = changed_conditions(tried), sides("w", "x", "y", "z")
    assert {one.verdict for one in fairness_checks(runs, names, changed)} == {"same"}
    checks = fairness_checks([*runs[:3], outcome(3, 2.0, conditions={"precision": "fp32"})], names, changed)
    (unlike,) = [one for one in checks if one.verdict == "differs"]
    assert unlike.detail == "b / fp32 in x (seed 1) and z (seed 1)"


def test_data_and_length_may_depend_on_the_seed_but_not_on_the_side():
    runs = [
        outcome(side, 2.0, seed=seed, conditions={"data": str(seed) * 64, "steps": f"{seed} steps"})
        for seed in (1, 2) for side in (0, 1)
    ]  # fmt: skip
    assert {one.verdict for one in fairness_checks(runs, sides("plain", "fancy"))} == {"same"}


def test_a_run_that_broke_off_does_not_tell_its_length():
    runs = [outcome(0, 2.0), outcome(1, 2.0, diverged=True, conditions={"steps": "", "order": "", "schedule": ""})]
    found = by_what(runs)
    assert found["length"].verdict == "unknown"
    assert found["precision"].verdict == "same"
