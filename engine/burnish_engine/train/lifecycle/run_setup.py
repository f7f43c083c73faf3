"""Set a run up: everything that is decided and prepared once, before the engine is loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
import torch
from pydantic import ValidationError

from burnish_engine.advise.plan.plan import refuse_unfit
from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.advise.plan.run_time import whole_samples
from burnish_engine.advise.predict.plain.whole_model_memory import later_bytes
from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.advice import RunPlan, SamplePlan
from burnish_engine.contract.facts.coverage import Coverage
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import recipe_hash
from burnish_engine.contract.run.events import PlanMade, Warned
from burnish_engine.hardware.probe import probe
from burnish_engine.models.device.device import cap_memory, choose_precision, choose_threads
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.random_state import seed_everything
from burnish_engine.train.fast.products_choice import ProductsChoice, choose_products
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.lifecycle.inputs import RunInputs
from burnish_engine.train.lifecycle.measure import Measure
from burnish_engine.train.lifecycle.progress import Tally
from burnish_engine.train.lifecycle.start import started_recipe
from burnish_engine.train.lifecycle.time_left import TimeLeft


@dataclass(frozen=True)
class RunSetup:
    """Setup of a run: settings, inputs and plan, which stay the same once they are decided.

    Attributes:
        paths: run folder.
        recipe: frozen recipe; where it continues from an adapter, with that adapter's rank and so on.
        recipe_hash: fingerprint of the frozen recipe.
        device: device to train on.
        threads: number of CPU threads.
        precision: precision of the base weights.
        products: number format that products with the frozen weights are computed in, and why.
        inputs: model files, tokenizer and data.
        measure: measurements of memory and speed.
        resume: checkpoint to resume from; None where the run begins.
        plan: memory plan to load the engine with, as text; empty leaves the choice to the engine.
        planned_coverage: coverage that the plan announced; None: it announced none, the run is resumed, or it continues
            from an adapter, which decides itself what it reaches.
        predicted_s: predicted time of all steps, seconds; 0 where not known.
        samples: when the model answers the fixed prompts.
        time_left: prediction of the time to the end.
    """

    paths: RunPaths
    recipe: Recipe
    recipe_hash: str
    device: torch.device
    threads: int
    precision: str
    products: ProductsChoice
    inputs: RunInputs
    measure: Measure
    resume: Path | None
    plan: str
    planned_coverage: Coverage | None
    predicted_s: float
    samples: SamplePlan
    time_left: TimeLeft

    @classmethod
    def prepare(
        cls,
        paths: RunPaths,
        recipe: Recipe,
        recorder: Recorder,
        tally: Tally,
        *,
        device: torch.device,
        anyway: bool = False,
        gpus: int = 0,
    ) -> Self:
        """Seed all generators, read model and data, plan the run, and get the device ready.

        Args:
            paths: run folder.
            recipe: frozen recipe.
            recorder: recorder of phases, warnings and the plan.
            tally: tally of the run; it gets the measurements as soon as there are any.
            device: device to train on.
            anyway: whether to train although the plan says that the run does not fit.
            gpus: number of GPUs of this machine that share the run now; 0: as many as the recipe says.

        Raises:
            BurnishError: The model or the data cannot be used, or the run does not fit.
        """
        resume = newest_checkpoint(paths, recorder)
        position = checkpoints.read_position(resume) if resume else None
        threads = position.threads if position else choose_threads(recipe.devices.threads)
        torch.set_num_threads(threads)
        seed_everything(recipe.train.seed)
        fresh = position is None
        inputs = RunInputs.load(paths, recipe, recorder, fresh=fresh)
        frozen, recipe = recipe, started_recipe(recipe, inputs.start)
        # A run that already trained here is not refused for what happens to be free now, only warned about.
        shared = _on_gpus(recipe, gpus)
        plan = check_fit(shared, inputs.data.facts, recorder, anyway=anyway or not fresh, fresh=fresh)
        measure = tally.measure = Measure(device, tally.held)
        if not fresh:  # it continues with whatever plan it had
            measure.not_as_planned()
        _prepare_gpu(device, shared, measure)
        precision = position.precision if position else choose_precision(recipe.train.precision, device)
        if position:
            products = ProductsChoice(position.products)
        else:
            products = choose_products(recipe, inputs.source, device, precision)
        planned = plan.memory_plan.model_dump_json() if plan and plan.memory_plan else ""
        if fresh and recipe.train.products == "auto" and products.products != "16":
            planned = ""  # the plan was made for products in 16 bits
            measure.not_as_planned()
        return cls(
            paths=paths,
            recipe=recipe,
            recipe_hash=recipe_hash(frozen),
            device=device,
            threads=threads,
            precision=precision,
            products=products,
            inputs=inputs,
            measure=measure,
            resume=resume,
            plan=_resumed_plan(position.plan, planned) if position else planned,
            planned_coverage=plan.coverage if plan and fresh and not recipe.adapter.start else None,
            predicted_s=(plan.seconds or 0.0) if plan else 0.0,
            samples=(plan.samples if plan else None) or whole_samples(recipe),
            time_left=TimeLeft(recipe, plan, inputs.budget.steps),
        )


def newest_checkpoint(paths: RunPaths, recorder: Recorder) -> Path | None:
    """Find the run's newest intact checkpoint; warn about newer ones that are damaged."""
    found, broken = checkpoints.find_checkpoint(paths.checkpoints)
    for name in broken:
        recorder.warn("checkpoint_broken", f"The checkpoint {name} is not whole and is not used.")
    return found


def _prepare_gpu(device: torch.device, recipe: Recipe, measure: Measure) -> None:
    """Reset a GPU's memory peaks and cap what the run may allocate on it."""
    if device.type == "cuda":
        torch.cuda.init()
        torch.cuda.reset_peak_memory_stats(device)
        cap_memory(device, recipe.memory.budget_gib, measure.beside, later_bytes(recipe.adapter))


def _on_gpus(recipe: Recipe, count: int) -> Recipe:
    """Return the recipe for so many GPUs, where they share its passes; 0: as it is."""
    devices = recipe.devices
    if not count or not devices.shares:
        return recipe
    return recipe.model_copy(update={"devices": devices.model_copy(update={"gpus": devices.first_gpus(count)})})


def _resumed_plan(saved: str, planned: str) -> str:
    """Return the memory plan to resume with: the saved one, which may have become smaller than was predicted.

    Where layers were shared and are not to be any more, or the other way around, other places of weights and other save
    levels are needed. They change no bit; the rest of the saved plan does, and stays.
    """
    try:
        old, new = MemoryPlan.model_validate_json(saved), MemoryPlan.model_validate_json(planned)
    except ValidationError:  # of the plain engine
        return saved
    if bool(old.layers_on_ranks) == bool(new.layers_on_ranks):
        return saved
    return old.model_copy(update={"layers": new.layers, "weights": new.weights}).model_dump_json()


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
            times=plan.times,
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
