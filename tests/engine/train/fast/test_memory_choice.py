"""The memory plan that a run falls back to when not even its smallest one fits."""

import pytest

from burnish_engine.advise.facts.shape import embedding_parameters
from burnish_engine.advise.predict.fast_shape import hosted_layer
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.recipe.memory_plan import MemoryPlan, weight_places
from burnish_engine.contract.recipe.recipe import MemorySection, Recipe
from burnish_engine.train.fast.memory_choice import with_weights_on_host

SPEC = shape("llama-3.1-8b")
PLAN = MemoryPlan(layers=("input",) * 32, head_rows=256)
BLOCK = hosted_layer(SPEC, Recipe().adapter, SPEC.layers[0].kind, "bf16", nf4=True).block
TABLES = 2 * 2 * embedding_parameters(SPEC)


def fallback(room, plan=PLAN, **memory):
    recipe = Recipe(memory=MemorySection(**memory))
    return with_weights_on_host(plan, recipe, SPEC, room=room, precision="bf16", nf4=True)


@pytest.mark.parametrize(("blocks", "layers"), [(0, 0), (2, 0), (3, 3), (20.5, 20), (100, 32)])
def test_as_many_weights_go_to_host_memory_as_find_room(blocks, layers):
    plan = fallback(TABLES + int(blocks * BLOCK))
    assert len(plan.layers_on_host) == layers
    assert plan.embedding_on_host
    assert plan.head_on_host
    assert plan.layers == PLAN.layers


def test_what_is_there_stays_there():
    plan = PLAN.model_copy(update={"weights": weight_places(range(16), 32)})
    assert fallback(TABLES + 10 * BLOCK, plan).weights == plan.weights


@pytest.mark.parametrize("weights", ["card", "card:30,host"])
def test_pinned_weights_stay(weights):
    assert len(fallback(1 << 50, weights=weights).layers_on_host) == (2 if "host" in weights else 0)
