"""A plan's sentences on experts name their adapters' rank, its reason, its memory, and a rank that fits."""

import pytest

from burnish_engine.advise.facts.catalog import find_model
from burnish_engine.advise.facts.engine_choice import EngineChoice
from burnish_engine.advise.facts.planned_run import PlannedDevice, PlannedRun
from burnish_engine.advise.plan.expert_text import (
    adapter_bytes,
    expert_bytes,
    expert_notes,
    fitting_rank,
    rank_of_experts,
)
from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.contract.facts.advice import FittingRank
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.contract.units import memory_size

from support.machines.advice import machine

GIB = 2**30
QWEN = find_model("Qwen/Qwen3-30B-A3B").spec


def planned(*, fast=True, spec=QWEN, **adapter):
    recipe = Recipe.model_validate({"adapter": adapter})
    return PlannedRun(recipe, spec, None, PlannedDevice(True, 0, "bf16"), EngineChoice(fast, nf4=True), None)


def test_the_full_rank_on_all_experts_takes_about_ten_gibibytes():
    """629 million weights: fp32, gradient and two moments, and a copy in bf16."""
    run = planned()
    assert expert_bytes(run, 16) == 629_145_600 * (16 + 2)
    assert expert_bytes(run, 2) * 8 == expert_bytes(run, 16)
    assert expert_bytes(planned(fast=False), 16) == 629_145_600 * 16  # the plain engine computes with the fp32 ones


def test_the_note_has_the_rank_its_reason_and_what_the_full_one_takes():
    (note,) = expert_notes(planned())
    for words in ("rank 2", "8 experts", "rank 16", memory_size(expert_bytes(planned(), 16)), "adapter.expert_rank"):
        assert words in note
    (chosen,) = expert_notes(planned(expert_rank=16))
    assert "rank 16" in chosen
    assert "shared out" not in chosen


def test_experts_without_adapters_are_told():
    (note,) = expert_notes(planned(targets=["q_proj"]))
    assert "as they are" in note
    assert rank_of_experts(planned(targets=["q_proj"])) == 0
    assert rank_of_experts(planned()) == 2


def test_a_rank_of_experts_that_nothing_has_is_told():
    dense = find_model("Qwen/Qwen3-0.6B").spec
    for run in (planned(spec=dense, expert_rank=4), planned(targets=["q_proj"], expert_rank=4)):
        (note,) = expert_notes(run)
        assert "adapter.expert_rank" in note
    for run in (planned(spec=dense), planned(spec=dense, fast=False)):
        assert expert_notes(run) == []
    assert "adapter.expert_rank" not in expert_notes(planned(targets=["q_proj"]))[0]


def test_every_weight_trained_has_no_rank():
    assert expert_notes(planned(method="full")) == []


def test_the_whole_adapter_is_that_of_the_experts_and_that_of_attention():
    run, without = planned(expert_rank=16), planned(expert_rank=16, targets=["q_proj", "k_proj", "v_proj", "o_proj"])
    assert adapter_bytes(run) == expert_bytes(run, 16) + adapter_bytes(without)
    assert adapter_bytes(planned(method="full")) == 0


# Two adapters that were refused without a number before: what else is adapted at rank 256 leaves no room for experts,
# and layers in system memory make room for more than the first plan lets one think.
@pytest.mark.full
@pytest.mark.parametrize(
    ("gib", "ram_gib", "adapter", "key"),
    [
        (24, 8, {"expert_rank": 16}, "adapter.expert_rank"), (24, 8, {"rank": 256}, "adapter.expert_rank"),
        (24, 8, {"rank": 256, "expert_rank": 256}, "adapter.expert_rank"), (6, 32, {"rank": 256}, "adapter.rank"),
        (8, 32, {"rank": 64, "expert_rank": 64}, "adapter.expert_rank"),
        (12, 16, {"rank": 256, "expert_rank": 256}, "adapter.rank"),
    ],
)  # fmt: skip
def test_a_plan_that_is_too_large_by_its_adapter_names_the_largest_rank_that_fits(gib, ram_gib, adapter, key):
    refused = plan_on(gib, ram_gib, **adapter)
    found = refused.fitting_rank
    assert not refused.fits
    assert found.key == key
    assert f"{key}: {found.rank} " in refused.problems[0]
    assert memory_size(refused.adapter_bytes) in refused.problems[0]
    lowered = {"rank": 256, **adapter, "expert_rank": 0} if found.clears_expert_rank else adapter
    name = key.removeprefix("adapter.")
    fits = [lacks_no_memory(plan_on(gib, ram_gib, **lowered | {name: found.rank + more})) for more in (0, 1)]
    assert fits == [True, False]


