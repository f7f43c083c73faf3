"""Record ten minutes of a GPU at work, and what sampling costs the steps.

    python tests/bench record_hardware --out FOLDER [--seconds 540] [--skip-cost] [--skip-recording]

Trains a model of random weights. `cost.jsonl`: median step times with and without the samples, by turns, for a model
whose steps are short (host-bound) and one whose steps fill the card. `h100.jsonl`: the run's `hardware.jsonl` without
names and ids of processes, for `tests/golden/hardware`. The recording's run also adopts a smaller plan half-way, by the
command that the window's alarm sends, and `events.jsonl` keeps its losses and warnings.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from bench.shared.commands import script
from bench.shared.rows import add_row

SIZES = {
    "small": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8},
    "large": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32},
}
TOKENS = {"small": 2048, "large": 16384}
TURNS, STEPS, SETTLE = 3, 220, 40


def make_run(folder: Path, size: str, steps: int) -> Path:
    """Make model, data and run folder; return the run folder."""
    from burnish_engine.contract.recipe.recipe_file import parse_recipe
    from burnish_engine.runs.store import create_run

    from support.models.tiny import conversations, make_llama, write_jsonl

    model = folder / size
    if not model.exists():
        heads = SIZES[size]["num_attention_heads"]
        make_llama(model, num_key_value_heads=heads // 4, max_position_embeddings=4096, **SIZES[size])
    data = folder / "train.jsonl"
    if not data.exists():
        write_jsonl(data, conversations(20_000))
        write_jsonl(folder / "held.jsonl", conversations(64, offset=50_000))
    recipe = f"""
[model]
path = '{model}'
[data]
files = ['{data}']
validation_files = ['{folder / "held.jsonl"}']
max_length = 512
[adapter]
rank = 16
alpha = 16
[evaluation]
every = 200
[guard]
action = "off"
[train]
epochs = 1000.0
max_steps = {steps}
micro_batch_tokens = {TOKENS[size]}
learning_rate = 1e-4
checkpoint_every = 0
"""
    return create_run(parse_recipe(recipe), Path(tempfile.mkdtemp(dir=folder)) / "run").root


def train(run: Path, *, sampled: bool) -> None:
    """Train in this process, with or without samples."""
    from burnish_engine.contract.paths import RunPaths
    from burnish_engine.train import run as training

    if not sampled:
        training.recorded_hardware = lambda *_: contextlib.nullcontext()  # type: ignore[assignment]
    outcome = training.run_training(RunPaths(run), anyway=True)
    print(outcome, flush=True)


def child(run: Path, *, sampled: bool) -> subprocess.Popen[bytes]:
    """Train in a process of its own."""
    return subprocess.Popen(script("record_hardware", "--child", run, *([] if sampled else ["--without"])))


def step_times(run: Path) -> list[float]:
    """Times of the steps after settling, seconds."""
    from burnish_engine.contract.paths import RunPaths
    from burnish_engine.contract.run.events import StepDone
    from burnish_engine.runs.events_file import read_events

    steps = [event for event in read_events(RunPaths(run).events) if isinstance(event, StepDone)]
    return [event.step_s for event in steps if event.step > SETTLE]


def cost(folder: Path, out: Path) -> None:
    """Measure step times with and without samples, by turns."""
    for size in SIZES:
        found: dict[bool, list[float]] = {True: [], False: []}
        whole: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(TURNS):
            for sampled in (True, False):
                run = make_run(folder, size, STEPS)
                child(run, sampled=sampled).wait()
                times = step_times(run)
                found[sampled].append(median(times))
                whole[sampled].append(sum(times))
        row = {
            "model": size,
            "steps": STEPS - SETTLE,
            "turns": TURNS,
            "median_ms_with": round(1e3 * median(found[True]), 3),
            "median_ms_without": round(1e3 * median(found[False]), 3),
            "ratio": round(median(found[True]) / median(found[False]), 4),
            "ratio_of_sums": round(median(whole[True]) / median(whole[False]), 4),
            "all_ms_with": [round(1e3 * one, 3) for one in found[True]],
            "all_ms_without": [round(1e3 * one, 3) for one in found[False]],
        }
        add_row(out / "cost.jsonl", row)
        print(row, flush=True)


def sampler_times() -> None:
    """Print how long one sample takes: all of it, and the part that holds Python's lock at most."""
    from burnish_engine.hardware.sampler import HardwareSampler

    sampler = HardwareSampler()
    sampler.sample()
    wall, own = [], []
    for _ in range(20):
        time.sleep(0.2)
        begin, cpu = time.perf_counter(), time.thread_time()
        sampler.sample()
        wall.append(time.perf_counter() - begin)
        own.append(time.thread_time() - cpu)
    print(f"a sample takes {1e3 * median(wall):.1f} ms, processor time {1e3 * median(own):.2f} ms", flush=True)


def record(folder: Path, out: Path, seconds: float) -> None:
    """Train for a time, adopt a smaller plan half-way, stop, and keep the recording without names."""
    from burnish_engine.contract.paths import RunPaths
    from burnish_engine.contract.run.hardware_log import read_history
    from burnish_engine.runs.control import send

    run = RunPaths(make_run(folder, "large", 1_000_000))
    process = child(run.root, sampled=True)
    timers = [
        threading.Timer(seconds / 2, send, [run, "smaller_plan"]),
        threading.Timer(seconds, send, [run, "stop"]),
    ]
    for timer in timers:
        timer.daemon = True
        timer.start()
    process.wait()
    lines = [json.loads(line) for line in run.hardware.read_text(encoding="utf-8").splitlines()]
    (out / "h100.jsonl").write_text("".join(json.dumps(nameless(line), separators=(",", ":")) + "\n" for line in lines))
    kept = [line for line in run.events.read_text(encoding="utf-8").splitlines() if '"type":"step"' not in line]
    (out / "events.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    history = read_history(out / "h100.jsonl")
    size = (out / "h100.jsonl").stat().st_size
    print(f"{len(history)} samples, {size / 1e3:.0f} kB, {history.energy_j or 0:.0f} J, exit {process.returncode}")
    for gpu in history.gpus.values():
        print(gpu.facts, gpu.last, gpu.throttle_s, gpu.pcie_under_load, sep="\n", flush=True)


def nameless(line: dict[str, object]) -> dict[str, object]:
    """Leave out what would tell of the machine: process ids, and names of programs other than ours."""
    if line["type"] == "start":
        return line | {"pid": 1}
    if line["type"] == "users":
        for gpu in line["gpus"]:  # type: ignore[attr-defined]
            for number, holder in enumerate(gpu["holders"], 1):
                holder |= {"pid": number, "name": "python" if holder["ours"] else f"program {number}"}
    return line


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--skip-cost", action="store_true")
    parser.add_argument("--skip-recording", action="store_true")
    parser.add_argument("--child", type=Path)
    parser.add_argument("--without", action="store_true")
    options = parser.parse_args()
    if options.child:
        train(options.child, sampled=not options.without)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("BURNISH_HOME", str(Path(folder) / "home"))
        sampler_times()
        if not options.skip_cost:
            cost(Path(folder), options.out)
        if not options.skip_recording:
            record(Path(folder), options.out, options.seconds)


if __name__ == "__main__":
    main()
