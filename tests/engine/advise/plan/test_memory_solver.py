"""Memory plans that are chosen: within the budget, near the fastest there is, and as the recipe says."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.plan.memory_solver import (
    peak_bytes,
    smallest_memory_plan,
    smallest_plan_bytes,
    solve_memory_plan,
    usable_bytes,
)
from burnish_engine.advise.predict.fast_memory import host_bytes, memory_of
from burnish_engine.advise.predict.fast_parts import memory_parts
from burnish_engine.advise.predict.fast_shape import head_chunk_tokens
from burnish_engine.advise.predict.fast_speed import FastSpeed, fast_seconds
from burnish_engine.advise.predict.level_mixes import spread_layers
from burnish_engine.advise.predict.plan_options import PlanOptions
from burnish_engine.advise.predict.transfers import SLOTS
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.facts.machine import GpuFacts, PcieFacts
from burnish_engine.contract.recipe.memory_plan import (
    LEVEL_NAMES,
    MemorySection,
    parse_save_levels,
    parse_weight_places,
    weight_places,
)
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import TrainSection

GIB = 2**30
H100 = GpuFacts(
    index=0, name="NVIDIA H100 80GB HBM3", pcie=PcieFacts(to_gpu_gb_s=54.0, from_gpu_gb_s=54.0)
)  # fmt: skip
RTX_4060 = GpuFacts(index=0, name="NVIDIA GeForce RTX 4060", vram_total_bytes=8 * GIB)


def run(name="qwen3-4b", tokens=8192, *, layers=0, learned=0, gpu=H100, memory=None, **options):
    spec = shape(name)
    if layers:
        spec = spec.model_copy(update={"layers": spec.layers[:layers]})
    train = TrainSection(recompute=options.pop("recompute", False))
    recipe = Recipe(memory=MemorySection(**(memory or {})), train=train)
    values = {"cuda": True, "precision": "bf16", "nf4": True} | options
    largest = MicroBatchSize(tokens, learned or tokens, bucket=tokens, longest=2048, span=660.0)
    return FastRun(recipe, spec, largest, gpu=gpu if values["cuda"] else None, **values)


def time_of(planned, plan):
    return fast_seconds(planned, planned.largest, plan)


def all_plans(planned, *, tiles, heads, tables):
    """Bytes, host bytes and times of all plans, with the weights of all layers, of three or of none on the host."""
    levels = [LEVEL_NAMES.index(level) for level in LEVEL_NAMES if level != "all"]
    every = np.array(list(itertools.product(levels, repeat=planned.spec.num_layers)), dtype=np.int8)
    memory, speed = memory_of(planned), FastSpeed(planned, planned.largest)
    count = planned.spec.num_layers
    hosted = [(), *(spread_layers(number, count) for number in (count - 1, count))]
    pieces = [PlanOptions(*one[:2], *one[2], one[3]) for one in itertools.product(tiles, heads, tables, hosted)]
    found = [
        (memory.totals(every, one), memory.host_bytes(every, one), speed.seconds([(every, one)])) for one in pieces
    ]
    return (np.concatenate(figures) for figures in zip(*found, strict=True))


@pytest.mark.full
@pytest.mark.parametrize("gpu", [H100, RTX_4060], ids=["H100", "4060"])
@pytest.mark.parametrize(("name", "host_gib"), [("qwen3-4b", 8), ("qwen3-4b", 0.3), ("llama-3.1-8b", 8)])
def test_the_plan_is_near_the_best_of_all_of_a_small_model(gpu, name, host_gib):
    planned = run(name, layers=4, learned=3000, gpu=gpu)
    least, most = smallest_plan_bytes(planned, host_budget_bytes=host_gib * GIB), 4.5 * GIB
    tables = [(False, False), (True, True)] + ([(True, False)] if name.startswith("llama") else [])
    device, host, seconds = all_plans(planned, tiles=(0, 1024, 2048, 4096), heads=(3072, 1536, 768, 512), tables=tables)
    for budget in np.linspace(least + 1, max(most, 1.8 * least), 7):
        plan = solve_memory_plan(planned, budget_bytes=budget, host_budget_bytes=host_gib * GIB)
        best = seconds[(device <= budget) & (host <= host_gib * GIB)].min(initial=np.inf)
        assert peak_bytes(planned, plan) <= budget
        assert host_bytes(planned, plan) <= host_gib * GIB
        assert time_of(planned, plan) <= 1.03 * best


@pytest.mark.full
@pytest.mark.parametrize(("name", "tokens", "host_gib", "nf4"), [
    ("qwen3-4b", 16384, 64, True), ("llama-3.1-8b", 8192, 12, True), ("qwen3-0.6b", 4096, 0, False),
    ("gemma-3-1b", 4096, 4, False), ("qwen3-14b", 2048, 24, True),
])  # fmt: skip
def test_every_plan_fits_and_more_memory_is_never_slower(name, tokens, host_gib, nf4):
    planned = run(name, tokens, nf4=nf4)
    least = smallest_plan_bytes(planned, host_budget_bytes=host_gib * GIB)
    before = np.inf
    for budget in np.geomspace(least, 8 * least, 13):
        plan = solve_memory_plan(planned, budget_bytes=budget + 1, host_budget_bytes=host_gib * GIB)
        assert peak_bytes(planned, plan) <= budget + 1
        assert host_bytes(planned, plan) <= host_gib * GIB
        # A plan that streams weights is taken only if it is 2 % faster than all others.
        assert time_of(planned, plan) <= 1.03 * before
        before = min(before, time_of(planned, plan))
    assert solve_memory_plan(planned, budget_bytes=least - 2**20, host_budget_bytes=host_gib * GIB) is None


def test_with_plenty_nothing_is_computed_again_or_moved():
    plan = solve_memory_plan(run(tokens=4096), budget_bytes=75 * GIB, host_budget_bytes=64 * GIB)
    assert set(plan.layers) == {"rotated"}
    assert plan.mlp_rows == 0
    assert not plan.embedding_on_host
    assert plan.head_rows == head_chunk_tokens(4096, cuda=True)
    llama = solve_memory_plan(run("llama-3.2-1b", 4096), budget_bytes=75 * GIB)
    assert set(llama.layers) == {"products"}


@pytest.mark.full
def test_a_link_that_keeps_up_is_used_and_a_slow_one_is_not():
    budget, host = 26 * GIB, 64 * GIB
    fast = solve_memory_plan(run(tokens=16384), budget_bytes=budget, host_budget_bytes=host)
    slow_gpu = H100.model_copy(update={"pcie": PcieFacts(to_gpu_gb_s=1.0, from_gpu_gb_s=1.0)})
    slow = solve_memory_plan(run(tokens=16384, gpu=slow_gpu), budget_bytes=budget, host_budget_bytes=host)
    assert {"offloaded", "host", "input"} & set(fast.layers)
    assert len([level for level in slow.layers if level in {"offloaded", "host", "input"}]) <= 4
    without = solve_memory_plan(run(tokens=16384), budget_bytes=budget)
    assert not {"offloaded", "host", "input"} & set(without.layers)
    assert time_of(run(tokens=16384), fast) < 0.98 * time_of(run(tokens=16384), without)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("name", "card_gib", "optimizer"), [
    ("llama-3.1-8b", 2.75, "adamw"), ("qwen3-32b", 8, "adamw8bit"), ("llama-3.1-70b", 12, "adamw8bit"),
])  # fmt: skip
def test_weights_in_host_memory_make_large_models_fit_on_small_cards(name, card_gib, optimizer):
    """QLoRA of rank 16 with 2,048 tokens, and at most 48 GiB of host memory."""
    base = run(name, 2048)
    train = TrainSection(optimizer=optimizer)
    planned = replace(base, recipe=base.recipe.model_copy(update={"train": train}))
    budget = card_gib * GIB - 256 * 2**20
    plan = solve_memory_plan(planned, budget_bytes=budget, host_budget_bytes=48 * GIB)
    assert plan is not None
    assert peak_bytes(planned, plan) <= budget
    assert host_bytes(planned, plan) <= 48 * GIB
    assert len(plan.layers_on_host) > planned.spec.num_layers / 2
    assert solve_memory_plan(planned, budget_bytes=budget) is None


@pytest.mark.full
@pytest.mark.parametrize(("name", "card_gib", "quick"), [("qwen3-14b", 8, False), ("qwen3-32b", 6, True)])
def test_no_more_layers_stream_than_have_to(name, card_gib, quick):
    """One fewer would not fit, or take longer; a quick search tries few counts and leaves none of them too many."""
    planned = run(name, 2048)
    plan = solve_memory_plan(planned, budget_bytes=card_gib * GIB, host_budget_bytes=48 * GIB, quick=quick)
    count, layers = len(plan.layers_on_host), planned.spec.num_layers
    assert count > SLOTS
    fewer = plan.model_copy(update={"weights": weight_places(spread_layers(count - 1, layers), layers)})
    assert peak_bytes(planned, fewer) > card_gib * GIB or time_of(planned, fewer) > time_of(planned, plan)


@pytest.mark.full
def test_no_layer_streams_where_the_card_has_room_or_the_link_is_slow():
    planned = run("qwen3-14b", 2048)
    roomy = solve_memory_plan(planned, budget_bytes=70 * GIB, host_budget_bytes=48 * GIB)
    assert not roomy.weights
    slow = H100.model_copy(update={"pcie": PcieFacts(to_gpu_gb_s=0.5, from_gpu_gb_s=0.5)})
    planned = run("qwen3-14b", 2048, gpu=slow)
    assert not solve_memory_plan(planned, budget_bytes=16 * GIB, host_budget_bytes=48 * GIB).weights


@pytest.mark.full
@pytest.mark.parametrize("weights", ["card", "host", "card:10,host:20,card"])
def test_pinned_places_of_weights_stay(weights):
    planned = run("qwen3-14b", 2048, memory={"weights": weights})
    for budget in (14 * GIB, 70 * GIB):
        plan = solve_memory_plan(planned, budget_bytes=budget, host_budget_bytes=48 * GIB)
        assert parse_weight_places(plan.weights_text, 40) == parse_weight_places(weights, 40)
    assert len(smallest_memory_plan(planned).layers_on_host) == parse_weight_places(weights, 40).count("host")


@pytest.mark.full
def test_gpus_share_layers_where_they_read_each_other_faster_than_the_host():
    """QLoRA of a 70B on two cards joined by NVLink, and without peer-to-peer."""
    budget, host = 40 * GIB, 16 * GIB
    planned = run("llama-3.1-70b", 2048, ranks=2, peer_gb_s=300.0)
    plan = solve_memory_plan(planned, budget_bytes=budget, host_budget_bytes=host)
    assert plan.layers_on_ranks
    assert not plan.layers_on_host
    assert peak_bytes(planned, plan) <= budget
    hosted = replace(planned, peer_gb_s=0.0)
    other = solve_memory_plan(hosted, budget_bytes=budget, host_budget_bytes=host)
    assert other.layers_on_host
    assert not other.layers_on_ranks
    assert time_of(planned, plan) < time_of(hosted, other)
    assert solve_memory_plan(planned, budget_bytes=budget).layers_on_ranks, "host memory is not needed"
    assert solve_memory_plan(hosted, budget_bytes=budget) is None


def test_no_layer_is_shared_where_the_card_has_room_or_nobody_is_there_to_share_with():
    planned = run("qwen3-14b", 2048, ranks=2, peer_gb_s=300.0)
    assert not solve_memory_plan(planned, budget_bytes=70 * GIB).weights
    alone = run("qwen3-14b", 2048, memory={"weights": "ranks"})
    assert not solve_memory_plan(alone, budget_bytes=70 * GIB).weights
    pinned = run("qwen3-14b", 2048, memory={"weights": "ranks:30,card"}, ranks=4)
    assert len(solve_memory_plan(pinned, budget_bytes=70 * GIB).layers_on_ranks) == 30


@pytest.mark.full
def test_layers_that_no_share_of_is_small_enough_come_from_the_host():
    """A card that holds less than its half of them."""
    planned = run("llama-3.1-70b", 2048, ranks=2, peer_gb_s=300.0)
    plan = solve_memory_plan(planned, budget_bytes=14 * GIB, host_budget_bytes=200 * GIB)
    assert plan.layers_on_host


@pytest.mark.full
def test_pinned_levels_leave_the_weights_to_choose():
    planned = run("qwen3-14b", 2048, memory={"layers": "attention"})
    plan = solve_memory_plan(planned, budget_bytes=5 * GIB, host_budget_bytes=48 * GIB)
    assert set(plan.layers) == {"attention"}
    assert plan.layers_on_host
    assert not solve_memory_plan(planned, budget_bytes=70 * GIB, host_budget_bytes=48 * GIB).weights


@pytest.mark.full
def test_unsloths_memory_is_enough_for_a_4b():
    """Its offloaded peak is 4.94 GiB allocated with 16,384 tokens of Qwen3-4B in NF4."""
    planned = run(tokens=16384)
    plan = solve_memory_plan(planned, budget_bytes=5.75 * GIB, host_budget_bytes=64 * GIB)
    outside = {"CUDA context", "graph pools", "fragmentation"}
    allocated = sum(part.bytes for part in memory_parts(planned, plan) if part.name not in outside)
    assert allocated <= 4.94 * GIB


def test_pinned_levels_and_pieces_stay():
    text = "host:10,offloaded+narrow:10,all:3,products"
    pinned = run(memory={"layers": text, "mlp_rows": 2048, "head_rows": 512})
    plan = solve_memory_plan(pinned, budget_bytes=60 * GIB)
    assert plan.layers == parse_save_levels(text, 36)
    assert (plan.mlp_rows, plan.head_rows) == (2048, 512)
    assert smallest_memory_plan(pinned) == plan.model_copy(update={"embedding_on_host": plan.embedding_on_host})
    assert solve_memory_plan(pinned, budget_bytes=6 * GIB) is None
    levels_only = run(memory={"layers": "attention"}, tokens=32768)
    tight = solve_memory_plan(levels_only, budget_bytes=smallest_plan_bytes(levels_only) + 2**20)
    assert set(tight.layers) == {"attention"}
    assert 0 < tight.mlp_rows <= 8192


def test_pinned_pieces_leave_the_levels_to_choose():
    tiled = solve_memory_plan(run(memory={"mlp_rows": 2048}), budget_bytes=12 * GIB)
    assert tiled.mlp_rows == 2048
    assert len(set(tiled.layers)) > 1


def test_recompute_allows_nothing_above_attention():
    planned = run(recompute=True)
    assert set(solve_memory_plan(planned, budget_bytes=75 * GIB).layers) == {"attention"}
    small = solve_memory_plan(planned, budget_bytes=6 * GIB, host_budget_bytes=64 * GIB)
    assert set(small.layers) <= {"attention", "host", "input"}
    assert {"host", "input"} & set(small.layers)


def test_a_processor_moves_nothing_and_recomputes_only_if_it_must():
    planned = run("smollm2-135m", 2048, cuda=False, nf4=False, precision="fp32", cpu_cores=8)
    assert set(solve_memory_plan(planned, budget_bytes=24 * GIB).layers) == {"products"}
    least = smallest_plan_bytes(planned)
    tight = solve_memory_plan(planned, budget_bytes=1.05 * least)
    assert set(tight.layers) <= {"products", "narrow", "attention"}
    assert "attention" in tight.layers
    assert not tight.embedding_on_host
    assert host_bytes(planned, tight) == 0
    assert solve_memory_plan(planned, budget_bytes=0.95 * least) is None


@pytest.mark.full
def test_below_the_least_there_is_no_plan_and_the_least_is_told():
    planned = run("llama-3.1-8b", 4096)
    for host in (0, 3 * GIB, 64 * GIB):
        least = smallest_plan_bytes(planned, host_budget_bytes=host)
        assert solve_memory_plan(planned, budget_bytes=least - 1, host_budget_bytes=host) is None
        found = solve_memory_plan(planned, budget_bytes=least, host_budget_bytes=host)
        assert peak_bytes(planned, found) <= least
        assert host_bytes(planned, found) <= host
    without, some, much = (smallest_plan_bytes(planned, host_budget_bytes=host) for host in (0, GIB, 64 * GIB))
    assert much < some < without


@pytest.mark.full
def test_the_same_question_has_the_same_answer():
    answers = [solve_memory_plan(run(), budget_bytes=9 * GIB, host_budget_bytes=8 * GIB) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.full
def test_few_plans_of_eighty_layers_are_walked_through(monkeypatch):
    spec = shape("llama-3.1-8b")
    deep = FastRun(
        Recipe(),
        spec.model_copy(update={"layers": [spec.layers[0]] * 80, "hidden_size": 8192, "intermediate_size": 28672}),
        MicroBatchSize(8192, 8192, longest=2048, span=660.0),
        cuda=True, precision="bf16", nf4=True, gpu=H100,
    )  # fmt: skip
    real, walked = FastSpeed.seconds, []

    def seconds(self, plans):
        walked.append(sum(len(levels) for levels, _ in plans))
        return real(self, plans)

    with monkeypatch.context() as patch:
        patch.setattr(FastSpeed, "seconds", seconds)
        plan = solve_memory_plan(deep, budget_bytes=59 * GIB, host_budget_bytes=64 * GIB)
    assert 0 < sum(walked) < 1500
    quick = solve_memory_plan(deep, budget_bytes=59 * GIB, host_budget_bytes=64 * GIB, quick=True)
    assert time_of(deep, plan) <= time_of(deep, quick) <= 1.05 * time_of(deep, plan)


def test_a_margin_is_left():
    assert usable_bytes(8 * GIB, cuda=True) == pytest.approx(7.35 * GIB, rel=0.001)
    assert usable_bytes(8 * GIB, cuda=False) < usable_bytes(8 * GIB, cuda=True)
