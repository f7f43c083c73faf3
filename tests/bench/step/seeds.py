"""Gains of cached metadata, copies ahead of use and one-sort routing, each alone and together; prints a table.

    python tests/bench seeds --out rows.jsonl [--tokens 4096] [--steps 4] [--models qwen3-14b gpt-oss-20b]

Whole models of random weights with adapters: a dense one in NF4, and gpt-oss with its experts in MXFP4, which are
adapted too. Every layer offloads its input to host memory and is computed again, as in the engine whose gains were
published (`--keep input`). Each model is a process of its own: `python tests/bench ablation`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.shared.commands import script
from bench.shared.rows import add_row
from bench.step.ablation import ablation_table


def measured(model: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a model's steps; ends the program where that fails."""
    settings = ["--shape", model, "--method", "qlora", "--keep", options.keep, "--tokens", options.tokens]
    settings += ["--steps", options.steps, "--warm-up", 2, "--layers", options.layers, "--device", options.device]
    command = script("ablation", *settings, "--weights", options.weights)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{model} could not be measured.")
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def main() -> None:
    """Measure each model and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file that a line of JSON is added to for each model")
    parser.add_argument("--models", nargs="+", default=["qwen3-14b", "gpt-oss-20b"])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=0, help="number of layers to keep, from the first; 0: all")
    parser.add_argument("--keep", default="input")
    parser.add_argument("--weights", default="card", help="where layers keep their frozen weights, as in a recipe")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    reports = []
    for model in options.models:
        reports.append(measured(model, options))
        add_row(options.out, reports[-1])
        if not reports[-1]["same_bits"]:
            print(f"{model}: the rows did not compute the same bits.", file=sys.stderr, flush=True)
    print(ablation_table(reports), flush=True)


if __name__ == "__main__":
    main()
