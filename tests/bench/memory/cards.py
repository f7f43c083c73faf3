"""Small cards emulated on a large one: another process holds memory so that exactly a card's is left, context included.

    python tests/bench cards --out rows.jsonl --shape llama-3.1-8b --rank 32 --longest [--cards 8 12 16 24]
    python tests/bench cards --out rows.jsonl --shape qwen3-4b --tokens 2048 [--cards 3.5]

`--longest` trains the longest document that the plan for what is free says will fit, less the usual margin; else a run
gets its margin only where that leaves enough, as a run of `burnish train` does. QLoRA in bf16. Every run is a process
of its own, and adds a JSON row: what was predicted, what torch reserved, the least that was free on the card meanwhile,
page-locked host memory, and the time of a step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from burnish_engine.advise.plan.memory_solver import MARGIN_BYTES, usable_bytes
from burnish_engine.bench.shapes import shape
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection
from burnish_engine.train.fast.memory_choice import BudgetPlan, plan_within

from bench.shared.commands import BURNISH
from bench.shared.gpus import memory_reader
from bench.shared.rows import add_row
from support.memory.ballast import Ballast

GIB = 2**30
_STEP = 256  # tokens
_SAID = ("card_gib", "tokens", "step_ms", "peak_reserved_gib", "least_free_gib", "host_gib", "predicted", "error")


def room(free: int, options: argparse.Namespace) -> float:
    """Bytes that a run would plan for: what is free less the margin, less a narrow one, or the least a plan takes."""
    narrow = free - MARGIN_BYTES[True]
    for budget in (usable_bytes(free, cuda=True), narrow):
        if planned(float(budget), options.tokens, options).peak_bytes <= budget:
            return float(budget)
    return float(planned(float(narrow), options.tokens, options).peak_bytes)


def planned(budget: float, tokens: int, options: argparse.Namespace) -> BudgetPlan:
    """The plan for one document within a budget, or the least."""
    section = AdapterSection(rank=options.rank, alpha=float(options.rank), targets=["all-linear"])
    spec, device = shape(options.shape), torch.device("cuda")
    recipe = Recipe(adapter=section, train=TrainSection(optimizer=options.optimizer))
    return plan_within(budget, recipe, spec, [tokens], device, tokens=tokens, precision="bf16", nf4=True, or_least=True)


def longest(budget: float, options: argparse.Namespace) -> int:
    """Tokens of the longest document that a plan fits for."""

    def fits(tokens: int) -> bool:
        return planned(budget, tokens, options).peak_bytes <= budget

    low, high = 0, options.most // _STEP + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * _STEP) else (low, middle)
    return low * _STEP


def train(tokens: int, budget: float, options: argparse.Namespace) -> dict[str, Any]:
    """Run it; the least that was free meanwhile."""
    memory = memory_reader(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    command = [*BURNISH, "bench", "step", "--shape", options.shape]
    command += ["--method", "qlora", "--rank", str(options.rank), "--tokens", str(tokens), "--json"]
    command += ["--budget-gib", repr(budget / GIB), "--steps", str(options.steps), "--warm-up", str(options.warm_up)]
    command += ["--optimizer", options.optimizer, *(["--one-document"] if options.longest else [])]
    began = time.monotonic()
    least = memory().free
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while True:
            least = min(least, memory().free)
            try:
                printed, complained = process.communicate(timeout=0.02)  # reads meanwhile, so that no pipe fills up
                break
            except subprocess.TimeoutExpired:
                continue
    row = {"least_free_gib": least / GIB, "wall_s": time.monotonic() - began}
    return row | (json.loads(printed) if process.returncode == 0 else {"error": complained.strip()[-600:]})


def main() -> None:
    """Go through the cards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shape", required=True)
    parser.add_argument("--cards", type=float, nargs="+", default=[8.0, 12.0, 16.0, 24.0], help="GiB")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--longest", action="store_true")
    parser.add_argument("--most", type=int, default=400_000, help="tokens that --longest does not look beyond")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--warm-up", type=int, default=2)
    options = parser.parse_args()
    with Ballast() as ballast:
        for card in options.cards:
            ballast.drop()
            free = ballast.take(int(card * 1024))
            budget = float(usable_bytes(free, cuda=True)) if options.longest else room(free, options)
            tokens = longest(budget, options) if options.longest else options.tokens
            row = {"card_gib": card, "free_gib": free / GIB, "budget_gib": budget / GIB, "tokens": tokens}
            row |= train(tokens, budget, options)
            add_row(options.out, row)
            print({name: row[name] for name in _SAID if name in row}, flush=True)


if __name__ == "__main__":
    main()
