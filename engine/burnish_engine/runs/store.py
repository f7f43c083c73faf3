"""Create, open, find and list run folders. The guide's page on files describes the format."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from burnish_engine.contract.errors import NoSpaceError, UsageError
from burnish_engine.contract.files import cannot_write, is_file, make_private, read_with_retry, write_atomic
from burnish_engine.contract.paths import RunPaths, runs_dir, safe_name
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe, load_recipe, recipe_hash
from burnish_engine.contract.run.process_end import ProcessEnd
from burnish_engine.contract.run.state import STATE_VERSION, ObservedStatus, RunStateFile, observed_status
from burnish_engine.runs.process import is_alive
from burnish_engine.runs.versioned import read_versioned


@dataclass(frozen=True)
class StoredRun:
    """Paths, stored state and current status of a run."""

    paths: RunPaths
    state: RunStateFile
    status: ObservedStatus

    @property
    def process_end(self) -> ProcessEnd | None:
        """End of an interrupted run's process; None where nobody saw it."""
        if self.status != "interrupted":
            return None
        return read_process_end(self.paths.process_end, since=self.state.heartbeat)


def read_process_end(file: Path, *, since: float) -> ProcessEnd | None:
    """Read how a process ended; None where nobody saw it, or only that of an earlier one.

    Args:
        file: record of the end.
        since: moment at which the process lived, seconds since the epoch.
    """
    try:
        end = ProcessEnd.model_validate_json(read_with_retry(file))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None
    return end if end.t >= since else None


def create_run(recipe: Recipe, root: Path | None = None) -> RunPaths:
    """Create a run folder with its frozen recipe and first state.

    Args:
        recipe: recipe with absolute paths.
        root: folder; by default a new one under the user's runs folder.

    Raises:
        UsageError: The folder exists and is not empty.
        NoSpaceError: The folder cannot be written.
    """
    paths = RunPaths(root.absolute() if root else _free_name(recipe))
    if is_file(paths.root):
        raise UsageError(f"The run folder {paths.root} is a file.", "Give another --run-dir: a new folder.")
    if paths.root.exists() and any(paths.root.iterdir()):
        held = "another run" if is_file(paths.state) else "something"
        on = f", or continue with that run: `burnish runs resume {typed(paths.root)}`" if is_file(paths.state) else ""
        raise UsageError(f"The run folder {paths.root} already holds {held}.", f"Give another --run-dir{on}.")
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(paths.root, error) from error
    write_atomic(paths.recipe, dump_recipe(recipe))
    paths.control.touch()
    write_state(
        paths,
        RunStateFile(
            run=paths.root.name,
            name=(recipe.name or paths.root.name) if root else _free_title(recipe, besides=paths.root),
            recipe_hash=recipe_hash(recipe),
            created=time.time(),
        ),
    )
    return paths


def open_run(reference: str | Path, *, others: Iterable[str] = ()) -> RunPaths:
    """Find a run folder by path or by its name under the user's runs folder; "last" is the newest.

    Args:
        reference: path, name or "last".
        others: other things the reference could mean; the message names those close to it.

    Raises:
        UsageError: There is no such run, or another version of Burnish made it.
    """
    candidates = [Path(reference), runs_dir() / str(reference)]
    if str(reference) == "last":
        newest = [summary.paths.root for summary in list_runs()][:1]
        candidates = newest or candidates
    for folder in candidates:
        paths = RunPaths(folder.absolute())
        if is_file(paths.state):
            read_state(paths)
            return paths
    folder = candidates[0]
    if os.path.isdir(folder):  # noqa: PTH112  Path.is_dir raises errors of the system
        raise UsageError(
            f"{folder} is not a run folder (it has no state.json).", "Give a folder made by `burnish train`."
        )
    names = [summary.paths.root.name for summary in list_runs()]
    if str(reference) == "last" and not names:
        raise UsageError(
            f"There are no runs in {runs_dir()} yet.",
            "`burnish train recipe.toml` makes one; name a run in another place by its folder.",
        )
    known = ["last", *names, *others]
    close = difflib.get_close_matches(str(reference), known, n=3)
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(f"There is no run {str(reference)!r}.", f"{hint}`burnish runs list` shows the runs there are.")


