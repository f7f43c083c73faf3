"""Factorial experiments on masking: precision, schedule and clipping, many runs at once on one GPU, resumable.

    python tests/bench factorial --out FOLDER --minutes N [--given FOLDER] [--together N] [--designs lora scratch]

`lora`: adapters on the embedded model, {AdamW, with Magma} x {bf16, INT8 products} x {cosine, warmup-stable-decay} x
{clipping at 1, off}, three seeds. `scratch`: a Llama-like model of 55 million weights, {AdamW, with Magma} x {bf16,
fp16} x {cosine, warmup-stable-decay}, two seeds, 1,000 steps. SkipUpdate is one more cell of each. Every cell tries
0.3, 1 and 3 times its learning rate on one seed, runs the other seeds at its best, and then once alone on the card, for
speed and energy.

A row of `results.jsonl` in FOLDER is a run; one that is there is not made again. `--given` adds the rows of an earlier
folder, and holds `corpus.jsonl.xz` and `tokenizer/` for `scratch` (see `corpus`; the tokenizer is that of the embedded
model). After N minutes runs that have not ended are dropped, to be made again. `factorial_effects` says what came of
it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import math
import multiprocessing
import os
import shutil
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.shared.random_models import make_models
from bench.shared.rows import add_row, read_rows

Phase = Literal["grid", "seeds", "alone"]
FACTORS = (1.0, 0.3, 3.0)
"""Learning rates of the grid, as multiples of a cell's own; the middle one first."""
_TRIES = 2  # of a run that fails other than by diverging
_PRELOADED = ["burnish_engine.train.run", "burnish_engine.duel.measures.outcome", "burnish_engine.duel.measures.energy"]
_LEVELS: dict[str, dict[str, dict[str, Any]]] = {
    "masking": {
        "off": {"masking.kind": "off", "train.learning_rate": 1e-3},
        "magma": {"masking.kind": "magma", "train.learning_rate": 3e-3},
        "skip_update": {"masking.kind": "skip_update", "train.learning_rate": 1e-3},
    },
    "products": {"16": {"train.products": "16"}, "int8": {"train.products": "int8"}},
    "precision": {"bf16": {"train.precision": "bf16"}, "fp16": {"train.precision": "fp16"}},
    "schedule": {"cosine": {"train.schedule": "cosine"}, "wsd": {"train.schedule": "wsd"}},
    "clipping": {"1.0": {"train.max_grad_norm": 1.0}, "off": {"train.max_grad_norm": 0.0}},
}
"""Settings of each level of each factor. Rates are those that the duels found for AdamW and for Magma."""


@dataclass(frozen=True)
class Design:
    """A factorial experiment.

    Attributes:
        name: name of the design.
        factors: levels of each factor; the first level is the usual one.
        settings: settings that all cells share, by dotted key.
        seeds: seeds of the compared runs; the grid has seed 0.
        evaluations: evaluations in the course of a run.
        alone: settings of the run that has the card alone, in place of the shared ones.
    """

    name: str
    factors: dict[str, tuple[str, ...]]
    settings: dict[str, Any]
    seeds: tuple[int, ...]
    alone: dict[str, Any] = field(default_factory=dict)
    evaluations: int = 4

    def cells(self) -> list[dict[str, str]]:
        """List the cells: every combination, then SkipUpdate with the usual level of the other factors."""
        whole = [dict(zip(self.factors, levels, strict=True)) for levels in itertools.product(*self.factors.values())]
        return [*whole, whole[0] | {"masking": "skip_update"}]


@dataclass(frozen=True)
class Job:
    """Identity of a run: design, cell (by its number), purpose, seed and learning rate."""

    design: str
    cell: int
    phase: Phase
    seed: int
    rate: float

    @property
    def id(self) -> str:
        """Name of the run and of its folder."""
        return f"{self.design}-{self.cell}-{self.phase}-lr{self.rate:g}-seed{self.seed}"


