"""Effects of a duel's factors: what made-up runs with known effects give."""

import math

import pytest

from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.duel.report.overview import _pairs
from burnish_engine.duel.report.report import render
from burnish_engine.duel.verdict.effects import contrast_by_seed, effect_contrasts
from burnish_engine.duel.verdict.verdict import headline

from support.runs.duels import duel_of, outcome

TRIED = [
    SweepSetting(key="masking.kind", values=["off", "magma"]),
    SweepSetting(key="train.schedule", values=["cosine", "wsd"]),
]
NAMES = ("masking off, schedule cosine", "masking off, schedule wsd", "masking magma, schedule cosine",
         "masking magma, schedule wsd")  # fmt: skip
NOISE = {1: (0.001, 0.0, 0.0, 0.0), 2: (0.0, 0.001, 0.0, 0.0), 3: (0.0, 0.0, 0.001, 0.0)}


def runs(masking=0.0, schedule=0.0, interaction=0.0, **changes):
    """Four sides over three seeds, which differ much from each other, with these effects."""
    return [
        outcome(
            side,
            2.0 + 0.3 * seed + masking * (side // 2) + schedule * (side % 2) + interaction * (side == 3)
            + NOISE[seed][side],
            seed=seed,
            **changes,
        )
        for seed in (1, 2, 3)
        for side in range(4)
    ]  # fmt: skip


def judged(outcomes):
    state = duel_of(outcomes, names=NAMES, tried=TRIED)
    return state, [one for one in state.verdicts if one.measure == "held_out_loss"]


def test_known_effects_are_found_between_seeds_that_differ_more():
    _, (masking, schedule, both) = judged(runs(masking=-0.05, schedule=0.02))
    assert masking.difference == pytest.approx(-0.05, abs=0.001)
    assert schedule.difference == pytest.approx(0.02, abs=0.001)
    assert both.difference == pytest.approx(0.0, abs=0.002)
    assert masking.better == "masking magma"
    assert schedule.better == "schedule cosine"
    assert both.kind == "not distinguishable"


def test_an_interaction_is_the_difference_of_an_effect_at_two_values():
    _, (masking, _, both) = judged(runs(masking=-0.05, interaction=0.04))
    assert masking.difference == pytest.approx(-0.03, abs=0.001), "the mean of -0.05 and -0.01"
    assert both.difference == pytest.approx(0.04, abs=0.002)
    assert both.better == "the effect of masking magma with schedule cosine"
    assert "perplexity" not in both.text


def test_a_diverged_run_leaves_its_effects_without_a_mean():
    outcomes = [one for one in runs() if (one.spec.side, one.spec.seed) != (3, 2)]
    _, verdicts = judged([*outcomes, outcome(3, 0.0, seed=2, diverged=True)])
    assert [one.difference for one in verdicts] == [None] * 3
    assert [one.diverged for one in verdicts] == [(1, 0)] * 3
    assert not any(one.kind == "winner" for one in verdicts)
    assert "masking magma: 1 of 6 runs diverged, masking off: 0 of 6" in verdicts[0].text
    assert "1 of 12 runs diverged" in verdicts[2].text


def test_an_effect_that_diverges_with_every_one_of_six_seeds_is_no_chance():
    outcomes = [outcome(side, 2.0, seed=seed, diverged=side == 2) for seed in range(1, 7) for side in range(4)]
    _, (masking, schedule, both) = judged(outcomes)
    assert (masking.better, schedule.better) == ("masking off", "schedule wsd")
    assert both.better == "the effect of masking magma with schedule wsd"
    assert "12 runs diverged" in masking.text
    _, verdicts = judged([one for one in outcomes if one.spec.seed <= 5])
    assert not any(one.winner is not None for one in verdicts), "five seeds are too few for a sign test"


def test_speed_is_compared_by_ratios_and_has_no_interactions():
    outcomes = [
        one.model_copy(
            update={"tokens_per_s": 50.0 * (1.2 if one.spec.side % 2 else 1.0) * (1 + 0.001 * one.spec.seed)}
        )
        for one in runs()
    ]
    state, _ = judged(outcomes)
    masking, schedule = (one for one in state.verdicts if one.measure == "tokens_per_s")
    assert schedule.difference == pytest.approx(0.2)
    assert masking.kind == "equal"
    assert _pairs(state, schedule) == pytest.approx([0.2] * 3)


def test_the_report_and_the_headline_name_the_factors():
    state, _ = judged(runs(masking=-0.05))
    assert "masking magma has a lower held-out loss than masking off" in headline(state.verdicts)
    page = render(state)
    assert "<h1>masking x schedule</h1>" in page
    assert "the effect of masking magma with schedule wsd" in page
    assert "worse only if" not in page, "effects are not judged side by side"
    assert state.level == state.options.level, "each effect has an interval of its own"


@pytest.mark.parametrize("factors", [1, 2, 3])
def test_contrasts_see_their_own_effect_alone(factors):
    tried = [SweepSetting(key=f"train.{name}", values=[0, 1]) for name in "abc"[:factors]]
    contrasts = effect_contrasts(tried)
    assert len(contrasts) == factors + math.comb(factors, 2)
    for one in contrasts:
        assert sum(one.weights) == 0
        for other in contrasts:
            dot = sum(a * b for a, b in zip(one.weights, other.weights, strict=True))
            assert (dot == 0) == (one is not other)


def test_a_seed_that_a_side_lacks_counts_for_none():
    assert contrast_by_seed([1, -1], [{1: 2.0, 2: 3.0}, {2: 1.0}], ratio=False) == [2.0]
