"""A sweep's recipes: every combination once, in order, and nothing that makes no sense."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.sweep import (
    MAX_RUNS,
    SweepSetting,
    expand,
    parse_values,
    sweepable_keys,
    value_text,
    with_values,
)

RATES = SweepSetting(key="train.learning_rate", values=[1e-4, 3e-4])
RANKS = SweepSetting(key="adapter.rank", values=[8, 16, 32])


def test_every_combination_is_made_once_and_the_first_setting_changes_slowest():
    base = Recipe(name="support")
    cells = expand(base, [RATES, RANKS])
    assert [(cell.recipe.train.learning_rate, cell.recipe.adapter.rank) for cell in cells] == [
        (rate, rank) for rate in (1e-4, 3e-4) for rank in (8, 16, 32)
    ]
    assert [cell.values for cell in cells] == [[rate, rank] for rate in (1e-4, 3e-4) for rank in (8, 16, 32)]
    assert len({cell.recipe.name for cell in cells}) == 6
    changed = cells[0].recipe.model_copy(update={"name": base.name, "train": base.train, "adapter": base.adapter})
    assert changed == base


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "1 to 3 settings"),
        ([RATES, RANKS, SweepSetting(key="train.seed", values=[1]), SweepSetting(key="train.pack", values=[True])],
         "1 to 3 settings"),
        ([RATES, RATES], "twice"),
        ([RATES, SweepSetting(key="adapter.rank", values=[])], "adapter.rank has no values"),
        ([SweepSetting(key="adapter.rnk", values=[8])], "adapter.rnk"),
        ([SweepSetting(key="train", values=[8])], "cannot vary"),
        ([SweepSetting(key="adapter.rank", values=list(range(1, MAX_RUNS + 2)))], f"at most {MAX_RUNS}"),
        ([SweepSetting(key="adapter.rank", values=[8, 8])], "8 twice"),
        ([SweepSetting(key="data.files", values=["a"])], "cannot vary"),
        ([SweepSetting(key="no.such", values=[1])], "cannot vary"),
        ([SweepSetting(key="adapter.rank", values=[0])], "rank 0"),
        ([SweepSetting(key="train.seed", values=list(range(33))), SweepSetting(key="train.pack", values=[True, False])],
         f"at most {MAX_RUNS}"),
    ],
)  # fmt: skip
def test_what_is_no_sweep_is_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        expand(Recipe(), settings)


def test_the_largest_sweep_is_made():
    seeds = SweepSetting(key="train.seed", values=list(range(MAX_RUNS)))
    assert len(expand(Recipe(), [seeds])) == MAX_RUNS


@pytest.mark.parametrize(
    ("key", "text", "values"),
    [
        ("train.learning_rate", "1e-4, 0.0003 ,", [1e-4, 3e-4]),
        ("adapter.rank", "8,16", [8, 16]),
        ("train.pack", "true, off", [True, False]),
        ("train.optimizer", "adamw, lion", ["adamw", "lion"]),
    ],
)
def test_typed_lists_become_values_of_the_setting_s_kind(key, text, values):
    parsed = parse_values(key, text)
    assert parsed == values
    assert [type(value) for value in parsed] == [type(value) for value in values]
    back = SweepSetting.model_validate_json(SweepSetting(key=key, values=parsed).model_dump_json())
    assert [type(value) for value in back.values] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("key", "text"),
    [("adapter.rank", "8.5"), ("adapter.rank", " , "), ("train.learning_rate", "inf"), ("train.optimizer", "sgd"),
     ("model.path", "x")],
)  # fmt: skip
def test_a_value_of_another_kind_is_refused(key, text):
    with pytest.raises(UsageError, match=key):
        parse_values(key, text)


def test_a_key_that_was_mistyped_is_answered_with_the_nearest():
    with pytest.raises(UsageError) as refused:
        parse_values("adapter.rnk", "8")
    assert "adapter.rank" in refused.value.remedy


def test_every_key_that_may_vary_is_one_of_the_recipe():
    document = Recipe().model_dump()
    for key in sweepable_keys():
        section, _, name = key.partition(".")
        assert name in document[section]


def test_a_changed_recipe_is_named_after_the_change():
    assert with_values(Recipe(name="a"), {"adapter.rank": 4}).name == "a: rank 4"
    assert value_text(1e-4) == "0.0001"
    assert value_text(True) == "true"
