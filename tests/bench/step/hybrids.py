"""A model with short convolutions beside dense ones on one GPU: same numbers as on the CPU, kernels, and step times.

    python tests/bench hybrids --out results [--before FOLDER] [--no-tests]

Runs the GPU tests of hybrids, times the convolution's kernels, then the training step of LFM2.5-1.2B and of dense
shapes. FOLDER holds another version, such as the one before a change (`git archive COMMIT engine kernels assets |
tar -x -C FOLDER`); dense shapes are timed with both versions by turns. Rows go to `hybrids.jsonl`,
what else is printed to `hybrids.log`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from bench import ROOT
from bench.shared.commands import BURNISH, bench_step
from bench.shared.rows import add_row

HYBRIDS = [("lfm2.5-1.2b", 16384, "rotated"), ("lfm2.5-1.2b", 4096, "rotated"), ("lfm2.5-1.2b", 16384, "attention")]
DENSE = [("qwen3-0.6b", 16384, "rotated"), ("qwen3-0.6b", 4096, "rotated"), ("llama-3.2-1b", 16384, "rotated")]
TESTS = [
    ["tests/kernels/test_against_reference.py", "-k", "short_conv"],
    ["tests/engine/models/decoder/test_decoder.py", "-k", "lfm"],
    ["tests/engine/train/fast/captured/test_same_bits.py", "-k", "hybrid"],
]
SHOWN = ("tok_s", "step_ms", "peak_allocated_gib", "peak_reserved_gib", "first_step_s")


def environment(tree: Path) -> dict[str, str]:
    """The environment in which a version's packages are found first."""
    paths = [str(tree / "engine"), str(tree / "kernels"), os.environ["PYTHONPATH"]]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def logged(command: list[str], log: Path) -> int:
    """Run a command, its output in the log; return its exit code."""
    with log.open("a", encoding="utf-8") as file:
        done = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False)
    last = log.read_text(encoding="utf-8").strip().splitlines()[-1]
    print(f"[{done.returncode}] {' '.join(command[2:])}: {last}", flush=True)
    return done.returncode


def step(tree: Path, version: str, shape: str, tokens: int, keep: str, out: Path) -> None:
    """Time a step with one version, and add the row to the file."""
    settings = ["--shape", shape, "--tokens", tokens, "--keep", keep]
    row = {"version": version, "shape": shape, "tokens": tokens, "keep": keep}
    row |= bench_step(settings, cwd=tree, env=environment(tree))
    add_row(out, row)
    shown = {name: round(row[name], 2) for name in SHOWN if name in row} or row.get("error")
    print(version, shape, tokens, keep, shown, flush=True)


def main() -> int:
    """Run everything; return 1 where a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--before", type=Path, help="folder with another version's engine and kernels")
    parser.add_argument("--no-tests", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    log, rows, failed = options.out / "hybrids.log", options.out / "hybrids.jsonl", 0
    if not options.no_tests:
        run = [sys.executable, "-m", "pytest", "-m", "gpu", "-q"]
        failed = sum(bool(logged([*run, *chosen], log)) for chosen in TESTS)
        logged([*BURNISH, "bench", "kernels", "--op", "short_conv"], log)
        print(log.read_text(encoding="utf-8").rpartition("passed")[2], flush=True)
    for setting in HYBRIDS:
        step(ROOT, "now", *setting, rows)
    for setting in DENSE:
        for version, tree in (("before", options.before), ("now", ROOT), ("before", options.before)):
            if tree is not None:
                step(tree.resolve(), version, *setting, rows)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
