"""Speed, and peak memory of each card, of training a whole model on so many GPUs; prints a row of JSON.

    python tests/bench/whole_step.py --model FOLDER --gpus N [--tokens 4096] [--steps 12]

A real run: weights shared out (devices.strategy = "sharded") from two GPUs on, a pass on each GPU, bf16. Memory is
NVML's, read from outside.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pynvml

from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.run.events import Event, PhaseChanged, StepDone
from burnish_engine.runs.store import create_run
from burnish_engine.train.run import run_training

WARM_UP = 4
WORDS = ("lamp", "door", "river", "stone", "quiet", "seven", "walks", "under", "light", "paper")


def write_rows(path: Path, count: int) -> Path:
    """Write rows of some hundred words."""
    random = np.random.default_rng(0)
    rows = [" ".join(random.choice(WORDS, random.integers(100, 400))) for _ in range(count)]
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows), encoding="utf-8")
    return path


def watch(gpus: int, peaks: list[int], over: threading.Event) -> None:
    """Keep the highest use of each GPU, bytes."""
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(gpus)]
    while not over.wait(0.05):
        for index, handle in enumerate(handles):
            peaks[index] = max(peaks[index], int(pynvml.nvmlDeviceGetMemoryInfo(handle).used))


def main() -> None:
    """Train and print the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--tokens", type=int, default=4096, help="of each GPU")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    count, steps, peaks, over = options.gpus, list[StepDone](), [0] * options.gpus, threading.Event()
    with tempfile.TemporaryDirectory(prefix="burnish-") as folder:
        data = write_rows(Path(folder) / "rows.jsonl", 4 * count * options.steps * options.tokens // 300)
        recipe = parse_recipe(
            f"""
[model]
path = '{options.model.resolve()}'
[data]
files = ['{data}']
max_length = 2048
validation_share = 0.0
[adapter]
method = "full"
[train]
max_steps = {options.steps}
accumulation = {count}
micro_batch_tokens = {options.tokens}
precision = "bf16"
checkpoint_every = {options.steps}
[devices]
kind = "cuda"
strategy = "{"sharded" if count > 1 else "single"}"
gpus = {list(range(count))}
[guard]
action = "off"
[evaluation]
general_text = false
"""
        )
        watcher = threading.Thread(target=watch, args=(count, peaks, over), daemon=True)
        watcher.start()
        began = time.monotonic()

        def listen(event: Event) -> None:
            if isinstance(event, StepDone):
                steps.append(event)
            elif isinstance(event, PhaseChanged):
                print(f"{time.monotonic() - began:.0f} s: {event.phase}", file=sys.stderr, flush=True)

        outcome = run_training(create_run(recipe, Path(folder) / "run"), listener=listen, anyway=True)
        over.set()
        watcher.join()
    timed = steps[WARM_UP:]
    row = {
        "gpus": count,
        "outcome": outcome.message or outcome.exit_code.name,
        "wall_s": time.monotonic() - began,
        "tok_s": statistics.median(step.tokens_per_s for step in timed) if timed else 0.0,
        "step_ms": 1000 * statistics.median(step.step_s for step in timed) if timed else 0.0,
        "card_gib": [peak / 2**30 for peak in peaks],
        "loss": [step.loss for step in steps],
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
