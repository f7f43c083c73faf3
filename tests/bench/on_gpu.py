"""Everything that has to be seen on a GPU, by name, each within ten minutes on one large card.

    python tests/bench on_gpu --out results tests cards contexts context24 grid offload curve mixes replies hybrids
        masking

Writes `NAME.jsonl` (rows) or `NAME.log` (what was said) into the folder, and continues after failures. `tests` share
the card among eight processes; everything else that is timed runs alone. With `--side-by-side` each job has a GPU of
its own: several at once, by turns where there are fewer GPUs than jobs.

`scratch` and `lora` are the duels of `tests/bench/duels`, a run on each GPU that this process sees. They continue where
they were ended after `--limit-s` seconds, and leave what they found as `NAME.tgz` (without the runs' folders), which
`--given FOLDER` takes back on another machine. For `scratch` that folder holds `corpus.jsonl.xz` (see `corpus`; above
64 MiB unpacked, so that its tokens are cached) and `tokenizer/` with the embedded model's tokenizer; for `lora` the
embedded model has to be installed.
"""

from __future__ import annotations

import argparse
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import ROOT
from bench.shared.commands import bench_step, script
from bench.shared.gpus import VISIBLE, visible_gpus
from bench.shared.random_models import make_models
from bench.shared.rows import add_row

SIDES = ROOT / "tests" / "bench" / "duels"
# Shape and the card that QLoRA of rank 16 at 2,048 tokens is to fit on, GiB; optimizer.
CARDS = [
    ("llama-3.2-1b", 2.0, "adamw"),
    ("qwen3-4b", 3.5, "adamw8bit"),
    ("llama-3.1-8b", 6.0, "adamw"),
    ("qwen3-14b", 9.0, "adamw8bit"),
    ("qwen3-14b", 9.25, "adamw"),
]
# Shape, method, and budgets in GiB from the peer's offloaded peak up.
CURVE = [
    ("qwen3-0.6b", "lora", (3.05, 4, 6, 8, 12, 16, 24)),
    ("llama-3.2-1b", "lora", (4.68, 6, 8, 12, 16, 24)),
    ("qwen3-4b", "qlora", (5.69, 8, 12, 16, 20, 24)),
]
# Shape, tokens, and what layers keep when everything is resident, or in host memory.
OFFLOAD = [
    ("llama-3.1-8b", 8192, "attention", "host"),
    ("qwen3-14b", 8192, "attention", "host"),
    ("qwen3-32b", 4096, "attention", "host"),
]


def _run(command: list[str], log: Path) -> None:
    """Run it; what it prints is in the log at once, in case this is ended early."""
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        done = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False)
        file.write(f"[{done.returncode}]\n")
    print(f"{log.stem}: exit {done.returncode}: {log.read_text(encoding='utf-8').strip()[-300:]}", flush=True)


def _row(settings: Sequence[object], out: Path, **said: object) -> None:
    """One timed step as a row."""
    row = dict(said) | bench_step(settings)
    add_row(out, row)
    shown = ("tok_s", "step_ms", "peak_reserved_gib", "host_gib", "plan", "error")
    print(out.stem, said, {name: row[name] for name in shown if name in row}, flush=True)


def tests(out: Path) -> None:
    """All GPU tests."""
    found = [
        path for path in sorted((ROOT / "tests/engine").rglob("test_*.py")) if "mark.gpu" in path.read_text("utf-8")
    ]
    alone = ROOT / "tests/engine/train/recovery/test_ballast.py"
    shared = [str(path) for path in found if path != alone]  # collecting all others takes longer than running these
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "--durations=15"]
    _run([*command, "-n", "8", "--dist", "worksteal", "tests/kernels", *shared], out / "tests.log")
    _run([*command, str(alone)], out / "tests.log")


def cards(out: Path) -> None:
    """The least cards."""
    for shape, card, optimizer in CARDS:
        options = ["--out", out / "cards.jsonl", "--shape", shape, "--cards", card, "--steps", 4]
        _run(script("cards", *options, "--optimizer", optimizer), out / "cards.log")


def contexts(out: Path) -> None:
    """The longest contexts of 8B on usual cards: steps of 4, 25 and 63 s as predicted for an H100."""
    _contexts(out, "--cards", "8", "12", "16")