@pytest.mark.full
@pytest.mark.parametrize("gib", [6, 12, 16])
def test_a_plan_that_no_rank_makes_fit_says_what_its_adapter_takes(gib):
    """In system memory there is no room for layers either."""
    refused = plan_on(gib, 8, rank=64)
    assert refused.fitting_rank is None
    assert memory_size(refused.adapter_bytes) in refused.problems[0]
    assert "fits" not in refused.problems[0]


def test_a_plan_beyond_its_budget_names_the_rank_that_keeps_it():
    refused = plan_on(24, 64, budget_gib=8, expert_rank=16)
    rank = refused.fitting_rank.rank
    assert f"adapter.expert_rank: {rank} " in refused.problems[0]
    assert memory_size(refused.adapter_bytes) in refused.problems[0]
    assert [plan_on(24, 64, budget_gib=8, expert_rank=rank + more).fits for more in (0, 1)] == [True, False]


def plan_on(gib, ram_gib, *, budget_gib=0, **adapter):
    here = machine(("NVIDIA GeForce RTX 4090", gib, (8, 9)), ram_gib=ram_gib)
    recipe = {"model": {"quantize": "nf4"}, "adapter": adapter, "memory": {"budget_gib": budget_gib}}
    return plan_run(Recipe.model_validate(recipe), QWEN, here)


def lacks_no_memory(plan):
    """A plan of large checkpoints may lack room on the disk all the same."""
    return not any("memory and" in problem for problem in plan.problems)


@pytest.mark.full
def test_what_is_trained_is_not_told_as_base_weights():
    """Copies of rank 256 on all experts are 19 GiB, and the frozen weights would find room in system memory."""
    here = machine(("NVIDIA GeForce RTX 4090", 8, (8, 9)), ram_gib=64)
    recipe = {"model": {"quantize": "nf4"}, "adapter": {"rank": 256, "expert_rank": 256}}
    problem = plan_run(Recipe.model_validate(recipe), QWEN, here).problems[0]
    assert "adapter.expert_rank" in problem
    assert "fits" in problem


def fitting(room, of_experts=0, **adapter):
    section = AdapterSection(**adapter)
    return fitting_rank(section, of_experts, lambda tried: tried.rank + 8 * tried.expert_rank <= room)


@pytest.mark.parametrize(("room", "rank"), [(96, 10), (103, 10), (24, 1), (143, 15), (400, 15)])
def test_the_rank_of_experts_is_lowered_first(room, rank):
    assert fitting(room, 16, rank=16, expert_rank=16) == FittingRank(key="adapter.expert_rank", rank=rank)


def test_the_rank_of_all_is_lowered_where_that_of_experts_is_not_enough():
    cleared = FittingRank(key="adapter.rank", rank=9, clears_expert_rank=True)
    assert fitting(9, 16, rank=16, expert_rank=16) == cleared
    assert fitting(9, 2, rank=16) == FittingRank(key="adapter.rank", rank=9)


def test_a_dense_model_has_one_rank():
    assert fitting(9, rank=16) == FittingRank(key="adapter.rank", rank=9)


@pytest.mark.parametrize("adapter", [{"method": "full"}, {"start": "runs/first"}])
def test_a_recipe_that_chooses_no_rank_has_none_that_fits(adapter):
    assert fitting(9, 2, **adapter) is None


def test_no_rank_fits_where_rank_one_does_not():
    assert fitting(0, 2, rank=16) is None
    assert fitting(0, 1, rank=1) is None
