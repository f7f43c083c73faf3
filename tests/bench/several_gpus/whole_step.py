"""Speed, and peak memory of each card, of training a whole model on so many GPUs; prints a row of JSON.

    python tests/bench whole_step --model FOLDER --gpus N [--tokens 4096] [--steps 12] [--save] [--device cpu]

A real run: weights shared out (devices.strategy = "sharded") from two GPUs on, a pass on each GPU, bf16. Memory is
NVML's, read from outside. The row comes after the last step, and everything ends then, or at once on SIGTERM; with
`--save` the run continues to write its checkpoint, 12 bytes a weight, and its model. Phases go to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import profile, supported_activities

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.run.events import Event, PhaseChanged, StepDone
from burnish_engine.runs.store import create_run
from burnish_engine.train.run import run_training

from bench.shared.gpus import memory_reader, visible_gpus

WARM_UP = 4
WORDS = ("lamp", "door", "river", "stone", "quiet", "seven", "walks", "under", "light", "paper")


def write_rows(path: Path, count: int) -> Path:
    """Write rows of some hundred words."""
    random = np.random.default_rng(0)
    rows = [" ".join(random.choice(WORDS, random.integers(100, 400))) for _ in range(count)]
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows), encoding="utf-8")
    return path


def watch(peaks: list[int]) -> None:
    """Keep the highest use of each GPU, bytes, for ever."""
    memories = [memory_reader(gpu) for gpu in visible_gpus()[: len(peaks)]]
    while True:
        for index, memory in enumerate(memories):
            peaks[index] = max(peaks[index], int(memory().used))
        time.sleep(0.05)


def recipe_of(options: argparse.Namespace, data: Path) -> Recipe:
    """Return the recipe of the run."""
    count, on_gpus = options.gpus, options.device == "cuda"
    return parse_recipe(
        f"""
[model]
path = '{options.model.resolve()}'
[data]
files = ['{data}']
max_length = {min(2048, options.tokens)}
validation_share = 0.0
[adapter]
method = "full"
[train]
max_steps = {options.steps}
accumulation = {count}
micro_batch_tokens = {options.tokens}
precision = "{"bf16" if on_gpus else "fp32"}"
checkpoint_every = {options.steps}
recompute = {str(options.budget_gib > 0).lower()}
[devices]
kind = "{options.device}"
strategy = "{"sharded" if count > 1 else "single"}"
gpus = {list(range(count))}
[memory]
budget_gib = {options.budget_gib}
[guard]
action = "off"
[evaluation]
general_text = false
"""
    )


def end_on_termination(leave: Callable[[], None]) -> None:
    """Call a function on SIGTERM, on a thread: Python's handlers wait for what the main thread waits for.

    While the run looks for signals by itself, it is told by `stopping`.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def wait() -> None:
        while reader.recv(1)[0] != signal.SIGTERM:
            pass
        writer.close()
        leave()

    threading.Thread(target=wait, daemon=True).start()


class Row:
    """Collects the steps of a run and prints its row.

    Args:
        options: what the command line says.
        leave: function that ends everything at once.
    """

    def __init__(self, options: argparse.Namespace, leave: Callable[[int], None]) -> None:
        self._options, self._leave, self._began = options, leave, time.monotonic()
        self._steps: list[StepDone] = []
        self._peaks = [0] * options.gpus
        self._profiler: Any = None
        if options.device == "cuda":
            threading.Thread(target=watch, args=(self._peaks,), daemon=True).start()

    def listen(self, event: Event) -> None:
        """Take up an event of the run; with the last step the row is printed."""
        if isinstance(event, PhaseChanged):
            print(f"{time.monotonic() - self._began:.1f} s: {event.phase}", file=sys.stderr, flush=True)
        if isinstance(event, StepDone):
            self._steps.append(event)
            print(f"{time.monotonic() - self._began:.1f} s: step {event.step}", file=sys.stderr, flush=True)
            if self._options.profile:
                self._profile(event.step)
            if len(self._steps) == self._options.steps:
                self.print("all steps")
                if not self._options.save:
                    self._leave(0)

    def _profile(self, step: int) -> None:
        """Watch two steps after the timed warm-up; say what took longest on the device and on this process's cores."""
        if step == WARM_UP:
            self._profiler = profile(activities=sorted(supported_activities(), key=str))
            self._profiler.start()
        elif step == WARM_UP + 2:
            self._profiler.stop()
            found = self._profiler.key_averages()
            for key in (f"self_{self._options.device}_time_total", "self_cpu_time_total"):
                print(found.table(sort_by=key, row_limit=30, max_name_column_width=70), file=sys.stderr, flush=True)

    def print(self, outcome: str) -> None:
        """Print the row of the steps so far."""
        timed = self._steps[WARM_UP:]
        speed = {
            "tok_s": statistics.median(step.tokens_per_s for step in timed),
            "step_ms": 1000 * statistics.median(step.step_s for step in timed),
        } if timed else {"error": outcome}  # fmt: skip
        row = {
            "gpus": self._options.gpus,
            "outcome": outcome,
            **speed,
            "wall_s": time.monotonic() - self._began,
            **self._allocated(),
            "card_gib": [peak / 2**30 for peak in self._peaks],
            "loss": [step.loss for step in self._steps],
        }
        print(json.dumps(row), flush=True)

    def _allocated(self) -> dict[str, float]:
        """Return torch's peaks in this process, which is the first rank."""
        if self._options.device != "cuda":
            return {}
        peaks = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
        return {f"peak_{name}_gib": peak / 2**30 for name, peak in peaks.items()}

    @property
    def is_done(self) -> bool:
        """Whether the row of all steps was printed."""
        return len(self._steps) == self._options.steps


def main() -> None:
    """Train and print the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--tokens", type=int, default=4096, help="of each GPU")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--save", action="store_true", help="continue to the checkpoint and the model")
    parser.add_argument("--budget-gib", type=float, default=0.0, help="of each GPU, with recomputation; 0: all")
    parser.add_argument("--profile", action="store_true", help="say on standard error what two steps take")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try it, in fp32 over gloo")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="burnish-"))

    def leave(code: int) -> None:
        """End this process without saving; the other ranks end once they miss it."""
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(code)

    end_on_termination(lambda: leave(1))
    row = Row(options, leave)
    count = 4 * options.gpus * options.steps * options.tokens // 300
    run = create_run(recipe_of(options, write_rows(folder / "rows.jsonl", count)), folder / "run")
    outcome = run_training(run, listener=row.listen, stopping=lambda: leave(1), anyway=True)
    if not row.is_done:
        row.print(outcome.message or outcome.exit_code.name)
        for log in sorted((folder / "run").glob("*.log")):
            print(f"{log.name}: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}", file=sys.stderr)
    leave(0 if row.is_done else 1)


if __name__ == "__main__":
    main()
