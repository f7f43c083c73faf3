"""The pass that memory is planned for, and the plan that a run falls back to when not even its smallest one fits."""

import numpy as np
import pytest

from burnish_engine.advise.facts.shape import embedding_parameters
from burnish_engine.advise.predict.fast_shape import hosted_layer
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.recipe.memory_plan import MemoryPlan, MemorySection, weight_places
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.fast.memory_choice import largest_pass, with_weights_on_host

SPEC = shape("llama-3.1-8b")
PLAN = MemoryPlan(layers=("input",) * 32, head_rows=256)
BLOCK = hosted_layer(SPEC, Recipe().adapter, SPEC.layers[0], "bf16", nf4=True).block
TABLES = 2 * 2 * embedding_parameters(SPEC)


def fallback(room, plan=PLAN, ranks=1, **memory):
    recipe = Recipe(memory=MemorySection(**memory))
    return with_weights_on_host(plan, recipe, SPEC, room=room, precision="bf16", nf4=True, ranks=ranks)


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


@pytest.mark.parametrize(("blocks", "layers"), [(0, 0), (20.5, 20), (100, 32)])
def test_several_processes_share_what_finds_no_room(blocks, layers):
    plan = fallback(TABLES + int(blocks * BLOCK), ranks=2)
    assert len(plan.layers_on_host) == layers
    assert len(plan.layers_on_ranks) == 32 - layers


@pytest.mark.parametrize("weights", ["card", "card:30,host"])
def test_pinned_weights_stay(weights):
    assert len(fallback(1 << 50, weights=weights).layers_on_host) == (2 if "host" in weights else 0)


def test_the_largest_pass_is_described_by_its_rows():
    rows = [
        Document(np.arange(tokens, dtype=np.int32), np.arange(tokens) >= tokens - learned, 0, "")
        for tokens, learned in ((60, 5), (10, 5), (100, 20))
    ]
    section = TrainSection(micro_batch_tokens=4096)
    found = largest_pass(section, BatchStream(rows, section))
    assert (found.tokens, found.supervised_tokens, found.longest) == (170, 30, 100)
    assert 170 <= found.bucket < 4096
    assert found.span == pytest.approx((60**2 + 10**2 + 100**2) / 170)
