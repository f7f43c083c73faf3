"""Refuse a run that cannot fit into the memory that is free now, before anything large is loaded."""

from __future__ import annotations

import os

import psutil

from burnish_engine.advise.plan.plan import refuse_unfit
from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import PlanMade, Warned
from burnish_engine.hardware.probe import probe
from burnish_engine.runs.recorder import Recorder


def check_fit(
    recipe: Recipe, dataset: DatasetFacts, recorder: Recorder, *, anyway: bool = False, fresh: bool = True
) -> RunPlan | None:
    """Plan the run with its real dataset, record the prediction, and refuse what does not fit.

    Args:
        recipe: recipe of the run.
        dataset: facts of the prepared data.
        recorder: recorder that receives the prediction as an event.
        anyway: whether only to warn.
        fresh: whether the run begins; a resumed run is not refused for the settings of its recipe.

    Returns:
        The plan that the run follows; None where none could be made.

    Raises:
        DoesNotFitError: The run does not fit into memory.
        NoSpaceError: Only the disk is too full.
        UsageError: The recipe asks for something impossible, or its targets miss parts of the model.
    """
    try:
        machine, launched = _machine_for_this_process(), "WORLD_SIZE" in os.environ
        plan = plan_recipe(recipe, dataset=dataset, machine=machine, launched=launched)
    except (SetupError, UsageError) as error:
        if fresh and isinstance(error, UsageError):
            raise
        # a shape we cannot read: training may work all the same
        recorder.emit(Warned(code="plan", message=str(error)))
        return None
    recorder.emit(
        PlanMade(
            memory_bytes=plan.memory_bytes,
            memory_free_bytes=plan.memory_free_bytes,
            tokens_per_s=plan.tokens_per_s,
            seconds=plan.seconds or 0.0,
            total_seconds=plan.total_seconds or 0.0,
            fits=plan.fits,
            basis=plan.basis,
        )
    )
    if not plan.fits:
        if not anyway:
            refuse_unfit(plan)
        recorder.emit(Warned(code="plan", message=" ".join(plan.problems)))
    return plan


def _machine_for_this_process() -> MachineFacts:
    """Probe the machine; memory that this process already holds counts as free."""
    machine = probe()
    held = psutil.Process().memory_info().rss
    return machine.model_copy(update={"ram_free_bytes": min(machine.ram_free_bytes + held, machine.ram_total_bytes)})
