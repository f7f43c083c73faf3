"""Replay: what rows that the base wrote keep of it, and what they cost of the gain, over shares and seeds.

    python tests/bench replay --out FOLDER [--seeds 1 2 3] [--shares 0 0.01 0.05] [--rows 358] [--rate 0.003]

Trains the embedded model on the sample notes with each share of such rows, on the CPU. A row of `results.jsonl` in
FOLDER is a run; one that is there is not made again. Forgetting is the rise of the loss on the general text, whose
openings the base continues, and on pages of the guide, which have nothing to do with them. The table says how much of
the forgetting without replay is gone, and how much of the gain (fall of the held-out loss).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.transformers_path.plain import load_adapter, load_base
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.store import create_run
from burnish_engine.train.run import run_training

from bench.shared.rows import add_row, read_rows

ROOT = Path(__file__).parents[3]
_SAMPLES = ROOT / "assets" / "samples"
_PAGES = ("limits.md", "hardware.md")
_OTHER_TOKENS = 2048


def recipe_of(share: float, seed: int, rows: Path, rate: float) -> Recipe:
    """Make the recipe of a run over a file of rows."""
    return parse_recipe(f"""
[model]
path = "embedded"
[data]
files = ['{rows}']
validation_files = ['{_SAMPLES / "bench-notes.heldout.jsonl"}']
max_length = 512
replay_share = {share}
[adapter]
rank = 16
[train]
seed = {seed}
epochs = 1.0
precision = "bf16"
micro_batch_tokens = 512
learning_rate = {rate}
[evaluation]
max_rows = 20
[guard]
action = "off"
[devices]
kind = "cpu"
""")


def other_losses(adapter: Path) -> tuple[float, float]:
    """Return the loss on pages of the guide, nats per token: of the base, and with an adapter."""
    source = open_model("embedded")
    text = "\n\n".join((ROOT / "assets" / "guide" / page).read_text(encoding="utf-8") for page in _PAGES)
    ids = torch.tensor([load_tokenizer(source)(text, add_special_tokens=False)["input_ids"][:_OTHER_TOKENS]])
    model = load_base(source, "bf16", torch.device("cpu"))

    def loss(of: Any) -> float:
        with torch.no_grad():
            parts = [of(part, labels=part).loss.item() for part in ids.split(512, dim=1)]
        return fmean(parts)

    return loss(model), loss(load_adapter(model, adapter).eval())


def measured(share: float, seed: int, count: int, rate: float, folder: Path) -> dict[str, Any]:
    """Train a run on the first rows of the samples, and return its row."""
    began, used = time.perf_counter(), time.process_time()
    lines = (_SAMPLES / "bench-notes.train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    rows = folder.parent / f"{count}.jsonl"
    rows.write_text("".join(lines[:count]), encoding="utf-8")
    paths = create_run(recipe_of(share, seed, rows, rate), folder)
    ended = run_training(paths)
    assert not ended.exit_code, ended
    seconds, used = time.perf_counter() - began, time.process_time() - used
    run = read_run(paths.events)
    forgetting, held_out = run.forgetting, run.evaluations.loss.values()
    assert forgetting is not None
    before, after = other_losses(paths.adapter)
    return {
        "share": share, "seed": seed, "rows": count, "rate": rate, "steps": run.step,
        "held_out": [held_out[0], held_out[-1]], "general": [forgetting.before, forgetting.after],
        "other": [before, after], "seconds": seconds, "processor_s": used,
    }  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the means over seeds as a table in Markdown."""
    lines = ["| replay | seeds | gain, nats | gain lost | general text | forgetting gone | guide | gone |"]
    lines.append("|---" * 8 + "|")
    means = {}
    for share in sorted({row["share"] for row in rows}):
        own = [row for row in rows if row["share"] == share]
        means[share] = [fmean(row[key][1] - row[key][0] for row in own) for key in ("held_out", "general", "other")]
        gain, general, other = means[share]
        base = means.get(0.0, means[share])
        lost, gone, also = (1 - value / first for value, first in zip(means[share], base, strict=True))
        lines.append(
            f"| {share:.0%} | {len(own)} | {-gain:.3f} | {lost:.1%} | {general:+.3f} | {gone:.0%} | {other:+.3f} "
            f"| {also:.0%} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Make the runs that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.01, 0.05])
    parser.add_argument("--rows", type=int, default=358)
    parser.add_argument("--rate", type=float, default=3e-3)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results = args.out / "results.jsonl"
    done = {(row["share"], row["seed"], row["rows"], row["rate"]) for row in read_rows(results)}
    for seed in args.seeds:
        for share in args.shares:
            if (share, seed, args.rows, args.rate) not in done:
                folder = args.out / f"{seed}-{share:g}-{args.rows}-{args.rate:g}"
                row = measured(share, seed, args.rows, args.rate, folder)
                add_row(results, row)
                print(row, flush=True)
    print(table([row for row in read_rows(results) if (row["rows"], row["rate"]) == (args.rows, args.rate)]))


if __name__ == "__main__":
    main()