def context24(out: Path) -> None:
    """A context of 8B on a card of 24 GiB that is long enough; the longest one's step would take three minutes."""
    _contexts(out, "--cards", "24", "--most", "131072")


def _contexts(out: Path, *options: str) -> None:
    settings = ["--out", out / "contexts.jsonl", "--shape", "llama-3.1-8b", "--rank", 32, "--longest"]
    _run(script("cards", *settings, *options), out / "contexts.log")


def grid(out: Path) -> None:
    """How far off predicted memory is."""
    _run(script("memory_grid", "--out", out / "grid.jsonl"), out / "grid.log")


def offload(out: Path) -> None:
    """Copies behind the computation, in turn with it, and none."""
    for shape, tokens, resident, host in OFFLOAD:
        for name, keep, extra in (
            ("resident", resident, []),
            ("behind", host, []),
            ("serial", host, ["--serial-offload"]),
        ):
            settings = ["--shape", shape, "--tokens", tokens, "--method", "qlora", "--keep", keep, "--steps", 8]
            _row([*settings, *extra], out / "offload.jsonl", shape=shape, copies=name)


def curve(out: Path) -> None:
    """Speed over memory at 16,384 tokens."""
    for shape, method, budgets in CURVE:
        for budget in budgets:
            settings = ["--shape", shape, "--method", method, "--budget-gib", budget, "--steps", 8]
            _row(settings, out / "curve.jsonl", shape=shape, budget_gib=budget)


def mixes(out: Path) -> None:
    """The planner's mix beside a dozen others."""
    _run(script("mixes", "--out", out / "mixes.jsonl"), out / "mixes.log")


def replies(out: Path) -> None:
    """Replies beside the floor and transformers: dense, experts, NF4; the same tokens and log-probabilities."""
    for shape, counts, extra in (
        ("qwen3-0.6b", (1, 8, 64), ()),
        ("qwen3-4b", (1, 8, 64), ()),
        ("llama-3.1-8b", (1, 64), ()),
        ("qwen3-4b", (8, 64), ("--nf4",)),
        ("qwen3-30b-a3b", (1, 64), ("--tokens", 256, "--layers", 24)),
        ("gpt-oss-20b", (1, 64), ("--tokens", 256)),
    ):
        settings = ["--shape", shape, "--rounds", 1, "--replies", *counts, *extra]
        _run(script("decode", *settings), out / "replies.log")
    for shape in ("qwen3-0.6b", "qwen3-4b"):
        _run(script("decode_peers", "--shape", shape), out / "replies.log")
    _run(script("decode_agreement"), out / "replies.log")
    _run(script("same_replies", "--device", "cuda"), out / "replies.log")


def hybrids(out: Path) -> None:
    """Qwen3.5: its kernels and captured steps, steps of 16,384 tokens in 16 and 8 bits, and small cards at 4,096.

    `peers --models qwen3.5-0.8b qwen3.5-4b --length 2048 --attention sdpa` has Unsloth's figures beside.
    """
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-n", "8"]
    kernels = ["tests/kernels", "-k", "delta or conv_silu or gated_norm or head_gate or nf4"]
    engine = ["tests/engine/train/fast", "tests/engine/models", "-k", "qwen3-5 or qwen2-moe"]
    for tests_of in (kernels, engine):
        _run([*command, *tests_of], out / "hybrids.log")
    for shape, method in (("qwen3.5-0.8b", "lora"), ("qwen3.5-4b", "qlora"), ("qwen3.5-9b", "qlora")):
        for products in ("16", "fp8", "int8"):
            settings = ["--shape", shape, "--method", method, "--tokens", 16384, "--products", products]
            _row(settings, out / "hybrids.jsonl", shape=shape, products=products)
    for shape, card in (("qwen3.5-4b", 5.0), ("qwen3.5-9b", 8.0), ("qwen3.5-35b-a3b", 22.0)):
        settings = ["--shape", shape, "--method", "qlora", "--tokens", 4096, "--budget-gib", card]
        _row(settings, out / "hybrids.jsonl", shape=shape, card_gib=card)
    for shape in ("qwen3.5-0.8b", "qwen3.5-4b"):
        _run(script("decode", "--shape", shape, "--replies", 1, 64, "--rounds", 1), out / "hybrids.log")


