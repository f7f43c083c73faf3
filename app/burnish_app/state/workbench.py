"""The workbench: the chosen model, data, target, recipe and run. It is saved, so it survives closing the window.

The recipe holds the choices; `model_path`, `data_files`, `validation_files` and `target` are views into it, so the two
can never disagree. Facts, suggestion and plan that the engine derived from a choice are dropped when it changes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, QTimer, Signal

from burnish_app.state.objectives import task_of, with_objective
from burnish_app.state.preferences import studio_dir
from burnish_app.state.saved.dataset_inputs import DatasetInputs, dataset_choices, dataset_inputs
from burnish_app.state.saved.saved_work import LastWork, SavedWork
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.facts.advice import ModelFacts, RunPlan, Suggestion
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import Checkup, MachineFacts
from burnish_engine.contract.files import make_private, write_atomic
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.recipe.recipe_preference import Objective, PreferenceSection

_SAVE_AFTER_MS = 400
_LOG = logging.getLogger(__name__)


class ReplacedDraft(NamedTuple):
    """The recipe that a copy of a run's took the place of.

    Attributes:
        source: name of the run, or of the recipe's file.
        former: recipe before.
        copy: recipe that took its place.
    """

    source: str
    former: Recipe
    copy: Recipe


class Workbench(QObject):
    """Holds and saves what the person works on, and emits every change.

    Args:
        file: file that keeps the workbench; by default `workbench.json` in the studio's folder.
        parent: parent in Qt's object tree.

    Attributes:
        changed: signal with the name of the property that changed: model_path, model, data_files, validation_files,
            dataset, target, recipe, suggestion, plan, run, replaced, compared, duelists, choosing or machine. "recipe"
            comes with every change of a choice.
        last: what was worked on last, and what of it cannot be opened.
    """

    changed = Signal(str)

    def __init__(self, file: Path | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._file = file or studio_dir() / "workbench.json"
        self.last = LastWork(self._file)
        saved, self._recipe = self.last.saved, self.last.recipe
        self._model, self._dataset, self._suggestion = saved.model, saved.dataset, saved.suggestion
        self._last_dataset = self.data_files, saved.dataset
        choices = dataset_choices(self._recipe)
        self._dataset_from = DatasetInputs(choices, saved.stamps) if saved.stamps else None
        self._plan: RunPlan | None = None
        self._run = self.last.opened_run
        self._replaced: ReplacedDraft | None = None
        self._is_choosing = False
        self._compared: tuple[str, ...] = ()
        self._duelists: tuple[str, ...] = ()
        self._machine: MachineFacts | None = None
        self._checkup: Checkup | None = None
        self._texts = dict(saved.texts)
        self._timer = QTimer(self, singleShot=True, interval=_SAVE_AFTER_MS)
        self._timer.timeout.connect(self.save)

    @property
    def recipe(self) -> Recipe:
        """The recipe, which holds all choices."""
        return self._recipe

    @property
    def recipe_toml(self) -> str:
        """The recipe as TOML, the form that the engine's requests take."""
        return dump_recipe(self._recipe)

    @property
    def model_path(self) -> str:
        """The chosen model: "embedded", a folder, or the name of a fetched model."""
        return self._recipe.model.path

    @property
    def data_files(self) -> list[str]:
        """The absolute paths of the training files."""
        return list(self._recipe.data.files)

    @property
    def validation_files(self) -> list[str]:
        """The absolute paths of the held-out files."""
        return list(self._recipe.data.validation_files)

    @property
    def target(self) -> TargetSection:
        """The device that the finished model shall run on."""
        return self._recipe.target

    @property
    def model(self) -> ModelFacts | None:
        """The facts about the model; None until it was inspected."""
        return self._model

    @property
    def dataset(self) -> DatasetFacts | None:
        """The facts about the data; None until it was inspected with this model."""
        return self._dataset

    @property
    def last_dataset(self) -> DatasetFacts | None:
        """The facts about the chosen files, while they are inspected again the former ones; None: not known."""
        files, facts = self._last_dataset
        return facts if files == self.data_files else None

    @property
    def suggestion(self) -> Suggestion | None:
        """The engine's suggestion for this model, data and target; None: there is none."""
        return self._suggestion

    @property
    def plan(self) -> RunPlan | None:
        """The predicted memory and time of the recipe. It is not saved, because free memory changes."""
        return self._plan

    @property
    def run(self) -> str:
        """The folder of the run that the pages Train, Try it and Export show; empty: none."""
        return self._run

    @property
    def replaced(self) -> ReplacedDraft | None:
        """The recipe that a copy of a run's took the place of; None: there is none, or it was taken back."""
        return self._replaced

    @property
    def is_choosing(self) -> bool:
        """Whether a recipe is being chosen for what is here, so that this one may be another in a moment."""
        return self._is_choosing

    @property
    def compared(self) -> tuple[str, ...]:
        """The folders of the runs that the page Compare shows."""
        return self._compared

    @property
    def duelists(self) -> tuple[str, ...]:
        """The folders of the runs that were chosen for a duel."""
        return self._duelists

    @property
    def machine(self) -> MachineFacts | None:
        """The facts about this machine; None until it was inspected. They are not saved."""
        return self._machine

    @property
    def checkup(self) -> Checkup | None:
        """The check-up of this machine; None: it was not checked as it is now."""
        return self._checkup

    def text(self, place: str) -> str:
        """Return what was written at a place and not sent, also before the studio was closed or died.

        Args:
            place: name of the box.
        """
        return self._texts.get(place, "")

    def keep_text(self, place: str, text: str) -> None:
        """Keep what is written at a place and not sent yet.

        Args:
            place: name of the box.
            text: text in it; empty: nothing.
        """
        if text != self.text(place):
            self._texts[place] = text
            self._timer.start()

    def set_compared(self, folders: Sequence[str]) -> None:
        """Choose the runs to compare."""
        self._compared = tuple(folders)
        self._notify("compared")

    def set_duelists(self, folders: Sequence[str]) -> None:
        """Choose the runs whose recipes shall fight a duel."""
        self._duelists = tuple(folders)
        self._notify("duelists")

    def draft_copy(self, recipe: Recipe, source: str) -> None:
        """Make a copy of another recipe the draft; the former draft can be taken back.

        Args:
            recipe: recipe of a run or of a file.
            source: name of the run, or of the file.
        """
        self._replaced = ReplacedDraft(source, self._recipe, recipe)
        self.set_recipe(recipe)
        self._notify("replaced")

    def take_back_draft(self) -> None:
        """Take the draft back that a copy of a run's recipe had replaced."""
        if self._replaced is not None:
            former, self._replaced = self._replaced.former, None
            self.set_recipe(former)
            self._notify("replaced")

    def set_recipe(self, recipe: Recipe) -> None:
        """Replace the recipe and drop what was derived from the choices that changed."""
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
        if dataset_choices(before) != dataset_choices(recipe):
            self._dataset = None
            names.append("dataset")
        if before != recipe:
            self._plan = None
            self._notify(*dict.fromkeys([*names, "plan", "recipe"]))

    def set_model_path(self, path: str, *, keep_start: bool = False) -> None:
        """Choose a model.

        Args:
            path: "embedded", a folder, or the name of a fetched model.
            keep_start: whether an adapter to continue from stays; it belongs to one model.
        """
        if path == self.model_path:
            return
        model = self._recipe.model.model_copy(update={"path": path})
        adapter = self._recipe.adapter if keep_start else self._recipe.adapter.model_copy(update={"start": ""})
        self.set_recipe(self._recipe.model_copy(update={"model": model, "adapter": adapter}))

    def set_start(self, path: str) -> None:
        """Choose the adapter that training continues from.

        Args:
            path: folder of a run that has ended, or of an adapter in PEFT's format; empty: a new adapter.
        """
        update = {"start": path, **({"method": "lora"} if path and self._recipe.adapter.method == "full" else {})}
        adapter = self._recipe.adapter.model_copy(update=update)
        self.set_recipe(self._recipe.model_copy(update={"adapter": adapter}))

    def set_data_files(self, files: list[str]) -> None:
        """Choose the training files. Files that stay keep their weights; a new first file resets shape and columns."""
        data = self._recipe.data
        weights = dict(zip(data.files, data.weights, strict=False))
        kept = [weights.get(file, 1.0) for file in files]
        update: dict[str, Any] = {"files": list(files), "weights": kept if set(kept) - {1.0} else []}
        if data.files[:1] != files[:1]:
            update |= {"shape": "auto", "columns": []}
            self._recipe = self._recipe.model_copy(update={"preference": PreferenceSection(), "reward": []})
        self.change_data(**update)

    def set_validation_files(self, files: list[str]) -> None:
        """Choose the held-out files."""
        self.change_data(validation_files=list(files))

    def change_data(self, **update: Any) -> None:
        """Change fields of the recipe's data section. The micro-batch grows if the longest row would not fit into it.

        Args:
            **update: fields of the recipe's data section and their new values.
        """
        data = self._recipe.data.model_copy(update=update)
        train = self._recipe.train
        longest = data.max_length * self._recipe.preference.sequences
        if longest > train.micro_batch_tokens:
            train = train.model_copy(update={"micro_batch_tokens": longest})
        self.set_recipe(self._recipe.model_copy(update={"data": data, "train": train}))

    def set_objective(self, objective: Objective, dataset: DatasetFacts) -> None:
        """Choose what is learned.

        Args:
            objective: value of the recipe's preference.objective.
            dataset: facts about the rows that it is learned from.
        """
        self.set_recipe(with_objective(self._recipe, objective, dataset.shape, task_of(dataset)))

    def change_preference(self, field: str, value: float) -> None:
        """Change a number of the recipe's preference section.

        Args:
            field: name of the field.
            value: new value.

        Raises:
            pydantic.ValidationError: The value is not allowed.
        """
        values = self._recipe.preference.model_dump() | {field: value}
        section = PreferenceSection.model_validate(values)
        self.set_recipe(self._recipe.model_copy(update={"preference": section}))

    def set_target(self, target: TargetSection) -> None:
        """Choose the device that the finished model shall run on."""
        self.set_recipe(self._recipe.model_copy(update={"target": target}))

    def set_model(self, model: ModelFacts | None) -> None:
        """Keep the facts about the model."""
        self._model = model
        self._notify("model")

    def set_dataset(self, dataset: DatasetFacts | None, inputs: DatasetInputs | None = None) -> None:
        """Keep the facts about the data.

        Args:
            dataset: facts about the data; None: unknown.
            inputs: result of `dataset_inputs` from before the inspection; None: unknown.
        """
        self._dataset, self._dataset_from = dataset, inputs
        if dataset is not None:
            self._last_dataset = self.data_files, dataset
        self._notify("dataset")

    def dataset_inputs(self) -> DatasetInputs:
        """Return the inputs that a dataset inspection would have now."""
        return dataset_inputs(self._recipe, self.last.unopened)

    @property
    def data_was_replaced(self) -> bool:
        """Whether a data file changed on disk since it was inspected."""
        return self._dataset_from is not None and self._dataset_from.stamps != self.dataset_inputs().stamps

    def set_suggestion(self, suggestion: Suggestion | None) -> None:
        """Keep the engine's suggestion."""
        self._suggestion = suggestion
        self._notify("suggestion")

    def set_choosing(self, *, is_choosing: bool) -> None:
        """Note whether a recipe is being chosen."""
        if is_choosing != self._is_choosing:
            self._is_choosing = is_choosing
            self.changed.emit("choosing")

    def set_machine(self, machine: MachineFacts | None, checkup: Checkup | None) -> None:
        """Keep the facts about this machine, and its check-up."""
        if (machine, checkup) != (self._machine, self._checkup):
            self._machine, self._checkup = machine, checkup
            self.changed.emit("machine")

    def set_plan(self, plan: RunPlan | None) -> None:
        """Keep the predicted memory and time of the recipe."""
        self._plan = plan
        self._notify("plan")

    def set_run(self, folder: str) -> None:
        """Choose the run that the pages show.

        Args:
            folder: path of the run; empty: none.
        """
        if folder != self._run:
            self._run = folder
            self._notify("run")

    def lose_run(self) -> str:
        """Show the chosen run no more, which cannot be opened; it stays chosen on disk. Return the reason."""
        reason = self.last.lose(self._run)
        self.set_run("")
        return reason

    def look_again(self) -> None:
        """Look once more at what could not be opened. A run that can be opened now is shown, unless another one is."""
        run = self.last.look_again(self._recipe)
        if run and not self._run:
            self.set_run(run)

    def forget_lost_run(self) -> None:
        """Forget the run that could not be opened."""
        self.last.forget_run()
        self.save()

    def save(self) -> None:
        """Write the workbench to disk now. A failure is logged, not raised: the next change tries again."""
        self._timer.stop()
        saved = SavedWork(
            recipe=dump_recipe(self._recipe),
            model=self._model,
            dataset=self._dataset,
            stamps=self._dataset_from.stamps if self._dataset_from else (),
            suggestion=self._suggestion,
            run=self._run or self.last.run,
            former_run=self.last.run if self._run else "",
            texts=self._texts,
        )
        try:
            make_private(self._file.parent)
            write_atomic(self._file, saved.model_dump_json(indent=1), durable=False)
        except (OSError, BurnishError) as error:  # a full disk must not stop the person's work
            _LOG.warning("The workbench could not be saved: %s", error)

    def _notify(self, *names: str) -> None:
        self._timer.start()
        for name in names:
            self.changed.emit(name)
