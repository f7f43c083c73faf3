"""Store a duel on disk: its folder, and `duel.json` with its complete state and result.

```
duel.json      options, outcomes of the runs, verdicts; atomically replaced
report.html    the same for people
recipes/       the sides' recipes with absolute paths, and one of each run
runs/          a run folder each
energy/        samples of the GPU's energy counter, a file a run
logs/          what the runs' processes printed
owner.json     the process that carries the duel out
stop           a file whose presence asks that process to stop
duel.log       what a process that a window started printed
process_end.json  how that process ended, written by its parent
```
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import cannot_write, read_with_retry, write_atomic
from burnish_engine.contract.number import Moment
from burnish_engine.contract.paths import RunPaths, duels_dir, safe_name
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe, load_recipe
from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.contract.run.duels import DuelCheck, DuelJudge
from burnish_engine.duel.measures.outcome import RunOutcome
from burnish_engine.duel.sides.differences import DuelDifference
from burnish_engine.duel.sides.spec import DuelOptions, RunSpec, Side
from burnish_engine.duel.verdict.effects import factor_name
from burnish_engine.duel.verdict.rates import pair_level
from burnish_engine.duel.verdict.verdict import DuelVerdict
from burnish_engine.runs.process import is_alive, own_identity
from burnish_engine.runs.versioned import read_versioned

DUEL_VERSION = 1


class DuelState(BaseModel):
    """Content of `duel.json`.

    Attributes:
        created: time of creation, seconds since the epoch.
        options: options of the duel.
        sides: compared recipes.
        seed: seed of the first recipe.
        every: number of steps between evaluations.
        tried: factors of the duel: its sides are all combinations of their values. Empty: sides are recipes.
        differences: differences between the recipes.
        command: command line that started it.
        judge: measure that decides the duel.
        energy: description of the energy measurement; empty where there is none.
        outcomes: outcomes of the ended runs, in their order.
        checks: comparisons of the conditions.
        verdicts: verdicts, at the end.
        status: whether the duel is running or finished.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True)

    v: Literal[1] = 1
    created: Moment
    options: DuelOptions
    sides: list[Side]
    seed: int
    every: int
    tried: list[SweepSetting] = []
    differences: list[DuelDifference]
    command: str
    judge: DuelJudge = "held_out_loss"
    energy: str = ""
    outcomes: list[RunOutcome] = []
    checks: list[DuelCheck] = []
    verdicts: list[DuelVerdict] = []
    status: Literal["unfinished", "finished"] = "unfinished"

    @property
    def title(self) -> str:
        """Name of the duel: its factors, or its sides."""
        if self.tried:
            return " x ".join(factor_name(factor.key) for factor in self.tried)
        return " against ".join(side.name for side in self.sides)

    @property
    def level(self) -> float:
        """Confidence level of one verdict: pairs of sides share the chance of a wrong winner, effects do not."""
        return self.options.level if self.tried else pair_level(self.options.level, len(self.sides))

    @property
    def scores(self) -> dict[RunSpec, float]:
        """The judge's measure by run, lower is better."""
        return {outcome.spec: outcome.score for outcome in self.outcomes}


@dataclass(frozen=True)
class DuelFolder:
    """Paths inside a duel's folder."""

    root: Path

    @property
    def state(self) -> Path:
        """Path of the state."""
        return self.root / "duel.json"

    @property
    def report(self) -> Path:
        """Path of the report page."""
        return self.root / "report.html"

    @property
    def owner(self) -> Path:
        """Path of the file that names the process."""
        return self.root / "owner.json"

    @property
    def stop(self) -> Path:
        """Path of the file that asks the process to stop."""
        return self.root / "stop"

    @property
    def output(self) -> Path:
        """Path of the output of a process without a terminal."""
        return self.root / "duel.log"

    @property
    def end(self) -> Path:
        """Path of the record of how the process ended, written by its parent."""
        return self.root / "process_end.json"

    def recipe(self, side: Side) -> Path:
        """Path of a side's recipe."""
        return self.root / "recipes" / f"{side.letter.lower()}.toml"

    def run_recipe(self, spec: RunSpec) -> Path:
        """Path of a run's recipe."""
        return self.root / "recipes" / f"{spec.id}.toml"

    def run(self, spec: RunSpec) -> RunPaths:
        """Paths of a run's folder."""
        return RunPaths(self.root / "runs" / spec.id)

    def energy(self, spec: RunSpec) -> Path:
        """Path of the energy samples of a run."""
        return self.root / "energy" / f"{spec.id}.jsonl"

    def log(self, spec: RunSpec) -> Path:
        """Path of a run's output."""
        return self.root / "logs" / f"{spec.id}.log"


