"""Where the time goes from the start of `burnish train` to the end of its first step, as medians of several runs.

    python tests/bench first_step [--model tiny] [--device cpu] [--rows 200] [--starts 5] [--imports]

Models have random weights, made on the spot; `tiny` needs no GPU. The first run fills all caches and does not count.
Processor time, which other work on the machine changes less, is that of the whole run. With `--imports` one
more run says which packages take most of the time that importing takes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.shared.chats import write_chats
from bench.shared.commands import BURNISH
from bench.shared.random_models import SHAPES, make_models
from support.models.tiny import make_llama

RECIPE = """[model]
path = {model}
[data]
files = [{data}]
max_length = 512
[adapter]
rank = 16
[train]
micro_batch_tokens = {tokens}
max_steps = 1
checkpoint_every = 0
[devices]
kind = "{device}"
"""
_IMPORTED = re.compile(r"import time:\s+(\d+) \|\s+\d+ \| \s*(\w+)")
_SHOWN_PACKAGES = 15


def train(work: Path, *options: str, **process: Any) -> subprocess.CompletedProcess[str]:
    """Train once in a new folder, with options of Python's."""
    run, (python, *burnish) = work / "run", BURNISH
    shutil.rmtree(run, ignore_errors=True)
    command = [python, *options, *burnish, "train", str(work / "recipe.toml"), "--run-dir", str(run)]
    home = os.environ | {"BURNISH_HOME": str(work / "home")}
    return subprocess.run(command, env=home, text=True, check=True, **process)


def moments(work: Path) -> dict[str, float]:
    """Train once; return the seconds from the process's start to each phase's start and the first step's end."""
    before, began = os.times(), time.time()
    train(work, stdout=subprocess.DEVNULL)
    after, found = os.times(), {}
    for line in (work / "run" / "events.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        name = event["phase"] if event["type"] == "phase" else event["type"]
        if event["type"] in ("phase", "plan", "run_started", "step"):
            found.setdefault(name, event["t"] - began)
    processor = sum(getattr(after, one) - getattr(before, one) for one in ("children_user", "children_system"))
    return found | {"processor time of the whole run": processor}


def imports(work: Path) -> Counter[str]:
    """Train once more; return the milliseconds that importing each package took."""
    taken = Counter[str]()
    for line in train(work, "-X", "importtime", capture_output=True).stderr.splitlines():
        if match := _IMPORTED.match(line):
            taken[match[2]] += int(match[1]) / 1000
    return taken


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["tiny", *SHAPES], default="tiny")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--imports", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="burnish-start-") as folder:
        work = Path(folder)
        model, data = work / options.model, work / "data.jsonl"
        if options.model == "tiny":
            make_llama(model)
        else:
            make_models(work, [options.model])
        write_chats(data, options.rows)
        recipe = {"model": json.dumps(str(model)), "data": json.dumps(str(data)), "tokens": options.tokens}
        (work / "recipe.toml").write_text(RECIPE.format(**recipe, device=options.device), encoding="utf-8")
        moments(work)
        runs = [moments(work) for _ in range(options.starts)]
        for name in runs[0]:
            print(f"{statistics.median(run[name] for run in runs):7.2f} s  {name}")
        if options.imports:
            for name, milliseconds in imports(work).most_common(_SHOWN_PACKAGES):
                print(f"{milliseconds:7.0f} ms  importing {name}")


if __name__ == "__main__":
    main()
