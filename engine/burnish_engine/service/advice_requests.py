"""Answer requests for advice: what fits here, which model, which recipe."""

from __future__ import annotations

from pathlib import Path

from burnish_engine.advise.facts.catalog import EMBEDDED, catalog, fetched_models, find_model, search
from burnish_engine.advise.suggest.capacity import find_capacity
from burnish_engine.advise.suggest.objective import proposed_objective
from burnish_engine.advise.suggest.rank import judge_all
from burnish_engine.advise.suggest.suggest import ChosenModel, TrainingGoal, chosen_model, suggest
from burnish_engine.channel.child import Child
from burnish_engine.channel.job import Job
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.contract.serve.data_requests import InspectRequest
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import (
    LocalModelsRequest,
    ModelRequest,
    ModelsRequest,
    SearchHubRequest,
    SuggestRequest,
    WhatFitsRequest,
)
from burnish_engine.data.rows.shapes import PAIR_TOO_LONG
from burnish_engine.hub.judge_local import judge_local
from burnish_engine.hub.local_models import find_local_models
from burnish_engine.models.checkpoint.source import opens_without_torch, read_config
from burnish_engine.service.machine import MachineCache
from burnish_engine.service.plans import PlanService
from burnish_engine.service.recipes import read_recipe_text

_UNCUT_TOKENS = 1_048_576  # the schema's longest row: lengths are wanted uncut


class AdviceRequests:
    """Answer what fits, rank models, and suggest recipes.

    Args:
        machine: source of the machine's facts.
        plans: store of facts on inspected datasets.
        data: process that reads datasets and model folders.
    """

    def __init__(self, machine: MachineCache, plans: PlanService, data: Child) -> None:
        self._machine = machine
        self._plans = plans
        self._data = data

    def models(self, request: ModelsRequest, _job: Job) -> Result:
        """Return the catalog, best model first."""
        here = fetched_models(catalog()) | {EMBEDDED}
        found = search(request.query, catalog())
        judged = judge_all(self._machine.facts(), found, request.target, here=here, dataset=self._rows(request))
        return Result(id=request.id, models=[model.ranked for model in judged])

    def local_models(self, request: LocalModelsRequest, job: Job) -> Result:
        """Return the models on this machine, those that train best first."""
        found = judge_local(
            find_local_models(request.folders),
            self._machine.facts(),
            request.target,
            dataset=self._rows(request),
            progress=job.progress,
        )
        return Result(id=request.id, local_models=found)

    def search_hub(self, request: SearchHubRequest, job: Job) -> Result:
        """Return what the hub has under some words, judged for this machine."""
        from burnish_engine.hub.search import search_hub

        found = search_hub(
            request.query,
            self._machine.facts(),
            request.target,
            dataset=self._rows(request),
            progress=job.progress,
        )
        return Result(id=request.id, hub_models=found)

    def _rows(self, request: ModelsRequest | LocalModelsRequest | SearchHubRequest) -> DatasetFacts | None:
        """Find facts on the rows that models are judged for, counted with any model's tokenizer; None: not known."""
        if request.dataset is not None or not request.recipe:
            return request.dataset
        return self._plans.dataset_of(read_recipe_text(request.recipe), any_model=True)

    def capacity(self, request: WhatFitsRequest, job: Job) -> Result:
        """Return what fits on this machine for the usual models, or for one."""
        only = self._chosen(request.model, job) if request.model else None
        found = find_capacity(
            self._machine.facts(), catalog(), only=only, gpu_gib=request.gpu_gib, progress=job.progress
        )
        return Result(id=request.id, what_fits=found)

    def suggest(self, request: SuggestRequest, job: Job) -> Result:
        """Suggest a model and a recipe, with reasons."""
        chosen = self._chosen(request.model, job) if request.model else None
        own = _own_preference(request)
        wish = TrainingGoal(
            target=request.target,
            data=[str(Path(file).absolute()) for file in request.data],
            validation=[str(Path(file).absolute()) for file in request.validation],
            dataset=self._dataset(request, chosen, own, job) if request.data else None,
            model=chosen,
            objective=own.objective if own else None,
            preference=own,
            held_out=_read_as(request).validation_share if request.recipe else None,
        )
        job.check()
        machine = request.machine or self._machine.facts()
        suggestion = suggest(machine, catalog(), wish, here=fetched_models(catalog()))
        return Result(id=request.id, suggestion=suggestion)

    def _chosen(self, path: str, job: Job) -> ChosenModel:
        """Describe the requested model; the worker judges one of a family that only transformers knows."""
        listed = path == "embedded" or (find_model(path, catalog()) is not None and not Path(path).is_dir())
        if listed or opens_without_torch(path):
            return chosen_model(path, catalog(), fetched_models(catalog()))
        facts = self._data.ask(ModelRequest(id=job.id, path=path), job, about=f"the model {path}").model
        if facts is None or facts.spec is None:
            raise SetupError(
                f"The config.json in {path} does not say the model's shape in keys that Burnish knows.",
                "Write the recipe by hand; training may work.",
            )
        return ChosenModel(path, facts.name, facts.spec, here=True, config=read_config(Path(facts.folder)))

    def _dataset(
        self, request: SuggestRequest, chosen: ChosenModel | None, own: PreferenceSection | None, job: Job
    ) -> DatasetFacts | None:
        """Inspect the files for what is learned; recognized preferences once more for their usual objective."""
        found = self._inspected(request, chosen, own or PreferenceSection(), job)
        usual = proposed_objective(found.shape) if found is not None and own is None else None
        return self._inspected(request, chosen, PreferenceSection(objective=usual), job) if usual else found

    def _inspected(
        self, request: SuggestRequest, chosen: ChosenModel | None, preference: PreferenceSection, job: Job
    ) -> DatasetFacts | None:
        """Inspect the files, tokenized by the requested model where it is available, else by the embedded one."""
        if preference.learns_rewards:
            preference = PreferenceSection()  # its rows are read as those of replies that are learned
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
            train=TrainSection(micro_batch_tokens=_UNCUT_TOKENS * preference.sequences),
            preference=preference,
        )
        known = self._plans.dataset_of(recipe, any_model=chosen is None)
        if known is not None and not any(why.startswith(PAIR_TOO_LONG) for why in known.dropped):
            return known
        ask = InspectRequest(id=request.id, recipe=dump_recipe(recipe))
        found = self._data.ask(ask, job, about=", ".join(request.data)).dataset
        if found is not None:
            self._plans.remember(recipe, found)
        return found


def _read_as(request: SuggestRequest) -> DataSection:
    """Make the data section that reads rows as the person has said."""
    return read_recipe_text(request.recipe).data if request.recipe else DataSection()


def _own_preference(request: SuggestRequest) -> PreferenceSection | None:
    """Return what the person's recipe says is learned; None where it leaves that open."""
    recipe = read_recipe_text(request.recipe) if request.recipe else Recipe()
    return recipe.preference if recipe.preference.objective != "sft" or recipe.data.shape != "auto" else None
