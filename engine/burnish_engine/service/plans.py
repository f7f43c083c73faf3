"""Plans while a slider moves: torch-free where the model allows it, with what is known of the dataset."""

from __future__ import annotations

import threading

from burnish_engine.advise.fit import facts_for_recipe
from burnish_engine.advise.gather import plan_recipe
from burnish_engine.advise.plan import choose_target, refuse_unfit
from burnish_engine.channel.child import Child
from burnish_engine.channel.job import Job
from burnish_engine.contract.advice import Plan
from burnish_engine.contract.errors import SetupError, StoppedError
from burnish_engine.contract.facts import DatasetFacts
from burnish_engine.contract.machine import MachineFacts
from burnish_engine.contract.protocol import EstimateRequest, Result
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_file import dump_recipe
from burnish_engine.hardware.visible import lease_name_of
from burnish_engine.models.source import opens_without_torch
from burnish_engine.runs import lease
from burnish_engine.service.machine import Machine
from burnish_engine.service.recipes import data_key, read_recipe_text

_DATASETS_KEPT = 8


class Plans:
    """Makes plans and remembers datasets that were inspected.

    Args:
        machine: Probes the machine.
        data: The worker that opens models which need transformers to be judged.
    """

    def __init__(self, machine: Machine, data: Child) -> None:
        self._machine = machine
        self._data = data
        self._datasets: dict[str, tuple[Recipe, DatasetFacts]] = {}
        self._kept = threading.Lock()
        self._turn = threading.Lock()
        self._newest: str = ""

    def remember(self, recipe: Recipe, facts: DatasetFacts) -> None:
        """Use a dataset's facts in the plans that follow, as long as its files stay as they are."""
        with self._kept:
            self._datasets[data_key(recipe, packing=False)] = recipe, facts
            while len(self._datasets) > _DATASETS_KEPT:
                del self._datasets[next(iter(self._datasets))]

    def dataset_of(self, recipe: Recipe, *, any_model: bool = False) -> DatasetFacts | None:
        """Facts of the recipe's files that are still true, found with whatever other settings; None: not known.

        Args:
            recipe: Its model and files count.
            any_model: Any model's tokenizer will do.
        """
        files = recipe.data.files, recipe.data.validation_files
        with self._kept:
            for key, (known, facts) in reversed(self._datasets.items()):
                same_model = any_model or known.model.path == recipe.model.path
                same_files = (known.data.files, known.data.validation_files) == files
                if same_model and same_files and data_key(known, packing=False) == key:
                    return facts
        return None

    def estimate(self, request: EstimateRequest, job: Job) -> Result:
        """Plan a recipe. Of estimates that wait for their turn only the newest is worth making.

        Raises:
            StoppedError: A newer one came.
        """
        self._newest = request.id
        with self._turn:
            job.check()
            if self._newest != request.id:
                job.cancel()
                raise StoppedError("A newer estimate was asked for.")
            return Result(id=request.id, plan=self.plan(read_recipe_text(request.recipe), job))

    def plan(self, recipe: Recipe, job: Job) -> Plan:
        """Plan a recipe on this machine as it is now.

        Args:
            recipe: With absolute paths.
            job: Whom it is for.

        Raises:
            BurnishError: The model or the GPU cannot be used.
        """
        if opens_without_torch(recipe.model.path):
            return plan_recipe(recipe, dataset=self._dataset(recipe), machine=self._machine.facts())
        request = EstimateRequest(id=job.id, recipe=dump_recipe(recipe))
        answer = self._data.ask(request, job, about=f"the model {recipe.model.path}").plan
        if answer is None:
            raise SetupError("The data process gave no plan.", "Try again.")
        return answer

    def _dataset(self, recipe: Recipe) -> DatasetFacts | None:
        """Facts found with these very settings, or with others and scaled to these."""
        with self._kept:
            exact = self._datasets.get(data_key(recipe, packing=False))
        return exact[1] if exact else facts_for_recipe(recipe, self.dataset_of(recipe))

    def require_fit(self, recipe: Recipe, job: Job) -> None:
        """Check that a run can be started.

        Where another run holds the device this one will wait for it, so only what the device has in all counts.

        Raises:
            DoesNotFitError: It does not fit.
            NoSpaceError: Only the disk is too full.
        """
        machine = self._machine.facts(fresh=True)
        plan = self.plan(recipe, job)
        waits = lease.holder_of(lease_of(recipe, machine)) is not None
        if not (waits and plan.memory_bytes <= plan.memory_total_bytes):
            refuse_unfit(plan)


def lease_of(recipe: Recipe, machine: MachineFacts) -> str:
    """The name of the lease that the run will take, as `models.device.lease_name` gives it with torch."""
    device = choose_target(recipe, machine)
    return lease_name_of(device.index) if device.cuda else "cpu"
