"""What the person works on: model, data, target, recipe, and the run being looked at. Survives closing the window.

The recipe holds the choices; `model_path`, `data_files`, `validation_files` and `target` are views into it, so the two
can never disagree. What was found out about a choice (facts, suggestion, plan) is dropped when that choice changes.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from PySide6.QtCore import QObject, QTimer, Signal

from burnish_app.preferences import studio_dir
from burnish_engine.contract.advice import ModelFacts, Plan, Suggestion
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.facts import DatasetFacts
from burnish_engine.contract.files import make_private, read_with_retry, write_atomic
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_export import TargetSection
from burnish_engine.contract.recipe_file import dump_recipe, parse_recipe

_SAVE_AFTER_MS = 400
_LOG = logging.getLogger(__name__)


class _Saved(BaseModel):
    model_config = ConfigDict(extra="ignore", protected_namespaces=(), ser_json_inf_nan="strings")

    v: int = 1
    recipe: str = ""
    model: ModelFacts | None = None
    dataset: DatasetFacts | None = None
    suggestion: Suggestion | None = None
    run: str = ""


class DatasetInputs(NamedTuple):
    """The inputs that facts about the data are found out from.

    Attributes:
        recipe: the recipe's sections on model and data.
        stamps: size and time of change of each file.
    """

    recipe: tuple[object, ...]
    stamps: tuple[tuple[int, int], ...]


def _stamp(name: str) -> tuple[int, int]:
    """Size (bytes) and time of change (ns) of a file or folder; zeros where there is none."""
    try:
        status = Path(name).stat()
    except (OSError, ValueError):
        return 0, 0
    return status.st_size, status.st_mtime_ns


class Workbench(QObject):
    """What the person works on.

    Args:
        file: Where it is kept; by default in the studio's folder.
        parent: Qt parent.

    Attributes:
        changed: Emits the name of the property that changed: model_path, model, data_files, validation_files, dataset,
            target, recipe, suggestion, plan or run. "recipe" comes with every change of a choice.
    """

    changed = Signal(str)

    def __init__(self, file: Path | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._file = file or studio_dir() / "workbench.json"
        self._recipe = Recipe()
        self._model: ModelFacts | None = None
        self._dataset: DatasetFacts | None = None
        self._suggestion: Suggestion | None = None
        self._dataset_from: DatasetInputs | None = None
        self._plan: Plan | None = None
        self._run = ""
        self._timer = QTimer(self, singleShot=True, interval=_SAVE_AFTER_MS)
        self._timer.timeout.connect(self.save)
        self._restore()

    @property
    def recipe(self) -> Recipe:
        """All choices."""
        return self._recipe

    @property
    def recipe_toml(self) -> str:
        """The recipe as the engine's requests take it."""
        return dump_recipe(self._recipe)

    @property
    def model_path(self) -> str:
        """The model: "embedded", a folder, or the name of a fetched one."""
        return self._recipe.model.path

    @property
    def data_files(self) -> list[str]:
        """Training files, absolute."""
        return list(self._recipe.data.files)

    @property
    def validation_files(self) -> list[str]:
        """Held-out files, absolute."""
        return list(self._recipe.data.validation_files)

    @property
    def target(self) -> TargetSection:
        """Where the result shall run."""
        return self._recipe.target

    @property
    def model(self) -> ModelFacts | None:
        """What was found out about the model; None until it was looked at."""
        return self._model

    @property
    def dataset(self) -> DatasetFacts | None:
        """What was found out about the data; None until it was looked at with this model."""
        return self._dataset

    @property
    def suggestion(self) -> Suggestion | None:
        """What the engine suggested for this model, data and target."""
        return self._suggestion

    @property
    def plan(self) -> Plan | None:
        """What the recipe will take. Not kept over a restart: free memory changes."""
        return self._plan

    @property
    def run(self) -> str:
        """Folder of the run that Train, Try it and Export show."""
        return self._run

    def set_recipe(self, recipe: Recipe) -> None:
        """Change any of the choices at once."""
        before, self._recipe = self._recipe, recipe
        names = []
        if before.model != recipe.model:
            self._model = self._suggestion = None
            names += ["model_path", "model", "suggestion"]
        if before.data.files != recipe.data.files:
            self._suggestion = None
            names += ["data_files", "suggestion"]
        if before.data.validation_files != recipe.data.validation_files:
            names.append("validation_files")
        if before.target != recipe.target:
            self._suggestion = None
            names += ["target", "suggestion"]
        if before.model != recipe.model or before.data != recipe.data:
            self._dataset = None
            names.append("dataset")
        if before != recipe:
            self._plan = None
            self._tell(*dict.fromkeys([*names, "plan", "recipe"]))

    def set_model_path(self, path: str) -> None:
        """Choose a model."""
        model = self._recipe.model.model_copy(update={"path": path})
        self.set_recipe(self._recipe.model_copy(update={"model": model}))

    def set_data_files(self, files: list[str]) -> None:
        """Choose the training files. Those that were there keep their weights; other columns are recognized anew."""
        data = self._recipe.data
        weights = dict(zip(data.files, data.weights, strict=False))
        kept = [weights.get(file, 1.0) for file in files]
        update: dict[str, Any] = {"files": list(files), "weights": kept if set(kept) - {1.0} else []}
        if data.files[:1] != files[:1]:
            update |= {"shape": "auto", "columns": []}
        self.change_data(**update)

    def set_validation_files(self, files: list[str]) -> None:
        """Choose the held-out files."""
        self.change_data(validation_files=list(files))

    def change_data(self, **update: Any) -> None:
        """Change how the data is read and what is done to rows. Passes grow where a longest row would not fit them.

        Args:
            **update: Fields of the recipe's data section.
        """
        data = self._recipe.data.model_copy(update=update)
        train = self._recipe.train
        if data.max_length > train.micro_batch_tokens:
            train = train.model_copy(update={"micro_batch_tokens": data.max_length})
        self.set_recipe(self._recipe.model_copy(update={"data": data, "train": train}))

    def set_target(self, target: TargetSection) -> None:
        """Choose where the result shall run."""
        self.set_recipe(self._recipe.model_copy(update={"target": target}))

    def set_model(self, model: ModelFacts | None) -> None:
        """Keep what was found out about the model."""
        self._model = model
        self._tell("model")

    def set_dataset(self, dataset: DatasetFacts | None, inputs: DatasetInputs | None = None) -> None:
        """Keep what was found out about the data.

        Args:
            dataset: the facts; None: they are not known.
            inputs: `dataset_inputs` from before the facts were found out; None: not known.
        """
        self._dataset, self._dataset_from = dataset, inputs
        self._tell("dataset")

    def dataset_inputs(self) -> DatasetInputs:
        """The inputs of facts about the data, as they are now."""
        recipe = self._recipe
        names = [*recipe.data.files, *recipe.data.validation_files, recipe.data.template]
        return DatasetInputs((recipe.model, recipe.data), tuple(_stamp(name) for name in names))

    @property
    def data_was_replaced(self) -> bool:
        """Whether a data file changed on the disk since it was looked at."""
        return self._dataset_from is not None and self._dataset_from.stamps != self.dataset_inputs().stamps

    def set_suggestion(self, suggestion: Suggestion | None) -> None:
        """Keep what the engine suggested."""
        self._suggestion = suggestion
        self._tell("suggestion")

    def set_plan(self, plan: Plan | None) -> None:
        """Keep what the recipe will take."""
        self._plan = plan
        self._tell("plan")

    def set_run(self, folder: str) -> None:
        """Choose the run to look at; empty: none."""
        if folder != self._run:
            self._run = folder
            self._tell("run")

    def save(self) -> None:
        """Write it to disk now."""
        self._timer.stop()
        saved = _Saved(
            recipe=dump_recipe(self._recipe),
            model=self._model,
            dataset=self._dataset,
            suggestion=self._suggestion,
            run=self._run,
        )
        try:
            make_private(self._file.parent)
            write_atomic(self._file, saved.model_dump_json(indent=1), durable=False)
        except (
            OSError,
            BurnishError,
        ) as error:  # a full disk must not stop the person's work; the next save tries again
            _LOG.warning("The workbench could not be saved: %s", error)

    def _tell(self, *names: str) -> None:
        self._timer.start()
        for name in names:
            self.changed.emit(name)

    def _restore(self) -> None:
        try:
            saved = _Saved.model_validate_json(read_with_retry(self._file))
            self._recipe = parse_recipe(saved.recipe)
        except FileNotFoundError:
            return
        except (OSError, ValidationError, BurnishError, UnicodeDecodeError) as error:
            _LOG.warning("The saved workbench %s could not be read and starts empty: %s", self._file, error)
            return
        self._model, self._dataset, self._suggestion = saved.model, saved.dataset, saved.suggestion
        self._run = saved.run if Path(saved.run).is_dir() else ""