def adapter_of(paths: RunPaths) -> Path:
    """Return the folder of the run's trained adapter.

    Raises:
        UsageError: There is no adapter yet, or the run trains the whole model.
    """
    if trains_whole_model(paths):
        raise UsageError(
            f'The run {paths.root.name} trained every weight (adapter.method = "full"), so it has no adapter.',
            f"Take the model: burnish export {typed(paths.root.name)} --to safetensors, or --to gguf.",
        )
    if not (paths.adapter / "adapter_model.safetensors").is_file():
        raise UsageError(
            f"The run {paths.root.name} has no adapter yet; it is saved at the end and when a run is stopped.",
            f"Wait for it, or finish it: burnish runs resume {typed(paths.root.name)}",
        )
    return paths.adapter


def trained_of(paths: RunPaths) -> Path:
    """Return the folder of the trained result: the adapter, or the whole model.

    Raises:
        UsageError: There is no trained result yet.
    """
    if not trains_whole_model(paths):
        return adapter_of(paths)
    if not has_trained_model(paths):
        raise UsageError(
            f"The run {paths.root.name} has no model yet; it is saved at the end and when a run is stopped.",
            f"Wait for it, or finish it: burnish runs resume {typed(paths.root.name)}",
        )
    return paths.model


def has_trained_model(paths: RunPaths) -> bool:
    """Whether the run trained a whole model and saved it."""
    return (paths.model / "model.safetensors").is_file()


def trains_whole_model(paths: RunPaths) -> bool:
    """Whether the run trains every weight instead of an adapter."""
    return paths.model.is_dir() or (paths.recipe.is_file() and read_recipe(paths).adapter.method == "full")


def read_recipe(paths: RunPaths) -> Recipe:
    """Read the run's frozen recipe."""
    return load_recipe(paths.recipe)


def with_own_template(paths: RunPaths, recipe: Recipe) -> Recipe:
    """Replace the recipe's chat template with the run's own copy: the file that it names may have changed since.

    Args:
        paths: paths of the run folder.
        recipe: recipe of the run.
    """
    if not paths.template.is_file():
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"template": str(paths.template)})})


def read_state(paths: RunPaths) -> RunStateFile:
    """Read the run's state.

    Raises:
        UsageError: The file was written by another version, is damaged, or cannot be read.
    """
    remedy = "The checkpoints beside it may be whole: copy them away before deleting the run."
    try:
        return read_versioned(paths.state, RunStateFile, STATE_VERSION, what=str(paths.state), remedy=remedy)
    except FileNotFoundError:
        raise UsageError(
            f"There is no run at {paths.root} any more.", "`burnish runs list` shows the others."
        ) from None


def write_state(paths: RunPaths, state: RunStateFile) -> None:
    """Replace `state.json`."""
    write_atomic(paths.state, state.model_dump_json(indent=2) + "\n")


def summarize(paths: RunPaths) -> StoredRun:
    """Read the state of a run and derive its current status."""
    state = read_state(paths)
    alive = is_alive(state.pid, state.process_created)
    return StoredRun(paths, state, observed_status(state, owner_alive=alive, now=time.time()))


def list_runs() -> list[StoredRun]:
    """List all runs under the user's runs folder, newest first, without folders that cannot be read."""
    found = []
    folder = runs_dir()
    for root in folder.iterdir() if folder.is_dir() else ():
        paths = RunPaths(root)
        if is_file(paths.state):
            try:
                found.append(summarize(paths))
            except UsageError:
                continue
    return sorted(found, key=lambda summary: summary.state.created, reverse=True)


def _free_title(recipe: Recipe, besides: Path) -> str:
    """Return a name for people that no other run has: the recipe's, counted up, or the model's with date and time."""
    name = recipe.name or f"{Path(recipe.model.path).name}, {datetime.now():%Y-%m-%d %H:%M}"
    taken = {run.state.name for run in list_runs() if run.paths.root != besides}
    counted = re.fullmatch(r"(.+) (\d{1,6})", name)
    stem, first = (counted[1], int(counted[2]) + 1) if counted else (name, 2)
    further = (f"{stem} {number}" for number in itertools.count(first))
    return next(one for one in itertools.chain([name], further) if one not in taken)


def _free_name(recipe: Recipe) -> Path:
    label = recipe.name or Path(recipe.model.path).name
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{safe_name(label, 'run').lower().replace(' ', '-')}"
    try:
        make_private(runs_dir())
    except OSError as error:
        raise cannot_write(runs_dir(), error) from error
    for suffix in ("", *(f"-{n}" for n in range(2, 100))):
        root = runs_dir() / (stem + suffix)
        try:
            root.mkdir(mode=0o700)
            return root
        except FileExistsError:
            continue
        except OSError as error:
            raise cannot_write(root, error) from error
    raise NoSpaceError(f"No free name for a run beside {runs_dir() / stem}.", "Give one with --run-dir.")
