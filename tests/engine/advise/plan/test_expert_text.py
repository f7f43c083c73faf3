"""A plan's sentences on experts name their adapters' rank, its reason, its memory, and a rank that fits."""

import pytest

from burnish_engine.advise.facts.catalog import find_model
from burnish_engine.advise.facts.engine_choice import EngineChoice
from burnish_engine.advise.facts.planned_run import PlannedDevice, PlannedRun
from burnish_engine.advise.plan.expert_text import expert_bytes, expert_notes, fitting_rank
from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.units import memory_size

from support.advice import machine

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
    assert fitting_rank(planned(targets=["q_proj"]), 1) == 0


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


def test_the_rank_that_fits_is_the_largest_that_does():
    run, step = planned(expert_rank=16), 629_145_600 // 16 * 18
    assert fitting_rank(run, 1) == 15
    assert fitting_rank(run, 3 * step) == 13
    assert fitting_rank(run, 3 * step + 1) == 12
    assert fitting_rank(run, 15 * step + 1) == 0


@pytest.mark.parametrize("gib", [20, 22])
def test_a_plan_that_is_too_large_by_its_experts_adapters_names_a_rank_that_fits(gib):
    here = machine(("NVIDIA GeForce RTX 4090", gib, (8, 9)), ram_gib=8)
    recipe = {"model": {"quantize": "nf4"}, "train": {"micro_batch_tokens": 512}, "data": {"max_length": 512}}

    def plan(**adapter):
        return plan_run(Recipe.model_validate(recipe | {"adapter": adapter}), QWEN, here)

    refused = plan(expert_rank=16)
    assert not refused.fits
    (rank,) = (int(word) for word in refused.problems[0].replace(":", " ").split() if word.isdigit())
    assert "adapter.expert_rank" in refused.problems[0]
    assert plan(expert_rank=rank).fits


def test_what_is_trained_is_not_told_as_base_weights():
    """Copies of rank 256 on all experts are 19 GiB, and the frozen weights would find room in system memory."""
    here = machine(("NVIDIA GeForce RTX 4090", 8, (8, 9)), ram_gib=64)
    recipe = {"model": {"quantize": "nf4"}, "adapter": {"rank": 256, "expert_rank": 256}}
    problem = plan_run(Recipe.model_validate(recipe), QWEN, here).problems[0]
    assert "adapter.expert_rank" in problem
    assert "smaller model" not in problem