def designs(model: str, given: Path, *, tiny: bool) -> dict[str, Design]:
    """Return the designs by name.

    Args:
        model: folder of the embedded model.
        given: folder of the corpus and of the 55M model.
        tiny: whether to shrink them to a few cells and steps of a tiny model, to try the script on a CPU.
    """
    from burnish_engine.contract.paths import assets_dir

    samples = assets_dir() / "samples"
    lora = Design(
        name="lora",
        factors={
            "masking": ("off", "magma"), "products": ("16", "int8"), "schedule": ("cosine", "wsd"),
            "clipping": ("1.0", "off"),
        },
        settings={
            "model.path": model,
            "data.files": [str(samples / "bench-notes.train.jsonl")],
            "data.validation_files": [str(samples / "bench-notes.heldout.jsonl")],
            "data.max_length": 512,
            "train.epochs": 3.0,
            "train.micro_batch_tokens": 1024,
            "train.precision": "bf16",
            "evaluation.max_rows": 0,
        },
        alone={"train.epochs": 9.0, "evaluation.max_rows": 8},
        seeds=(1, 2, 3),
    )  # fmt: skip
    scratch = Design(
        name="scratch",
        factors={"masking": ("off", "magma"), "precision": ("bf16", "fp16"), "schedule": ("cosine", "wsd")},
        settings={
            "model.path": str(given / "llama-55m"),
            "data.files": [str(given / "corpus.jsonl")],
            "data.shape": "text",
            "data.learn": "everything",
            "data.max_length": 512,
            "data.overlong": "split",
            "data.validation_share": 0.01,
            "adapter.method": "full",
            "train.epochs": 3.0,
            "train.max_steps": 1000,
            "train.micro_batch_tokens": 2560,
            "train.weight_decay": 0.1,
            "train.beta2": 0.95,
            "train.engine": "plain",
            "evaluation.max_rows": 200,
        },
        alone={"train.max_steps": 200, "evaluation.max_rows": 8},
        seeds=(1, 2),
    )
    found = {one.name: one for one in (lora, scratch)}
    return {name: _shrunk(one, model) for name, one in found.items()} if tiny else found


def _shrunk(design: Design, model: str) -> Design:
    settings = {
        "model.path": model, "data.max_length": 256, "train.max_steps": 3, "train.micro_batch_tokens": 256,
        "evaluation.max_rows": 2,
    }  # fmt: skip
    return Design(
        design.name,
        {name: levels if name == "masking" else levels[:1] for name, levels in design.factors.items()},
        design.settings | settings,
        design.seeds[:1],
        settings,
        evaluations=1,
    )


def run_settings(design: Design, job: Job) -> dict[str, Any]:
    """Return the settings of a run that are not the defaults, by dotted key."""
    settings = dict(design.settings)
    for factor, level in design.cells()[job.cell].items():
        settings |= _LEVELS[factor][level]
    if job.phase == "alone":
        settings |= design.alone
    return settings | {"train.learning_rate": job.rate, "train.seed": job.seed}


def own_rate(design: Design, cell: int) -> float:
    """Return the middle of a cell's grid of learning rates."""
    return float(_LEVELS["masking"][design.cells()[cell]["masking"]]["train.learning_rate"])


def best_rate(design: Design, cell: int, rows: Sequence[dict[str, Any]]) -> float | None:
    """Return the rate of a cell's grid with the lowest held-out loss; None where the grid is not done."""
    grid = [row for row in rows if (row["design"], row["cell"], row["phase"]) == (design.name, cell, "grid")]
    if len(grid) < len(FACTORS):
        return None
    return min(grid, key=lambda row: (_loss(row), row["rate"]))["rate"]


def _loss(row: dict[str, Any]) -> float:
    loss = row.get("held_out_loss")
    return loss if row["ended"] == "finished" and loss is not None and math.isfinite(loss) else math.inf


def ready(design: Design, rows: Sequence[dict[str, Any]]) -> list[Job]:
    """List the runs that can begin now, in order; those alone on the card come when all others are done."""
    made = {(row["design"], row["cell"], row["phase"], row["seed"], row["rate"]) for row in rows}
    cells = range(len(design.cells()))
    shared = [*_grid(design, cells), *_seeds(design, cells, rows)]
    left = [job for job in shared if (job.design, job.cell, job.phase, job.seed, job.rate) not in made]
    rates = {cell: best_rate(design, cell, rows) for cell in cells}
    if left or None in rates.values():
        return left
    timed = {row["cell"] for row in rows if (row["design"], row["phase"]) == (design.name, "alone")}
    seed = design.seeds[0]
    return [Job(design.name, cell, "alone", seed, rate) for cell, rate in rates.items() if rate and cell not in timed]


def _grid(design: Design, cells: Sequence[int]) -> Iterator[Job]:
    for factor in FACTORS:
        for cell in cells:
            yield Job(design.name, cell, "grid", 0, float(f"{own_rate(design, cell) * factor:.4g}"))


def _seeds(design: Design, cells: Sequence[int], rows: Sequence[dict[str, Any]]) -> Iterator[Job]:
    for seed in design.seeds:
        for cell in cells:
            rate = best_rate(design, cell, rows)
            if rate is not None:
                yield Job(design.name, cell, "seeds", seed, rate)


