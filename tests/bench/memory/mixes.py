"""How near the planner's mix of levels comes to the best one, measured: its own and a dozen others within one budget.

    python tests/bench mixes --out rows.jsonl [--shape qwen3-4b --method qlora --tokens 16384 --budget-gib 12]

Half of the others are the planner's with a few layers moved to another level, half the most of a faster level and the
rest at a smaller one, for pairs of levels; of all that fit those that are predicted to be the fastest. What is done in
pieces is chosen for each. Every mix is a process of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from burnish_engine.advise.predict.level_mixes import Counts, arrange_layers, neighboring_mixes
from burnish_engine.bench.documents import packs
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.errors import DoesNotFitError
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, MemoryPlan, MemorySection, SaveLevel
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection
from burnish_engine.train.fast.memory_choice import BudgetPlan, plan_within

from bench.shared.commands import bench_step
from bench.shared.rows import add_row

GIB = 2**30
_TRIED = 60  # mixes near the planner's
_KEPT = ("step_ms", "tok_s", "peak_reserved_gib", "nvml_gib", "host_gib", "error")


def planned(options: argparse.Namespace, layers: str = "auto") -> BudgetPlan | None:
    """The plan within the budget, with these layers; None where none fits."""
    section = AdapterSection(rank=16, alpha=16.0, targets=["all-linear"])
    recipe = Recipe(adapter=section, train=TrainSection(), memory=MemorySection(layers=layers))
    lengths = np.concatenate([np.diff(batch.boundaries) for batch in islice(packs(options.tokens), 8)]).tolist()
    nf4, device = options.method == "qlora", torch.device(options.device)
    given = {"tokens": options.tokens, "precision": "bf16", "nf4": nf4}
    try:
        return plan_within(options.budget_gib * GIB, recipe, shape(options.shape), lengths, device, **given)
    except DoesNotFitError:
        return None


def text(counts: Counts) -> str:
    """A mix as the recipe has it, its layers arranged as the planner does."""
    levels = tuple(LEVEL_NAMES[place] for place in arrange_layers(counts)[0])
    return MemoryPlan(layers=levels, head_rows=1).text


def near(own: MemoryPlan, options: argparse.Namespace) -> Iterator[BudgetPlan]:
    """The planner's mix with a few layers moved."""
    counts = np.array([[own.layers.count(level) for level in LEVEL_NAMES]], np.int16)
    moved = neighboring_mixes(counts, LEVEL_NAMES[1:])
    chosen = np.random.default_rng(0).permutation(len(moved))[:_TRIED]
    found = (planned(options, text(moved[place : place + 1])) for place in chosen)
    yield from (one for one in found if one is not None)


def pairs(options: argparse.Namespace) -> Iterator[BudgetPlan]:
    """For each pair of levels the plan with most of the faster one."""
    count = shape(options.shape).num_layers

    def pair(fast: SaveLevel, small: SaveLevel, many: int) -> BudgetPlan | None:
        counts = np.zeros((1, len(LEVEL_NAMES)), np.int16)
        counts[0, [LEVEL_NAMES.index(fast), LEVEL_NAMES.index(small)]] = many, count - many
        return planned(options, text(counts))

    for fast, small in combinations(LEVEL_NAMES[1:], 2):
        low, best = 0, pair(fast, small, 0)
        high = count + 1
        while best is not None and high - low > 1:
            middle = (low + high) // 2
            found = pair(fast, small, middle)
            low, high, best = (middle, high, found) if found else (low, middle, best)
        if best is not None and low:
            yield best


def measure(plan: MemoryPlan, options: argparse.Namespace) -> dict[str, Any]:
    """A plan's steps."""
    settings = ["--shape", options.shape, "--method", options.method, "--tokens", options.tokens]
    settings += ["--steps", options.steps, "--keep", plan.text, "--mlp-rows", plan.mlp_rows]
    settings += ["--head-rows", plan.head_rows, *(["--tables-on-host"] if plan.head_on_host else [])]
    row = bench_step([*settings, "--device", options.device])
    return {name: row[name] for name in _KEPT if name in row}


def main() -> None:
    """Measure the planner's mix, the others, and the planner's once more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shape", default="qwen3-4b")
    parser.add_argument("--method", default="qlora", choices=["lora", "qlora"])
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--budget-gib", type=float, default=12.0)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if not shape(options.shape).tied_embeddings:
        parser.error(f"{options.shape} has a head of its own, which `bench step` cannot move to host memory by itself")
    own = planned(options)
    if own is None:
        sys.exit("No plan fits.")
    fastest: list[BudgetPlan] = []
    for kind in (near(own.plan, options), pairs(options)):
        seen = {own.plan.layers, *(one.plan.layers for one in fastest)}
        found = {one.plan.layers: one for one in kind if one.plan.layers not in seen}
        fastest += sorted(found.values(), key=lambda one: one.seconds)[: options.count // 2]
    taken: dict[str, list[float]] = {"planner": [], "other": []}
    for name, one in [("planner", own), *(("other", one) for one in fastest), ("planner", own)]:
        plan = one.plan.model_dump() | {"layers": one.plan.text}
        row = {"mix": name, "shape": options.shape, "budget_gib": options.budget_gib, "plan": plan}
        row |= {"predicted_ms": 1000 * one.seconds, "predicted_gib": one.peak_bytes / GIB} | measure(one.plan, options)
        add_row(options.out, row)
        taken[name] += [row["step_ms"]] if "step_ms" in row else []
        said = {key: row[key] for key in ("mix", "predicted_ms", "step_ms", "error") if key in row}
        print(one.plan.text, said, flush=True)
    if taken["planner"] and taken["other"]:
        best = min(taken["other"])
        print(f"planner {min(taken['planner']):.1f} ms, best of {len(taken['other'])} others {best:.1f} ms")


if __name__ == "__main__":
    main()
