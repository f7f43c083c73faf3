"""Three lengths of a run, made from a suggestion."""

import pytest

from burnish_app.recipe.presets import PRESETS, PresetBasis, chosen_preset, preset_text, quick_steps, with_preset
from burnish_engine.contract.recipe.recipe import Recipe

SUGGESTED = Recipe.model_validate(
    {"train": {"epochs": 3.0, "learning_rate": 1e-4}, "evaluation": {"every": 40, "patience": 6}}
)
BASIS = PresetBasis(SUGGESTED, steps=400, has_held_out=True)
OWN = SUGGESTED.model_copy(update={"name": "mine", "adapter": SUGGESTED.adapter.model_copy(update={"rank": 48})})


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("steps", [None, 1, 12, 400, 10**6])
def test_every_preset_is_a_valid_recipe_that_keeps_all_else(preset, steps):
    basis = PresetBasis(SUGGESTED, steps, has_held_out=True)
    made = with_preset(OWN, preset, basis)
    assert Recipe.model_validate(made.model_dump()) == made
    assert (made.name, made.adapter, made.data, made.train.learning_rate) == ("mine", OWN.adapter, OWN.data, 1e-4)
    assert chosen_preset(made, basis) == preset


def test_the_presets_are_ordered_by_how_long_they_train():
    quick, balanced, best = (with_preset(OWN, preset, BASIS) for preset in PRESETS)
    assert 0 < quick.train.max_steps < 400
    assert (quick.evaluation.every, quick.evaluation.patience) == (0, 0), "it is over too soon for evaluations"
    assert balanced.train.epochs == 3.0
    assert best.train.epochs > balanced.train.epochs
    assert best.train.max_steps == balanced.train.max_steps == 0
    assert best.evaluation.patience * best.evaluation.every < 400, "it can stop before the suggested end"
    assert with_preset(best, "balanced", BASIS) == OWN


def test_a_quick_look_is_shorter_than_a_short_run():
    assert quick_steps(None) == quick_steps(10_000)
    assert [quick_steps(steps) for steps in (1, 12, 119, 10_000)] == [1, 3, 29, 30]


def test_each_preset_says_how_long_it_trains():
    assert ["30 steps" in preset_text("quick", BASIS), "3 epochs" in preset_text("balanced", BASIS)] == [True, True]
    assert "6 epochs" in preset_text("best", BASIS)


def test_without_held_out_rows_there_is_no_best():
    basis = PresetBasis(SUGGESTED, steps=400, has_held_out=False)
    assert with_preset(OWN, "best", basis) == with_preset(OWN, "balanced", basis)
    assert chosen_preset(with_preset(OWN, "best", basis), basis) == "balanced"
    assert "held-out" in preset_text("best", basis)


def test_values_of_ones_own_are_no_preset():
    train = SUGGESTED.train.model_copy(update={"epochs": 7.0})
    assert chosen_preset(SUGGESTED.model_copy(update={"train": train}), BASIS) is None
