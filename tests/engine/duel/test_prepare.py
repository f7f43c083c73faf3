"""Which measure decides a duel, and which recipes share none."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.duel.prepare import judge_of


def recipe(**preference):
    return Recipe.model_validate({"preference": preference, "data": {"max_length": 512}})


@pytest.mark.parametrize(
    ("ours", "theirs", "judge"),
    [
        ({}, {}, "held_out_loss"),
        ({"objective": "dpo"}, {"objective": "dpo"}, "held_out_loss"),
        ({"objective": "dpo"}, {"objective": "dpo", "beta": 0.3}, "pair_error"),
        ({"objective": "dpo"}, {"objective": "orpo"}, "pair_error"),
        ({"objective": "simpo", "beta": 2.0}, {"objective": "orpo"}, "pair_error"),
    ],
)
def test_pairs_decide_where_losses_mean_different_things(ours, theirs, judge):
    assert judge_of([recipe(**ours), recipe(**theirs)], ["a", "b"]) == judge


def test_who_learns_from_other_rows_is_refused_by_name_and_objective():
    with pytest.raises(UsageError) as refused:
        judge_of([recipe(), recipe(objective="dpo")], ["plain", "fancy"])
    assert "plain by sft" in str(refused.value)
    assert "fancy by dpo" in str(refused.value)