def masking(out: Path) -> None:
    """Time steps with Magma and with each optimizer."""
    for optimizer, kind in (
        ("adamw", "off"),
        ("adamw", "magma"),
        ("adamw8bit", "off"),
        ("muon", "off"),
        ("lion", "off"),
    ):
        settings = ["--shape", "qwen3-0.6b", "--tokens", 4096, "--optimizer", optimizer, "--masking", kind]
        _row([*settings, "--steps", 40], out / "masking.jsonl", optimizer=optimizer, masking=kind)


def scratch(out: Path, given: Path, limit_s: float) -> None:
    """From scratch on real text: AdamW, AdamW with Magma, Muon."""
    work = Path("/tmp/scratch-duel")
    if not work.exists():
        work.mkdir(parents=True)
        for side in SIDES.glob("scratch-*.toml"):
            shutil.copy(side, work)
        with lzma.open(given / "corpus.jsonl.xz") as packed, (work / "corpus.jsonl").open("wb") as corpus:
            shutil.copyfileobj(packed, corpus)
        make_models(work, ["llama-55m"], given / "tokenizer")
    _duel("scratch", work, ["--evaluations", "5"], out, given, limit_s)


def lora(out: Path, given: Path, limit_s: float) -> None:
    """LoRA on the embedded model with the sample dataset: the same three."""
    _duel("lora", SIDES, ["--evaluations", "5"], out, given, limit_s)


def _duel(name: str, sides: Path, options: list[str], out: Path, given: Path, limit_s: float) -> None:
    folder = Path(f"/tmp/duel-{name}")
    if not folder.exists() and (given / f"{name}.tgz").is_file():
        (folder / "runs").mkdir(parents=True)
        with tarfile.open(given / f"{name}.tgz") as packed:
            packed.extractall(folder, filter="data")
    files = [sides / f"{name}-{side}.toml" for side in ("adamw", "magma", "muon")]
    _run(script("duel_at_once", "--out", folder, "--limit-s", limit_s, *options, *files), out / f"{name}.log")
    with tarfile.open(out / f"{name}.tgz", "w:gz") as packed:
        for path in sorted(folder.iterdir()):
            if path.name != "runs":
                packed.add(path, path.name)


DUELS: dict[str, Callable[[Path, Path, float], None]] = {job.__name__: job for job in (scratch, lora)}
JOBS: dict[str, Callable[[Path], None]] = {
    job.__name__: job
    for job in (tests, cards, contexts, context24, grid, offload, curve, mixes, replies, hybrids, masking)
}


def side_by_side(names: Sequence[str], options: Sequence[str]) -> None:
    """Each job in a process that sees one GPU; the next one begins where one is done."""
    free, waiting = visible_gpus(), list(names)
    if not free:
        sys.exit("There is no GPU.")
    running: dict[subprocess.Popen[bytes], str] = {}
    while waiting or running:
        while waiting and free:
            gpu = free.pop(0)
            command = script("on_gpu", *options, waiting.pop(0))
            home = Path(os.environ.get("BURNISH_HOME", "/tmp/burnish")) / f"gpu{gpu}"
            given = {VISIBLE: gpu, "BURNISH_HOME": str(home)}
            running[subprocess.Popen(command, env={**os.environ, **given})] = gpu
        for process in [process for process in running if process.poll() is not None]:
            free.append(running.pop(process))
        time.sleep(0.2)


def main() -> None:
    """Do the jobs named, in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--given", type=Path, default=Path())
    parser.add_argument("--limit-s", type=float, default=480, help="after which a duel is ended, to continue later")
    parser.add_argument("jobs", nargs="+", choices=sorted([*JOBS, *DUELS]))
    parser.add_argument("--side-by-side", action="store_true")
    options = parser.parse_args()
    options.out, options.given = options.out.resolve(), options.given.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.side_by_side:
        settings = ["--out", str(options.out), "--given", str(options.given), "--limit-s", str(options.limit_s)]
        side_by_side(options.jobs, settings)
        return
    for name in options.jobs:
        began = time.monotonic()
        if name in DUELS:
            DUELS[name](options.out, options.given, options.limit_s)
        else:
            JOBS[name](options.out)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