def create(state: DuelState, recipes: Sequence[Recipe], root: Path | None) -> DuelFolder:
    """Create a new duel's folder.

    Args:
        state: state at the start.
        recipes: recipes of the sides, with absolute paths.
        root: folder; by default a new one in the user's data folder.

    Raises:
        UsageError: The folder is not empty.
        NoSpaceError: The folder cannot be written.
    """
    folder = DuelFolder(root.absolute() if root else _new_name(state.sides))
    if folder.root.exists() and (not folder.root.is_dir() or any(folder.root.iterdir())):
        raise UsageError(
            f"The folder {folder.root} already holds something.",
            f"Give another --out, or continue the duel in it: burnish duel --resume {folder.root}",
        )
    try:
        for name in ("recipes", "runs", "logs"):
            (folder.root / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder.root, error) from error
    for side, recipe in zip(state.sides, recipes, strict=True):
        write_atomic(folder.recipe(side), dump_recipe(recipe))
    write_state(folder, state)
    return folder


def open_duel(root: Path) -> tuple[DuelFolder, DuelState]:
    """Open a duel that was begun.

    Raises:
        UsageError: There is no duel, or its state cannot be read.
    """
    folder = DuelFolder(root.absolute())
    remedy = "Its runs are whole: look at them with `burnish runs show`, or begin a new duel."
    try:
        state = read_versioned(folder.state, DuelState, DUEL_VERSION, what=f"The duel {folder.state}", remedy=remedy)
    except FileNotFoundError:
        raise UsageError(
            f"There is no duel in {folder.root} (no duel.json).", "Give the folder that `burnish duel` named."
        ) from None
    return folder, state


def side_recipes(folder: DuelFolder, state: DuelState) -> list[Recipe]:
    """Read the sides' recipes as they were at the start."""
    return [load_recipe(folder.recipe(side)) for side in state.sides]


def write_state(folder: DuelFolder, state: DuelState) -> None:
    """Replace `duel.json`.

    Raises:
        NoSpaceError: The file cannot be written.
    """
    write_atomic(folder.state, state.model_dump_json(indent=1) + "\n")


@contextmanager
def owned(folder: DuelFolder) -> Iterator[None]:
    """Hold the duel's lock inside the context, so that only this process runs it.

    Raises:
        UsageError: Another process holds it.
        NoSpaceError: The folder cannot be written.
    """
    lock = FileLock(str(folder.root / ".duel.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"The duel in {folder.root} is already being carried out by another process.", "Wait for it, or stop it."
        ) from None
    except OSError as error:
        raise cannot_write(folder.root, error) from error
    try:
        folder.stop.unlink(missing_ok=True)
        write_owner(folder, *own_identity())
        yield
    finally:
        lock.release()


def write_owner(folder: DuelFolder, pid: int, process_created: float) -> None:
    """Name the process that carries the duel out.

    Raises:
        NoSpaceError: The file cannot be written.
    """
    write_atomic(folder.owner, json.dumps({"pid": pid, "created": process_created}) + "\n")


def has_process(folder: DuelFolder) -> bool:
    """Whether a process carries the duel out."""
    try:
        owner = json.loads(read_with_retry(folder.owner))
        return is_alive(int(owner["pid"]), float(owner["created"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _new_name(sides: Sequence[Side]) -> Path:
    names = "-vs-".join(safe_name(side.name, "side").lower().replace(" ", "-") for side in sides)
    stem = duels_dir() / f"{datetime.fromtimestamp(time.time()):%Y%m%d-%H%M%S}-{names[:80]}"
    return next(
        path for path in (stem, *(stem.with_name(f"{stem.name}-{n}") for n in range(2, 1000))) if not path.exists()
    )
