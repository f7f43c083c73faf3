"""Plans from larger to smaller."""

from itertools import pairwise

import pytest

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.plan.memory_solver import peak_bytes
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, MemoryPlan
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.train.base.engine import SMALLEST
from burnish_engine.train.fast.smaller_plan import read_memory_plan, smaller_plan, what_changed


def going_down(plan, rows, **settings):
    found = []
    while plan := smaller_plan(plan, rows, **settings):
        found.append(plan)
        assert len(found) < 20
    return found


def test_from_the_largest_to_the_smallest():
    first = MemoryPlan(layers=("all", "products", "attention"), head_rows=4096)
    plans = going_down(first, 16384)
    assert [(plan.text, plan.mlp_rows, plan.head_rows) for plan in plans] == [
        ("products:2,attention:1", 0, 4096),
        ("narrow:2,attention:1", 0, 4096),
        ("attention:3", 0, 4096),
        ("host:3", 0, 4096),
        ("host:3", 2048, 1024),
        ("input:3", 2048, 1024),
        ("input:3", 512, 256),
    ]


@pytest.mark.parametrize("level", LEVEL_NAMES)
def test_every_step_is_smaller_and_none_is_undone(level):
    first = MemoryPlan(layers=(level,) * 2, mlp_rows=1000, head_rows=300)
    plans = [first, *going_down(first, 4096)]
    for larger, smaller in pairwise(plans):
        assert smaller != larger
        places = [[LEVEL_NAMES.index(one) for one in plan.layers] for plan in (larger, smaller)]
        assert all(after >= before for before, after in zip(*places, strict=True))
        assert smaller.mlp_rows <= larger.mlp_rows
        assert smaller.head_rows <= larger.head_rows
        assert what_changed(larger, smaller)
    assert (plans[-1].mlp_rows, plans[-1].head_rows) == (512, 256)


def test_short_passes_are_not_tiled():
    plan = MemoryPlan(layers=("input",), head_rows=200)
    assert smaller_plan(plan, 300) is None


def test_a_host_without_room_is_left_alone():
    first = MemoryPlan(layers=("attention",), head_rows=4096)
    plans = going_down(first, 16384, barred=("host", "input"))
    assert {plan.layers for plan in plans} == {("attention",)}
    assert len(plans) == 2
    assert [plan.layers for plan in going_down(first, 16384, barred=("host",))][1:] == [("input",)] * 2


@pytest.mark.parametrize(("name", "rows"), [("qwen3-0.6b", 32768), ("qwen3-4b", 16384), ("gemma-3-1b", 8192)])
def test_each_step_takes_less_memory(name, rows):
    """By the model that tests hold to the real tensors."""
    shaped = shape(name)
    run = FastRun(Recipe(), shaped, MicroBatchSize(rows, rows), cuda=True, precision="bf16", nf4=False)
    first = MemoryPlan(layers=("rotated",) * shaped.num_layers, head_rows=4096)
    sizes = [peak_bytes(run, plan) for plan in (first, *going_down(first, rows))]
    assert sizes == sorted(sizes, reverse=True)


def test_what_changed_is_said():
    old = MemoryPlan(layers=("products", "products"), head_rows=4096)
    assert what_changed(old, smaller_plan(old, 16384)) == "layers keep narrow:2 (before: products:2)"
    new = old.model_copy(update={"mlp_rows": 2048, "head_rows": 1024})
    assert what_changed(old, new) == (
        "2,048 tokens pass the feed-forward at once, the logits of 1,024 tokens exist at once"
    )


def spec(*, tied):
    return DecoderSpec(
        family="llama", vocab_size=100, hidden_size=64, intermediate_size=128, num_heads=4, num_kv_heads=2, head_dim=16,
        layers=[LayerSpec()] * 3, max_context=256, tied_embeddings=tied,
    )  # fmt: skip


def test_a_plan_comes_back_from_its_words():
    plan = MemoryPlan(layers=("narrow", "host", "all"), mlp_rows=40, head_rows=32)
    assert read_memory_plan(plan.model_dump_json(), spec(tied=True)) == plan
    assert read_memory_plan("", spec(tied=True)) is None
    assert read_memory_plan('{"layers": ["everything"], "head_rows": 1}', spec(tied=True)) is None


def test_the_smallest_plan_has_none_below_it():
    plan = read_memory_plan(SMALLEST, spec(tied=True))
    assert len(plan.layers) == 3
    assert plan.embedding_on_host
    assert plan.head_on_host
    assert smaller_plan(plan, 16384) is None