def make_run(design: Design, job: Job, folder: Path, home: Path) -> None:
    """Make a run in this process and write its row to `ID.json` in the folder."""
    os.environ["BURNISH_HOME"] = str(home)
    root = folder / job.id
    shutil.rmtree(root, ignore_errors=True)
    with (folder / f"{job.id}.log").open("w", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            row = _measured(design, job, root)
        except Exception:  # noqa: BLE001  whatever it is, it is this run's result
            traceback.print_exc()
            row = {"ended": "failed", "message": traceback.format_exc()[-600:]}
    said = asdict(job) | design.cells()[job.cell] | row | {"date": time.strftime("%Y-%m-%d")}
    shutil.rmtree(root, ignore_errors=True)
    temporary = folder / f"{job.id}.partial"
    temporary.write_text(json.dumps(said), encoding="utf-8")
    temporary.replace(folder / f"{job.id}.json")


def _measured(design: Design, job: Job, root: Path) -> dict[str, Any]:
    from burnish_engine.contract.errors import ExitCode
    from burnish_engine.contract.recipe.recipe import Recipe
    from burnish_engine.contract.recipe.recipe_evaluation import GuardSection
    from burnish_engine.duel.measures.energy import EnergyWatch, meter_for
    from burnish_engine.duel.measures.outcome import outcome_of
    from burnish_engine.duel.sides.spec import RunSpec, run_recipe
    from burnish_engine.runs.store import create_run
    from burnish_engine.train.run import run_training

    document: dict[str, Any] = {"evaluation": {"general_text": False}}
    for key, value in run_settings(design, job).items():
        section, _, name = key.partition(".")
        document.setdefault(section, {})[name] = value
    spec = RunSpec(side=job.cell, phase="grid" if job.phase == "grid" else "seeds", seed=job.seed, rate=job.rate)
    steps = document["train"].get("max_steps", 128)
    recipe = run_recipe(Recipe.model_validate(document), spec, every=max(1, steps // design.evaluations))
    recipe = recipe.model_copy(update={"guard": GuardSection(action="off")})  # which ends runs with many bad steps
    paths = create_run(recipe, root)
    energy = root / "energy.jsonl"
    with EnergyWatch(meter_for(recipe.devices) if job.phase == "alone" else None, energy):
        ended = run_training(paths, recipe, force=True, anyway=True)
    if ended.exit_code not in (ExitCode.DONE, ExitCode.DIVERGED):
        return {"ended": "failed", "message": ended.message, "steps": ended.step}
    found = outcome_of(spec, paths, energy)
    row = found.model_dump(
        mode="json",
        include={"ended", "message", "steps", "tokens", "held_out_loss", "training_s", "memory_bytes", "engine"},
    )
    row |= found.instability.model_dump() | {"device": found.conditions.device, "data": found.conditions.data[:12]}
    row["losses"] = [round(point.loss, 5) for point in found.evaluations]
    if job.phase == "alone":
        row |= {"tokens_per_s": found.tokens_per_s, "joules": found.joules}
    return row


class Pool:
    """Runs at once, each in a process of its own forked from one that has everything imported.

    Args:
        out: folder of the results.
        work: folder of the runs while they are made.
        together: most runs at once.
        start: how processes start: forkserver or spawn.
        until: moment by `time.monotonic` at which runs are dropped.
    """

    def __init__(self, out: Path, work: Path, together: int, start: str, until: float) -> None:
        self._context = multiprocessing.get_context(start)
        if start == "forkserver":
            self._context.set_forkserver_preload(_PRELOADED)
        self._out, self._work, self._together, self._until = out, work, together, until
        self._running: dict[int, tuple[Job, Any, float]] = {}
        self._took: dict[tuple[str, str], list[float]] = {}
        self._done = 0
        self._failures: dict[Job, int] = {}

    def carry_out(
        self, design: Design, rows: list[dict[str, Any]], log: Callable[[str], None], cells: Collection[int]
    ) -> bool:
        """Make all runs of a design's cells (true), or those that the time allows; rows grow as runs end."""
        try:
            while True:
                self._collect(rows, log)
                left = [job for job in ready(design, rows) if job.cell in cells]
                if not left and not self._running:
                    return True
                if time.monotonic() > self._until:
                    return False
                begun = {job for job, _, _ in self._running.values()}
                waiting = [job for job in left if job not in begun and self._failures.get(job, 0) < _TRIES]
                if not waiting and not self._running:
                    return False
                if waiting and not self._time_for(waiting[0]) and not self._running:
                    return False
                self._begin(design, waiting)
                time.sleep(0.05)
        finally:
            self._drop()

    def _begin(self, design: Design, waiting: Sequence[Job]) -> None:
        for job in waiting:
            most = 1 if job.phase == "alone" else self._together
            place = next((place for place in range(most) if place not in self._running), None)
            if place is None or len(self._running) >= most or not self._time_for(job):
                return
            home = self._work / f"home{place}"
            process = self._context.Process(target=make_run, args=(design, job, self._work, home))
            process.start()
            self._running[place] = job, process, time.monotonic()

    def _time_for(self, job: Job) -> bool:
        """Whether a run like those before it would end in time; the first ones are tried."""
        took = self._took.get((job.design, job.phase), [])
        return time.monotonic() + (statistics.median(took) if took else 0.0) < self._until

    def _collect(self, rows: list[dict[str, Any]], log: Callable[[str], None]) -> None:
        for place, (job, process, began) in list(self._running.items()):
            if process.is_alive():
                continue
            del self._running[place]
            process.join()
            file, seconds = self._work / f"{job.id}.json", time.monotonic() - began
            if file.is_file():
                row = json.loads(file.read_text(encoding="utf-8"))
            else:
                row = asdict(job) | {"ended": "failed", "message": f"The process ended with {process.exitcode}."}
            row["wall_s"], row["together"] = round(seconds, 1), self._together if job.phase != "alone" else 1
            if row["ended"] == "failed":
                self._failures[job] = self._failures.get(job, 0) + 1
                add_row(self._out / "failures.jsonl", row)
            else:
                self._done += 1
                rows.append(row)
                add_row(self._out / "results.jsonl", row)
                self._took.setdefault((job.design, job.phase), []).append(seconds)
            log(f"{job.id}: {row['ended']} {row.get('held_out_loss')} {seconds:.0f} s {row.get('message', '')[-300:]}")
            if sum(self._failures.values()) > max(2, self._done):
                sys.exit("Most runs fail: see failures.jsonl.")

    def _drop(self) -> None:
        for _, process, _ in self._running.values():
            process.kill()
        for _, process, _ in self._running.values():
            process.join()
        self._running.clear()


def _prepare(given: Path, work: Path, names: Sequence[str], *, tiny: bool) -> str:
    """Unpack corpus and models into the folder of the runs, and return the folder of the embedded model."""
    from burnish_engine.models.checkpoint import embedded

    if "scratch" in names and not (work / "corpus.jsonl").is_file():
        with lzma.open(given / "corpus.jsonl.xz") as packed, (work / "corpus.partial").open("wb") as corpus:
            shutil.copyfileobj(packed, corpus)
        (work / "corpus.partial").replace(work / "corpus.jsonl")
    if tiny:
        from support.models.tiny import make_llama

        return str(make_llama(work / "tiny"))
    if "scratch" in names:
        make_models(work, ["llama-55m"], given / "tokenizer")
    return str(embedded.ensure()) if "lora" in names else ""


def main() -> None:
    """Make the runs that are not there yet, as long as the time allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--given", type=Path, default=Path())
    parser.add_argument("--work", type=Path, help="folder of the runs while they are made, in FOLDER by default")
    parser.add_argument("--together", type=int, default=12, help="runs at once")
    parser.add_argument("--designs", nargs="+", choices=["lora", "scratch"], default=["lora", "scratch"])
    parser.add_argument("--cells", nargs="+", type=int, help="these cells alone, such as to repeat them")
    parser.add_argument("--start", choices=["forkserver", "spawn"], default="forkserver")
    parser.add_argument("--tiny", action="store_true", help="few cells and steps, to try the script")
    options = parser.parse_args()
    began = time.monotonic()
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}  # processes are forked without CUDA
    out, given = options.out.resolve(), options.given.resolve()
    work = (options.work or out / "work").resolve()
    for folder in (out, work):
        folder.mkdir(parents=True, exist_ok=True)
    rows = read_rows(out / "results.jsonl")
    known = {Job(*(row[name] for name in Job.__dataclass_fields__)).id for row in rows}
    for row in read_rows(given / "results.jsonl"):
        if Job(*(row[name] for name in Job.__dataclass_fields__)).id not in known:
            rows.append(row)
            add_row(out / "results.jsonl", row)

    def log(text: str) -> None:
        print(f"{time.monotonic() - began:.0f} s: {text}", flush=True)

    model = _prepare(given, work, options.designs, tiny=options.tiny)
    log(f"{len(rows)} runs are there")
    pool = Pool(out, work, options.together, options.start, began + 60 * options.minutes)
    for name, design in designs(model, work, tiny=options.tiny).items():
        if name in options.designs:
            done = pool.carry_out(design, rows, log, options.cells or range(len(design.cells())))
            log(f"{name}: {'all runs are made' if done else 'the time is up'}, {len(rows)} rows")
            if not done:
                return


if __name__ == "__main__":
    main()
