"""Every family of mixtures is suggested, planned, judged and exported with words on its experts."""

from functools import cache

import pytest

from burnish_engine.advise.facts.catalog import catalog
from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.advise.predict.on_target import on_target
from burnish_engine.advise.suggest.rank import judge_all
from burnish_engine.advise.suggest.suggest import TrainingGoal, chosen_model, suggest
from burnish_engine.contract.facts.exports import export_text
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.models.families.adapter_targets import expert_rank

from support.machines.advice import CHATS, DESKTOP, GIB, LAPTOP, machine, remembered_fits

MIXTURES = {model.spec.family: model for model in catalog() if model.spec.num_experts}
CARDS = (8, 24)


@pytest.fixture(scope="module", autouse=True)
def fits():
    with remembered_fits():
        yield


def card(gib):
    return machine(("NVIDIA GeForce RTX 4090", gib, (8, 9)), ram_gib=64)


@cache
def suggestion(family, gib):
    chosen = chosen_model(MIXTURES[family].name, catalog(), ())
    goal = TrainingGoal(target=DESKTOP, data=["/d/a.jsonl"], dataset=CHATS, model=chosen)
    return suggest(card(gib), catalog(), goal)


def each(test):
    """Run a test for each family on each card."""
    return pytest.mark.parametrize("gib", CARDS)(pytest.mark.parametrize("family", MIXTURES)(test))


def test_the_catalog_has_every_family():
    assert set(MIXTURES) == {
        "qwen3_moe", "qwen3_5_moe_text", "gpt_oss", "olmoe", "mixtral", "lfm2_moe", "granitemoe", "mellum",
        "gemma4_text",
    }  # fmt: skip


@pytest.mark.quick_cases(1)
@each
def test_a_suggestion_gives_the_experts_rank_its_reason(family, gib):
    found, spec = suggestion(family, gib), MIXTURES[family].spec
    (choice,) = (one for one in found.choices if one.key == "adapter.expert_rank")
    rank = expert_rank(parse_recipe(found.recipe).adapter, spec.experts_per_token)
    assert f"rank {rank}" in choice.reason
    assert f"visits {spec.experts_per_token}" in choice.reason


@each
def test_a_plan_counts_experts_and_their_adapters(family, gib):
    found, spec = suggestion(family, gib), MIXTURES[family].spec
    plan, sizes = found.plan, {part.name: part.bytes for part in found.plan.memory}
    assert plan.fits
    assert plan.memory_plan is not None  # the fast engine's
    assert plan.memory_bytes <= gib * GIB
    assert sizes["expert adapters"] > sizes["adapter"]
    on_host = len(plan.memory_plan.layers_on_host)
    if on_host < spec.num_layers:
        assert sizes["experts"] > sizes["base weights"]
    else:
        assert sizes["experts"] < sizes["streamed weights"]  # in host memory but for two layers
    assert {kind.kind: kind.reached == kind.weights for kind in plan.coverage.kinds}.items() >= {
        ("experts", True), ("router", False),
    }  # fmt: skip
    (note,) = (one for one in plan.notes if "expert" in one)
    assert f"{spec.experts_per_token} experts" in note


@pytest.mark.full
@pytest.mark.parametrize("family", [name for name in MIXTURES if name != "granitemoe"])  # small: any rank fits
def test_a_rank_that_is_too_large_for_the_card_is_refused_with_one_that_fits(family):
    """Adapters of sixteen times the suggested rank take more than the card, Mixtral's copies in 16 bits alone."""
    recipe, spec = parse_recipe(suggestion(family, 8).recipe), MIXTURES[family].spec
    large = 16 * expert_rank(recipe.adapter, spec.experts_per_token)

    def planned(rank):
        adapter = recipe.adapter.model_copy(update={"expert_rank": rank})
        return plan_run(recipe.model_copy(update={"adapter": adapter}), spec, card(8))

    refused = planned(large)
    assert not refused.fits
    words = refused.problems[0].partition("adapter.expert_rank: ")[2].split()
    assert planned(int(words[0])).fits


@pytest.mark.full
@pytest.mark.parametrize("family", MIXTURES)
@pytest.mark.parametrize("target", [LAPTOP, DESKTOP], ids=["laptop", "desktop"])
def test_a_verdict_goes_by_the_file_that_the_target_would_run(family, target):
    """A laptop of 16 GiB runs an 8B, and not a 20B; what it cannot run is told with its size."""
    (judged,) = (one.ranked for one in judge_all(card(24), [MIXTURES[family]], target))
    runs = on_target(MIXTURES[family].spec, target)
    large = target is LAPTOP and family in {"qwen3_moe", "qwen3_5_moe_text", "mixtral", "gpt_oss", "gemma4_text"}
    assert judged.verdict == ("too_big_for_target" if large else "good")
    assert (judged.run_bytes, judged.quant) == (runs.run_bytes, runs.quant)
    assert ("to run" if large else "Trains here") in judged.reason


@each
def test_the_trained_mixture_goes_everywhere(family, gib):
    """Its experts' adapters are merged, or added by llama.cpp."""
    exports = suggestion(family, gib).plan.exports
    assert {one.kind for one in exports if one.works} == {
        "gguf", "ollama", "lmstudio", "safetensors", "adapter", "lora-gguf",
    }  # fmt: skip
    assert "not" not in export_text(exports).split()
