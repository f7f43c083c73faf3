"""Make plans while a slider moves: without torch where the model allows it, with the known facts on the dataset."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from burnish_engine.advise.plan.plan import planned_device, refuse_unfit
from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.advise.plan.recipe_fit import facts_for_recipe
from burnish_engine.channel.child import Child
from burnish_engine.channel.job import Job
from burnish_engine.contract.errors import DoesNotFitError, SetupError, StoppedError
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.on_gpus import recipe_there
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.recipe.sweep import SweepCell
from burnish_engine.contract.serve.data_requests import EstimateRequest, OffersRequest
from burnish_engine.contract.serve.messages import Result
from burnish_engine.hardware.gpu.visible import lease_name_of
from burnish_engine.models.checkpoint.source import opens_without_torch
from burnish_engine.runs.jobs import lease
from burnish_engine.service.machine import MachineCache
from burnish_engine.service.recipes import data_key, read_recipe_text, rows_of

_DATASETS_KEPT = 8


class PlanService:
    """Make plans and remember facts on inspected datasets.

    Args:
        machine: source of the machine's facts.
        data: process that opens models which need transformers to be judged.
    """

    def __init__(self, machine: MachineCache, data: Child) -> None:
        self._machine = machine
        self._data = data
        self._datasets: dict[str, tuple[Recipe, DatasetFacts]] = {}
        self._kept = threading.Lock()
        self._turn = threading.Lock()
        self._newest: str = ""

    def remember(self, recipe: Recipe, facts: DatasetFacts) -> None:
        """Use a dataset's facts in the following plans, as long as its files do not change."""
        with self._kept:
            self._datasets[data_key(recipe, packing=False)] = recipe, facts
            while len(self._datasets) > _DATASETS_KEPT:
                del self._datasets[next(iter(self._datasets))]

    def dataset_of(self, recipe: Recipe, *, any_model: bool = False) -> DatasetFacts | None:
        """Find still valid facts on the recipe's files, from inspections with any other settings; None: unknown.

        Args:
            recipe: recipe whose model and files count, and whether pairs or labels are learned from.
            any_model: whether facts with any model's tokenizer will do.
        """
        files = recipe.data.files, recipe.data.validation_files, rows_of(recipe.preference)
        with self._kept:
            for key, (known, facts) in reversed(self._datasets.items()):
                same_model = any_model or known.model.path == recipe.model.path
                same_files = (known.data.files, known.data.validation_files, rows_of(known.preference)) == files
                if same_model and same_files and data_key(known, packing=False) == key:
                    return facts
        return None

    def estimate(self, request: EstimateRequest, job: Job) -> Result:
        """Plan a recipe. Of estimates that wait for their turn only the newest is made.

        Raises:
            StoppedError: A newer request came.
        """
        self._newest = request.id
        with self._turn:
            job.check()
            if self._newest != request.id:
                job.cancel()
                raise StoppedError("A newer estimate was asked for.")
            recipe = read_recipe_text(request.recipe)
            if request.dataset is not None:
                self.remember(recipe, request.dataset)
            return Result(id=request.id, plan=self.plan(recipe, job, request.machine))

    def offers(self, request: OffersRequest, job: Job) -> Result:
        """Plan a recipe on the machines of the place that it names.

        Raises:
            BurnishError: The place refuses or cannot be reached, or has no machine with so many GPUs.
        """
        from burnish_engine.remote.backends.backend import DroppedError
        from burnish_engine.remote.places import open_backend
        from burnish_engine.remote.plan_there import place_offers, plan_there

        recipe = read_recipe_text(request.recipe)
        if request.dataset is not None:
            self.remember(recipe, request.dataset)
        where = recipe.devices.where

        def planned(recipe: Recipe, *, dataset: DatasetFacts | None, machine: MachineFacts) -> RunPlan:
            job.check()
            return self._planned(recipe, job, machine, dataset)

        try:
            found = open_backend(recipe.devices.place).offers()
        except DroppedError as dropped:
            raise SetupError(f"{where} cannot be reached: {dropped}.", "Try again.") from None
        plans = plan_there(recipe, found, dataset=self._dataset(recipe), planner=planned)
        return Result(id=request.id, offers=place_offers(where, plans, recipe.devices.timeout_hours))

    def plan(self, recipe: Recipe, job: Job, machine: MachineFacts | None = None) -> RunPlan:
        """Plan a recipe for a machine's current state.

        Args:
            recipe: recipe with absolute paths.
            job: request that the plan is for.
            machine: facts of another machine; None: this one.

        Raises:
            BurnishError: The model or the GPU cannot be used.
        """
        dataset = self._dataset(recipe)
        if machine is not None:
            recipe = recipe_there(recipe)
        return self._planned(recipe, job, machine, dataset)

    def _planned(self, recipe: Recipe, job: Job, machine: MachineFacts | None, dataset: DatasetFacts | None) -> RunPlan:
        if opens_without_torch(recipe.model.path):
            return plan_recipe(recipe, dataset=dataset, machine=machine or self._machine.facts())
        request = EstimateRequest(id=job.id, recipe=dump_recipe(recipe), dataset=dataset, machine=machine)
        answer = self._data.ask(request, job, about=f"the model {recipe.model.path}").plan
        if answer is None:
            raise SetupError("The data process gave no plan.", "Try again.")
        return answer

    def _dataset(self, recipe: Recipe) -> DatasetFacts | None:
        """Find facts from an inspection with exactly these settings, or with others and scaled to these."""
        with self._kept:
            exact = self._datasets.get(data_key(recipe, packing=False))
        return exact[1] if exact else facts_for_recipe(recipe, self.dataset_of(recipe))

    def require_fit(self, recipe: Recipe, job: Job) -> None:
        """Check that a run can be started.

        Raises:
            DoesNotFitError: The run does not fit.
            NoSpaceError: The disk is too full.
        """
        machine = self._machine.facts(fresh=True)
        plan = self.plan(recipe, job)
        if not will_fit(recipe, plan, machine):
            refuse_unfit(plan)


def will_fit(recipe: Recipe, plan: RunPlan, machine: MachineFacts) -> bool:
    """Whether a run fits. Where another run holds its device it will wait, so the device's total memory counts."""
    waits = lease.holder_of(lease_of(recipe, machine)) is not None
    return plan.fits or (waits and plan.memory_bytes <= plan.memory_total_bytes)


def refuse_unfit_sweep(cells: Sequence[SweepCell], plans: Sequence[RunPlan], machine: MachineFacts) -> None:
    """Refuse a sweep with a run that will not fit.

    Args:
        cells: recipe of each run.
        plans: plan of each run.
        machine: facts of the machine.

    Raises:
        DoesNotFitError: A run does not fit.
    """
    unfit = [(cell, plan) for cell, plan in zip(cells, plans, strict=True) if not will_fit(cell.recipe, plan, machine)]
    if unfit:
        cell, plan = unfit[0]
        raise DoesNotFitError(
            f"{len(unfit)} of {len(cells)} runs would not fit. {cell.recipe.name}: {' '.join(plan.problems)}",
            "Take these values out of the list, or queue the runs anyway (--anyway).",
        )


def lease_of(recipe: Recipe, machine: MachineFacts) -> str:
    """Name the lease that the run will take, as `models.device.device.lease_name` does with torch."""
    device = planned_device(recipe, machine)
    return lease_name_of(device.index) if device.cuda else "cpu"
