"""The predicted memory of runs on the fast engine, part by part, and against an H100."""

import json
import random
from pathlib import Path

import pytest

from burnish_engine.advise.facts.shape import adapter_parameters, embedding_parameters
from burnish_engine.advise.facts.workload import MicroBatchSize, bucket_tokens, buckets, largest_bucket_tokens
from burnish_engine.advise.plan.memory_solver import peak_bytes
from burnish_engine.advise.predict.fast_layer import LayerShape, evaluated_bytes
from burnish_engine.advise.predict.fast_memory import host_bytes, memory_of
from burnish_engine.advise.predict.fast_parts import memory_parts
from burnish_engine.advise.predict.level_mixes import arrange_layers, level_mixes
from burnish_engine.advise.predict.plan_options import PlanOptions, split_plan
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, MemoryPlan, parse_save_levels
from burnish_engine.contract.recipe.recipe import DevicesSection, ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.train.fast.packed_batch import BucketLayout, layout_for

from support.memory.planned_memory import parts, run

GIB = 2**30

# Shape, tokens, NF4: GiB that torch held and that the process took on one H100 whose idle driver holds 0.47.
MEASURED = [
    ("qwen3-0.6b", 16384, False, 15.23, 16.44),
    ("qwen3-0.6b", 4096, False, 5.70, 6.91),
    ("llama-3.2-1b", 16384, False, 16.44, 17.65),
    ("llama-3.2-1b", 4096, False, 6.78, 7.99),
    ("qwen3-4b", 4096, True, 14.27, 15.48),
]


@pytest.mark.parametrize(("name", "tokens", "nf4", "held", "process"), MEASURED)
def test_what_was_measured_is_predicted(name, tokens, nf4, held, process):
    found = parts(Recipe(), shape(name), MicroBatchSize(tokens, tokens), nf4=nf4)
    total = sum(found.values())
    assert (total - found["CUDA context"]) / GIB == pytest.approx(held, rel=0.015)
    assert total / GIB == pytest.approx(process - 0.47, rel=0.015)


def measured_plans():
    """Plans chosen for many budgets, and what the process took of one H100: `python tests/bench memory_grid`."""
    file = Path(__file__).parents[3] / "golden" / "memory" / "h100.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield pytest.param(row, id=f"{row['shape']} r{row['rank']} {row['tokens']} tokens {row['budget_gib']} GiB")


@pytest.mark.parametrize("row", measured_plans())
def test_plans_that_were_measured_are_predicted(row):
    """Within 5 %, and never more than 3 % too little."""
    spec, rows = shape(row["shape"]), bucket_tokens(row["tokens"], row["tokens"], packed=True)
    plan = MemoryPlan(**row["plan"] | {"layers": parse_save_levels(row["plan"]["layers"], spec.num_layers)})
    recipe = Recipe(adapter=AdapterSection(rank=row["rank"], targets=["all-linear"]))
    largest = MicroBatchSize(row["tokens"], row["tokens"], bucket=rows)
    found = parts(recipe, spec, largest, plan, nf4=row["nf4"])
    assert -0.03 < sum(found.values()) / GIB / row["process_gib"] - 1 < 0.05
    offloaded = plan.model_copy(update={"embedding_on_host": False, "head_on_host": False})  # tables were not counted
    assert host_bytes(run(recipe, spec, largest, nf4=row["nf4"]), offloaded) / GIB == pytest.approx(
        row["host_gib"], abs=0.001
    )


@pytest.mark.parametrize("what", [{"exchange": "bf16"}, {"exact": True}])
def test_what_gpus_exchange_with_is_in_the_peak(what):
    spec, largest = shape("llama-3.2-1b"), MicroBatchSize(4096, 256)
    shared = Recipe(devices=DevicesSection(strategy="data_parallel", gpus=[0, 1], **what))
    plan = MemoryPlan(layers=("products",) * spec.num_layers, head_rows=256)
    alone, found = parts(Recipe(), spec, largest, plan), parts(shared, spec, largest, plan)
    assert found["exchange of gradients"] >= 2 * found["gradients"]
    assert sum(found.values()) >= sum(alone.values()) + found["exchange of gradients"]
    total = memory_of(run(shared, spec, largest)).totals(*split_plan(plan))[0]
    assert sum(found.values()) == pytest.approx(total, abs=8)


def test_static_sizes_are_those_of_the_engine():
    random.seed(0)
    for _ in range(300):
        most = random.randint(1, 20_000)
        tokens = random.randint(1, most)
        for packed in (True, False):
            sizes = buckets(20_000, packed, most)
            layouts = [BucketLayout(rows, 128, 256) for rows in sizes]
            assert largest_bucket_tokens(most) == sizes[-1]
            assert bucket_tokens(tokens, most, packed=packed) == layout_for(tokens, layouts).capacity


def test_levels_go_from_large_to_small():
    spec = shape("qwen3-4b")
    sizes = {
        level: parts(
            Recipe(), spec, MicroBatchSize(4096, 1000), MemoryPlan(layers=(level,) * spec.num_layers, head_rows=1024)
        )
        for level in LEVEL_NAMES
    }
    kept = [sizes[level]["activations"] for level in LEVEL_NAMES if level != "offloaded"]
    assert kept == sorted(kept, reverse=True)
    assert sizes["attention"]["activations"] < sizes["products"]["activations"] / 4
    assert sizes["input"]["activations"] < sizes["host"]["activations"] < sizes["attention"]["activations"] / 3
    assert abs(sizes["offloaded"]["activations"] / sizes["narrow"]["activations"] - 1) < 0.01


