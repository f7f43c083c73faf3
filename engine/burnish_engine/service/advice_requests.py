"""Requests for advice: which model, which recipe."""

from __future__ import annotations

import json
from pathlib import Path

from burnish_engine.advise.catalog import EMBEDDED, catalog, find_model, models_here, search
from burnish_engine.advise.rank import rank
from burnish_engine.advise.suggest import ChosenModel, Wish, catalog_model, suggest
from burnish_engine.channel.child import Child
from burnish_engine.channel.job import Job
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts import DatasetFacts, DecoderSpec
from burnish_engine.contract.paths import fetched_model_dir, is_model_name
from burnish_engine.contract.protocol import (
    InspectRequest,
    ModelRequest,
    ModelsRequest,
    Result,
    SuggestRequest,
)
from burnish_engine.contract.recipe import DataSection, ModelSection, Recipe
from burnish_engine.contract.recipe_file import dump_recipe
from burnish_engine.models.spec import rough_spec
from burnish_engine.service.machine import Machine
from burnish_engine.service.plans import Plans


class AdviceRequests:
    """Rank models, suggest recipes.

    Args:
        machine: Probes the machine.
        plans: Knows datasets that were inspected.
        data: The process that reads datasets and model folders.
    """

    def __init__(self, machine: Machine, plans: Plans, data: Child) -> None:
        self._machine = machine
        self._plans = plans
        self._data = data

    def models(self, request: ModelsRequest, _job: Job) -> Result:
        """The catalog, best first."""
        here = models_here(catalog()) | {EMBEDDED}
        found = rank(self._machine.facts(), search(request.query, catalog()), request.target, here=here)
        return Result(id=request.id, models=found)

    def suggest(self, request: SuggestRequest, job: Job) -> Result:
        """A model and a recipe with reasons."""
        chosen = self._chosen(request, job) if request.model else None
        wish = Wish(
            target=request.target,
            data=[str(Path(file).absolute()) for file in request.data],
            validation=[str(Path(file).absolute()) for file in request.validation],
            dataset=self._dataset(request, chosen, job) if request.data else None,
            model=chosen,
        )
        job.check()
        suggestion = suggest(self._machine.facts(), catalog(), wish, here=models_here(catalog()))
        return Result(id=request.id, suggestion=suggestion)

    def _chosen(self, request: SuggestRequest, job: Job) -> ChosenModel:
        """The model that was asked for: of the catalog, or a folder that the data process looks at."""
        path = request.model
        entry = find_model(EMBEDDED if path == "embedded" else path) if not Path(path).is_dir() else None
        if entry is not None and path == "embedded":
            return ChosenModel("embedded", entry.title, entry.spec, here=True, entry=entry)
        if entry is not None:
            return catalog_model(entry, models_here(catalog()))
        ask = ModelRequest(id=request.id, path=path)
        facts = self._data.ask(ask, job, about=f"the model {path}").model
        spec = facts.spec or _rough(Path(facts.folder)) if facts else None
        if facts is None or spec is None:
            raise SetupError(
                f"The config.json of {path} does not say the model's shape in keys that Burnish knows.",
                "Write the recipe by hand; training may work.",
            )
        return ChosenModel(path, facts.name, spec, here=True)

    def _dataset(self, request: SuggestRequest, chosen: ChosenModel | None, job: Job) -> DatasetFacts | None:
        """What is in the files, tokenized by the model where it is here, else by the embedded one."""
        model = chosen.path if chosen and _is_here(chosen.path) else "embedded"
        recipe = Recipe(
            model=ModelSection(path=model),
            data=DataSection(files=list(request.data), validation_files=list(request.validation)),
        )
        known = self._plans.dataset_of(recipe, any_model=chosen is None)
        if known is not None:
            return known
        ask = InspectRequest(id=request.id, recipe=dump_recipe(recipe))
        found = self._data.ask(ask, job, about=", ".join(request.data)).dataset
        if found is not None:
            self._plans.remember(recipe, found)
        return found


def _is_here(path: str) -> bool:
    return not is_model_name(path) or fetched_model_dir(path).is_dir()


def _rough(folder: Path) -> DecoderSpec | None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return rough_spec(config)
