"""The saved work, which the window opens with. Whatever its file names or holds, that happens, and nothing is lost.

Without Qt.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from burnish_app.look.language import tr
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.facts.advice import ModelFacts, Suggestion
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.files import read_with_retry
from burnish_engine.contract.paths import is_address
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import parse_recipe

_ANSWER_S = 1.0
"""Time within which a drive has to answer; one of a network that is gone takes minutes."""
_MOST_PATHS = 50
_MOST_ASIDE = 100
_LOG = logging.getLogger(__name__)


class SavedWork(BaseModel):
    """The content of the file.

    Attributes:
        v: version of the format.
        recipe: recipe as TOML, which holds all choices.
        model: facts about the model.
        dataset: facts about the data.
        stamps: size (bytes) and modification time (ns) of each data file as it was inspected.
        suggestion: newest suggestion.
        run: folder of the run that the pages show; empty: none.
        former_run: folder of a run that could not be opened when another one took its place; empty: none.
        texts: texts that were written and not sent, by their place.
    """

    model_config = ConfigDict(extra="ignore", protected_namespaces=(), ser_json_inf_nan="strings")

    v: int = 1
    recipe: str = ""
    model: ModelFacts | None = None
    dataset: DatasetFacts | None = None
    stamps: tuple[tuple[int, int], ...] = ()
    suggestion: Suggestion | None = None
    run: str = ""
    former_run: str = ""
    texts: dict[str, str] = {}


class LastWork:
    """The work of the last time, and what of it cannot be opened now.

    Args:
        file: file of it. One that cannot be read is renamed, so that it is not written over.

    Attributes:
        saved: content of the file; empty where it cannot be read.
        recipe: recipe in it.
        unread: reason why the file could not be read; empty: it could, or there is none.
        kept_as: name that such a file has now; empty: it could not be renamed.
        run: run that cannot be opened and stays chosen; empty: none.
        unopened: paths that cannot be opened, each with the reason.
    """

    def __init__(self, file: Path) -> None:
        self.saved, self.recipe = SavedWork(), Recipe()
        self.unread = self.kept_as = ""
        try:
            self.saved, self.recipe = _read(file)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, RecursionError, BurnishError) as error:
            self.unread = _reason(error)
            self.kept_as = put_aside(file)
            _LOG.warning("The saved workbench %s cannot be read: %s", file, error)
        runs = [run for run in (self.saved.run, self.saved.former_run) if run]
        self.unopened = unopened(self.recipe, runs)
        self.run = next((run for run in runs if run in self.unopened), "")

    @property
    def opened_run(self) -> str:
        """The run that the pages can show; empty: none."""
        return next((run for run in (self.saved.run, self.saved.former_run) if run not in self.unopened), "")

    def look_again(self, recipe: Recipe) -> str:
        """Look once more at what could not be opened, and return the run if it can be opened now; else empty.

        Args:
            recipe: recipe as it is now.
        """
        run = self.run
        self.unopened = unopened(recipe, [run] if run else [])
        if not run or run in self.unopened:
            return ""
        self.run = ""
        return run

    def lose(self, run: str) -> str:
        """Keep a run that cannot be opened any more as the chosen one, and return the reason.

        Args:
            run: folder of the run.
        """
        reason = _problem(run, is_run=True) or os.strerror(2)
        self.run, self.unopened = run, {**self.unopened, run: reason}
        return reason

    def forget_run(self) -> None:
        """Forget the run that cannot be opened."""
        self.unopened.pop(self.run, None)
        self.run = ""


def unopened(recipe: Recipe, runs: Sequence[str], limit_s: float = _ANSWER_S) -> dict[str, str]:
    """Return the paths that cannot be opened, each with the reason.

    Each path is looked at in a thread of its own: a drive that does not answer holds up nothing but its thread.

    Args:
        recipe: recipe with the paths of model, adapter and data; names and addresses are left out.
        runs: folders of runs.
        limit_s: time to wait for all of them, seconds.
    """
    data = recipe.data
    named = [recipe.model.path, recipe.adapter.start, data.template, *data.files, *data.validation_files]
    paths = {path: False for path in named if not is_address(path) and Path(path).is_absolute()}
    paths = dict(list(paths.items())[:_MOST_PATHS]) | dict.fromkeys(runs, True)
    found: dict[str, str] = {}

    def check(path: str, is_run: bool) -> None:
        found[path] = _problem(path, is_run=is_run)

    threads = [Thread(target=check, args=each, daemon=True) for each in paths.items()]
    until = time.monotonic() + limit_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))
    reasons = {path: found.get(path, tr("the drive does not answer")) for path in paths}
    return {path: reason for path, reason in reasons.items() if reason}


def put_aside(file: Path) -> str:
    """Rename a file that cannot be read, so that it is not written over, and return its new name; empty: it stays.

    Args:
        file: the file.
    """
    for number in range(1, _MOST_ASIDE):
        aside = file.with_name(f"{file.stem}-unread-{number}{file.suffix}")
        if not os.path.lexists(aside):
            try:
                file.rename(aside)
            except OSError:
                return ""
            return aside.name
    return ""


def _read(file: Path) -> tuple[SavedWork, Recipe]:
    text = read_with_retry(file)
    try:
        saved = SavedWork.model_validate_json(text)
    except ValidationError:  # facts of another version can be found out again; what was chosen cannot
        found: Any = json.loads(text)
        chosen = found if isinstance(found, dict) else {"recipe": None}
        keys = ("recipe", "run", "former_run")
        saved = SavedWork.model_validate({key: chosen[key] for key in keys if key in chosen})
    return saved, parse_recipe(saved.recipe)


def _problem(path: str, *, is_run: bool) -> str:
    """Return why a path cannot be opened; empty: it can."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError) as error:
        return _reason(error)
    if stat.S_ISDIR(mode):
        return "" if os.access(path, os.R_OK | os.X_OK) else os.strerror(13)
    if is_run or not stat.S_ISREG(mode):
        return tr("it is no folder") if is_run else tr("it is a pipe or a device")
    return "" if os.access(path, os.R_OK) else os.strerror(13)


def _reason(error: Exception) -> str:
    if isinstance(error, BurnishError):
        return error.what.rstrip(".")
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return tr("its name holds a null character") if "null" in str(error) else tr("its content is damaged")
