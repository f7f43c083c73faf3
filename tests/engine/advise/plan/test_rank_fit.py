"""The largest rank that fits: of experts where that is enough, else of all; none where the recipe does not choose."""

import pytest

from burnish_engine.advise.plan.rank_fit import fitting_rank
from burnish_engine.contract.facts.advice import FittingRank
from burnish_engine.contract.recipe.recipe_train import AdapterSection


def found(room, of_experts=0, **adapter):
    section = AdapterSection(**adapter)
    return fitting_rank(section, of_experts, lambda tried: tried.rank + 8 * tried.expert_rank <= room)


@pytest.mark.parametrize(("room", "rank"), [(96, 10), (103, 10), (24, 1), (143, 15), (400, 15)])
def test_the_rank_of_experts_is_lowered_first(room, rank):
    assert found(room, 16, rank=16, expert_rank=16) == FittingRank(key="adapter.expert_rank", rank=rank)


def test_the_rank_of_all_is_lowered_where_that_of_experts_is_not_enough():
    cleared = FittingRank(key="adapter.rank", rank=9, clears_expert_rank=True)
    assert found(9, 16, rank=16, expert_rank=16) == cleared
    assert found(9, 2, rank=16) == FittingRank(key="adapter.rank", rank=9)


def test_a_dense_model_has_one_rank():
    assert found(9, rank=16) == FittingRank(key="adapter.rank", rank=9)


@pytest.mark.parametrize("adapter", [{"method": "full"}, {"start": "runs/first"}])
def test_a_recipe_that_chooses_no_rank_has_none_that_fits(adapter):
    assert found(9, 2, **adapter) is None


def test_no_rank_fits_where_rank_one_does_not():
    assert found(0, 2, rank=16) is None
    assert found(0, 1, rank=1) is None
