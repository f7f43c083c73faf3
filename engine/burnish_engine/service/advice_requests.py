"""Requests for advice: what fits here, which model, which recipe."""

from __future__ import annotations

import json
from pathlib import Path

from burnish_engine.advise.catalog import EMBEDDED, catalog, find_model, models_here, search
from burnish_engine.advise.rank import rank
from burnish_engine.advise.suggest import ChosenModel, Wish, chosen_model, suggest
from burnish_engine.advise.what_fits import what_fits
from burnish_engine.channel.child import Child
from burnish_engine.channel.job import Job
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts import DatasetFacts
from burnish_engine.contract.protocol import (
    InspectRequest,
    ModelRequest,
    ModelsRequest,
    Result,
    SuggestRequest,
    WhatFitsRequest,
)
from burnish_engine.contract.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe_data import DataSection
from burnish_engine.contract.recipe_file import dump_recipe
from burnish_engine.contract.recipe_train import TrainSection
from burnish_engine.models.source import opens_without_torch
from burnish_engine.models.spec import rough_spec
from burnish_engine.service.machine import Machine
from burnish_engine.service.plans import Plans
from burnish_engine.service.recipes import read_recipe_text

_UNCUT_TOKENS = 1_048_576  # the schema's longest row: lengths are wanted as they are


class AdviceRequests:
    """Say what fits, rank models, suggest recipes.

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

    def what_fits(self, request: WhatFitsRequest, job: Job) -> Result:
        """How far this machine goes with the usual models, or with one."""
        only = self._chosen(request.model, job) if request.model else None
        found = what_fits(self._machine.facts(), catalog(), only=only, gpu_gib=request.gpu_gib, progress=job.progress)
        return Result(id=request.id, what_fits=found)

    def suggest(self, request: SuggestRequest, job: Job) -> Result:
        """A model and a recipe with reasons."""
        chosen = self._chosen(request.model, job) if request.model else None
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

    def _chosen(self, path: str, job: Job) -> ChosenModel:
        """The model that was asked for. One of a family that only transformers knows is judged by the worker."""
        listed = path == "embedded" or (find_model(path, catalog()) is not None and not Path(path).is_dir())
        if listed or opens_without_torch(path):
            return chosen_model(path, catalog(), models_here(catalog()))
        facts = self._data.ask(ModelRequest(id=job.id, path=path), job, about=f"the model {path}").model
        config = json.loads((Path(facts.folder) / "config.json").read_text(encoding="utf-8")) if facts else {}
        spec = rough_spec(config)
        if facts is None or spec is None:
            raise SetupError(
                f"The config.json in {path} does not say the model's shape in keys that Burnish knows.",
                "Write the recipe by hand; training may work.",
            )
        return ChosenModel(path, facts.name, spec, here=True, config=config)

    def _dataset(self, request: SuggestRequest, chosen: ChosenModel | None, job: Job) -> DatasetFacts | None:
        """What is in the files, tokenized by the model where it is here, else by the embedded one."""
        recipe = Recipe(
            model=ModelSection(path=chosen.path if chosen and chosen.here else "embedded"),
            data=_read_as(request).model_copy(
                update={
                    "files": list(request.data),
                    "weights": [],
                    "validation_files": list(request.validation),
                    "max_length": _UNCUT_TOKENS,
                }
            ),
            train=TrainSection(micro_batch_tokens=_UNCUT_TOKENS),
        )
        known = self._plans.dataset_of(recipe, any_model=chosen is None)
        if known is not None:
            return known
        ask = InspectRequest(id=request.id, recipe=dump_recipe(recipe))
        found = self._data.ask(ask, job, about=", ".join(request.data)).dataset
        if found is not None:
            self._plans.remember(recipe, found)
        return found


def _read_as(request: SuggestRequest) -> DataSection:
    """How rows are read, as the person has said."""
    return read_recipe_text(request.recipe).data if request.recipe else DataSection()
