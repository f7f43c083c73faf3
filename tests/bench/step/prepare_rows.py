"""Compares preparing a dataset with `datasets.map` and `apply_chat_template` alone, on the same cores in one call.

    python tests/bench prepare_rows [--rows 100000] [--workers 2] [--turns 1] [--rounds 1] [--model FOLDER]

Each side is a fresh process with empty caches. Burnish reads, checks, renders, locates what is learned, tokenizes and
looks for copies; `datasets` renders and tokenizes. Prints wall time, processor time of each process with its children,
and the most memory that all of them held at once (proportional set size where the system counts it).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

_BURNISH = """
import sys
from pathlib import Path
from transformers import AutoTokenizer
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.prepare import prepare
if __name__ == "__main__":
    model, rows, workers = sys.argv[1:]
    recipe = Recipe(data=DataSection(files=[rows], max_length=2048, workers=int(workers)))
    found = prepare(recipe, AutoTokenizer.from_pretrained(model))
    print(len(found.train) + len(found.validation))
    print(int(found.train.lengths.sum() + found.validation.lengths.sum()))
"""
_DATASETS = """
import sys
from datasets import disable_progress_bars, load_dataset
from transformers import AutoTokenizer
if __name__ == "__main__":
    model, rows, workers = sys.argv[1:]
    disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(model)
    def tokens(row):
        return {"input_ids": tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=False)}
    found = load_dataset("json", data_files=rows, split="train")
    found = found.map(tokens, remove_columns=["messages"], num_proc=int(workers))
    print(len(found))
    import pyarrow.compute
    print(pyarrow.compute.sum(pyarrow.compute.list_value_length(found.data.column("input_ids"))).as_py())
"""
_POLL_S = 0.2
_NOTES = Path(__file__).resolve().parents[3] / "assets" / "samples" / "bench-notes.train.jsonl"


def write_rows(path: Path, rows: int, turns: int) -> None:
    """Write conversations of about 690 bytes and 160 tokens for each exchange, always the same ones."""
    drawn = random.Random(0)
    notes = map(json.loads, _NOTES.read_text(encoding="utf-8").splitlines())
    words = [word for note in notes for turn in note["messages"] for word in turn["content"].split()]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            said = [
                {"role": role, "content": " ".join(drawn.choices(words, k=max(4, int(drawn.lognormvariate(mu, 0.7)))))}
                for _ in range(turns)
                for role, mu in (("user", 2.9), ("assistant", 4.25))
            ]
            file.write(json.dumps({"messages": said}) + "\n")


def measured(code: str, words: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Run code in a process, and measure it together with its children."""
    began, peak_bytes = time.perf_counter(), 0
    before = os.times()
    process = subprocess.Popen([sys.executable, "-c", code, *words], env=environment, stdout=subprocess.PIPE, text=True)
    whole = psutil.Process(process.pid)
    while process.poll() is None:
        peak_bytes = max(peak_bytes, held_bytes(whole))
        time.sleep(_POLL_S)
    wall_s = time.perf_counter() - began
    after = os.times()
    said = process.stdout.read().split() if process.stdout else []
    if process.returncode:
        raise SystemExit(f"A side ended with status {process.returncode}.")
    return {
        "wall_s": wall_s,
        "processor_s": after.children_user + after.children_system - before.children_user - before.children_system,
        "peak_gb": peak_bytes / 1e9,
        "rows": int(said[-2]),
        "tokens": int(said[-1]),
    }


def held_bytes(process: psutil.Process) -> int:
    """Return the memory of a process and its descendants, bytes; pages that several share count once."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                memory = one.memory_full_info()
                total += getattr(memory, "pss", memory.rss)
    return total


def main() -> None:
    """Measure both sides by turns and print their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=1, help="exchanges of each conversation")
    parser.add_argument("--model", type=Path, help="folder with a tokenizer and its chat template")
    parser.add_argument("--rounds", type=int, default=1, help="how often both sides are measured, by turns")
    args = parser.parse_args()
    if args.model is None:
        from burnish_engine.models.checkpoint import embedded

        args.model = embedded.ensure()
    sides = {"burnish": _BURNISH, "datasets": _DATASETS}
    found = dict[str, list[dict[str, float]]]()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        write_rows(rows, args.rows, args.turns)
        print(f"{args.rows:,} rows, {rows.stat().st_size / 1e6:.1f} MB, {args.workers} workers")
        for turn in range(args.rounds):
            for name, code in sides.items():
                home = f"{folder}/{name}{turn}"
                homes = {"BURNISH_HOME": home, "HF_HOME": home, "HF_HUB_OFFLINE": "1"}
                words = [str(args.model), str(rows), str(args.workers)]
                taken = measured(code, words, {**os.environ, **homes})
                found.setdefault(name, []).append(taken)
                print(name, json.dumps({key: round(value, 2) for key, value in taken.items()}), flush=True)
    for key in ("wall_s", "processor_s"):
        ours, theirs = (statistics.median(taken[key] for taken in found[name]) for name in sides)
        print(f"{key}: {ours / theirs:.2f} times datasets.map")
