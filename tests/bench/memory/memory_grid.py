"""How far off predicted memory is on a GPU: plans for many budgets, each in a process of its own.

    python tests/bench memory_grid --out rows.jsonl [--together 3]

Adds a JSON row a point: predicted, what NVML says that the process took at most, torch's peaks, and the plan. With
`--together` several share the card, which changes no memory where the driver tells processes apart (in containers it
may not); then the times are worth nothing.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.shared.commands import bench_step
from bench.shared.rows import add_row

# Shape, method, rank, tokens, whether they are one document, budget in GiB. No constant was set by Gemma 3's plans.
GRID = [
    ("qwen3-0.6b", "lora", 16, 4096, False, 2.5),
    ("qwen3-0.6b", "lora", 16, 4096, False, 6.0),
    ("qwen3-0.6b", "lora", 64, 16384, False, 4.0),
    ("qwen3-0.6b", "lora", 16, 16384, False, 8.0),
    ("qwen3-0.6b", "lora", 16, 16384, False, 16.0),
    ("qwen3-0.6b", "lora", 16, 65536, True, 8.0),
    ("llama-3.2-1b", "qlora", 16, 2048, False, 2.0),
    ("llama-3.2-1b", "lora", 16, 4096, False, 5.0),
    ("llama-3.2-1b", "lora", 16, 16384, False, 4.7),
    ("llama-3.2-1b", "lora", 128, 16384, False, 10.0),
    ("llama-3.2-1b", "lora", 16, 16384, False, 14.0),
    ("llama-3.2-1b", "qlora", 32, 65536, True, 7.0),
    ("qwen3-4b", "qlora", 16, 2048, False, 3.6),
    ("qwen3-4b", "qlora", 16, 4096, False, 8.0),
    ("qwen3-4b", "qlora", 16, 16384, False, 5.7),
    ("qwen3-4b", "qlora", 16, 16384, False, 16.0),
    ("qwen3-4b", "qlora", 64, 16384, False, 24.0),
    ("llama-3.1-8b", "qlora", 16, 2048, False, 6.0),
    ("llama-3.1-8b", "qlora", 32, 8192, False, 8.0),
    ("llama-3.1-8b", "qlora", 32, 8192, False, 24.0),
    ("llama-3.1-8b", "qlora", 32, 32768, True, 12.0),
    ("qwen3-14b", "qlora", 16, 2048, False, 10.0),
    ("qwen3-14b", "qlora", 16, 8192, False, 16.0),
    ("qwen3-14b", "qlora", 16, 16384, False, 24.0),
    ("gemma-3-1b", "lora", 16, 4096, False, 6.0),
    ("gemma-3-1b", "lora", 16, 16384, False, 5.0),
    ("gemma-3-1b", "lora", 16, 16384, False, 12.0),
    ("gemma-3-1b", "qlora", 32, 32768, True, 6.0),
    # Added after the prediction had last been changed: none of these had run then.
    ("smollm2-135m", "lora", 16, 8192, False, 2.0),
    ("qwen3-0.6b", "lora", 32, 8192, False, 3.0),
    ("llama-3.2-1b", "qlora", 16, 8192, False, 3.0),
    ("qwen3-4b", "qlora", 32, 8192, False, 6.5),
    ("qwen3-4b", "qlora", 32, 32768, True, 8.0),
    ("llama-3.1-8b", "qlora", 16, 4096, False, 7.5),
    ("llama-3.1-8b", "qlora", 32, 16384, False, 11.0),
    ("qwen3-14b", "qlora", 32, 4096, False, 12.0),
    ("gemma-3-1b", "lora", 32, 8192, False, 4.0),
]


def measure(point: tuple[str, str, int, int, bool, float]) -> dict[str, Any]:
    """One point's row."""
    shape, method, rank, tokens, whole, budget = point
    settings = ["--shape", shape, "--method", method, "--rank", rank, "--tokens", tokens, "--budget-gib", budget]
    row = bench_step([*settings, "--steps", 3, "--warm-up", 3, *(["--one-document"] if whole else [])])
    asked = {"shape": shape, "method": method, "rank": rank, "tokens": tokens, "whole": whole, "budget_gib": budget}
    if "error" in row:
        return asked | row
    kept = ("plan", "predicted", "nvml_gib", "peak_reserved_gib", "peak_allocated_gib", "host_gib", "step_ms", "device")
    row = asked | {name: row[name] for name in kept}
    return row | ({"off": row["predicted"]["gib"] / row["nvml_gib"] - 1} if row["nvml_gib"] else {})


def main() -> None:
    """Go through the grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--together", type=int, default=1)
    options = parser.parse_args()
    with ThreadPoolExecutor(options.together) as pool:
        for row in pool.map(measure, GRID):
            add_row(options.out, row)
            said = {
                name: row[name]
                for name in ("shape", "rank", "tokens", "budget_gib", "nvml_gib", "error")
                if name in row
            }
            print(said, f"{100 * row['off']:+.1f} %" if "off" in row else "", flush=True)


if __name__ == "__main__":
    main()