@pytest.mark.parametrize("cuda", [True, False])
@pytest.mark.parametrize(("tile", "head", "embedding", "tables"), [(0, 512, False, False), (1024, 4096, True, True)])
def test_the_parts_sum_up_to_the_peak(cuda, tile, head, embedding, tables):
    spec = shape("llama-3.1-8b")
    planned = run(Recipe(), spec, MicroBatchSize(8192, 5000), cuda=cuda, nf4=True)
    for layers in ("host+attention:8,offloaded+narrow:8,products", "host:3,rotated:2,attention"):
        plan = MemoryPlan(
            layers=parse_save_levels(layers, spec.num_layers),
            mlp_rows=tile,
            head_rows=head,
            embedding_on_host=embedding,
            head_on_host=tables,
        )
        total = sum(part.bytes for part in memory_parts(planned, plan))
        assert total == pytest.approx(memory_of(planned).totals(*split_plan(plan))[0], abs=8)
        assert total == pytest.approx(peak_bytes(planned, plan), abs=8)


@pytest.mark.parametrize("tile", [0, 1024])
@pytest.mark.parametrize("name", ["qwen3-0.6b", "llama-3.2-1b", "gemma-3-1b"])
@pytest.mark.parametrize("level", LEVEL_NAMES)
def test_looking_at_held_out_rows_takes_less_than_a_pass(name, level, tile):
    """So that only passes are counted, even those of a single layer that keeps next to nothing."""
    spec = shape(name).model_copy(update={"layers": shape(name).layers[:1]})
    for targets in (["all-linear"], ["q_proj"]):
        planned = run(Recipe(adapter=AdapterSection(targets=targets)), spec, MicroBatchSize(4096, 16))
        levels, _ = split_plan(MemoryPlan(layers=(level,), mlp_rows=tile, head_rows=256))
        peaks, layer = (
            memory_of(planned).peaks(levels, tile),
            LayerShape(spec, planned.recipe.adapter, 2, cuda=True, layer=spec.layers[0]),
        )
        assert evaluated_bytes(layer, 4096, tile) < peaks.pass_peak[0]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "rows", "tile"), [("qwen3-4b", 16384, 0), ("gemma-3-1b", 4096, 2048), ("lfm2.5-1.2b", 16384, 0)]
)
def test_the_bound_by_counts_alone_is_one(name, rows, tile):
    """The solver leaves out what it says does not fit."""
    spec = shape(name)
    memory = memory_of(run(Recipe(), spec, MicroBatchSize(rows, rows), nf4=True))
    counts = level_mixes(spec.num_layers, tuple(level for level in LEVEL_NAMES if level != "all"))
    for chunk in (256, 4096):
        least = memory.least_totals(counts.astype(float), [PlanOptions(tile, chunk)])[0]
        for clear in (0, 4):
            assert (least <= memory.totals(arrange_layers(counts, clear), PlanOptions(tile, chunk))).all()


@pytest.mark.parametrize(("name", "embedding", "head", "saved"), [
    ("llama-3.1-8b", True, False, 1), ("llama-3.1-8b", True, True, 2), ("qwen3-4b", True, True, 1),
    ("qwen3-4b", True, False, 0),
])  # fmt: skip
def test_tables_in_host_memory_are_not_on_the_device(name, embedding, head, saved):
    spec, largest = shape(name), MicroBatchSize(4096, 1000)
    plan = MemoryPlan(layers=("products",) * spec.num_layers, head_rows=1024)
    away = plan.model_copy(update={"embedding_on_host": embedding, "head_on_host": head})
    here, there = parts(Recipe(), spec, largest, plan), parts(Recipe(), spec, largest, away)
    size = saved * 2 * embedding_parameters(spec)
    assert here["base weights"] - there["base weights"] == size
    assert host_bytes(run(Recipe(), spec, largest), away) == size


def test_a_tile_of_the_feed_forward_bounds_its_wide_tensors():
    spec = shape("llama-3.1-8b")
    plans = [MemoryPlan(layers=("attention",) * 32, mlp_rows=rows, head_rows=256) for rows in (0, 8192, 1024)]
    sizes = [parts(Recipe(), spec, MicroBatchSize(32768, 256), plan)["workspace"] for plan in plans]
    assert sizes[0] > 1.5 * sizes[1] > 1.5 * sizes[2]


def test_adapter_optimizer_and_gradients_are_fp32():
    recipe = Recipe(model=ModelSection(quantize="nf4"), data=DataSection(max_length=512))
    found = parts(recipe, shape("qwen3-0.6b"), MicroBatchSize(2048, 1000), nf4=True, precision="fp16")
    assert found["adapter"] == 4 * adapter_parameters(shape("qwen3-0.6b"), recipe.adapter)
    assert found["optimizer"] == 2 * found["adapter"] == 2 * found["gradients"]
