"""Plans a run: predicts before anything is loaded whether it fits what is free now, what it takes, and how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from burnish_engine.advise.facts.engine_choice import Config, choose_engine
from burnish_engine.advise.facts.planned_run import PlannedDevice, PlannedRun
from burnish_engine.advise.facts.shape import BYTES_OF, GIB, parameters
from burnish_engine.advise.facts.trained_bytes import optimizer_bytes, trained_parameters
from burnish_engine.advise.plan.calibrate import Calibration, CorrectedPrediction, correct_prediction
from burnish_engine.advise.plan.disk_space import export_disk_bytes, export_space_note, training_disk
from burnish_engine.advise.plan.expert_text import (
    adapter_bytes,
    adapter_text,
    fitting_rank,
    lower_rank_text,
    rank_of_experts,
)
from burnish_engine.advise.plan.exports import export_notes, planned_exports
from burnish_engine.advise.plan.plan_text import (
    lacks_memory,
    notes_on,
    problems_of,
    room_problems,
    streaming_note,
    task_notes,
)
from burnish_engine.advise.plan.planned_memory import LOADING_BYTES, MemoryChoice, choose_memory
from burnish_engine.advise.plan.planned_work import PlannedWork, planned_work
from burnish_engine.advise.plan.run_time import (
    KL_WORK,
    fitting_note,
    plan_samples,
    predicted_pace,
    samples_note,
    time_parts,
)
from burnish_engine.advise.plan.shared_steps import shared_note, shared_problems, shared_steps
from burnish_engine.advise.predict.fast_parts import memory_parts
from burnish_engine.advise.predict.fast_speed import fast_seconds
from burnish_engine.advise.predict.plain.memory import plain_memory, uses_own_attention
from burnish_engine.advise.predict.plain.speed import plain_seconds
from burnish_engine.contract.errors import DoesNotFitError, NoSpaceError
from burnish_engine.contract.facts.advice import RunPlan, SamplePlan, SharedSteps, TimePart
from burnish_engine.contract.facts.facts import DatasetFacts, DecoderSpec
from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts
from burnish_engine.contract.recipe.on_gpus import refuse_missing_gpu
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.contract.units import memory_size
from burnish_engine.hardware.gpu.gpu_table import gpu_rates
from burnish_engine.models.checkpoint.spec import is_counted
from burnish_engine.models.families.adapter_targets import check_spec_targets, planned_coverage

_ABOUT = 1.01  # corrections by past runs are no more exact than this


def plan_run(
    recipe: Recipe,
    spec: DecoderSpec,
    machine: MachineFacts,
    *,
    dataset: DatasetFacts | None = None,
    config: Config | None = None,
    download_bytes: int = 0,
    weights_bytes: int | None = None,
    quick: bool = False,
    launched: bool = False,
) -> RunPlan:
    """Predict what a run takes.

    Args:
        recipe: recipe of the run.
        spec: shape of the base model.
        machine: facts of the machine as it is now; the run has to fit into its free memory.
        dataset: facts that `inspect` found with this recipe; without them steps and time are not known.
        config: config.json of the model; None where the model is not on this machine.
        download_bytes: bytes that have to be downloaded first.
        weights_bytes: size of the checkpoint on disk; None: 2 bytes a weight.
        quick: whether a nearly fastest memory plan is enough, to compare many runs.
        launched: whether torchrun says which GPUs train, so that those of the recipe need not exist.

    Raises:
        UsageError: The recipe names a GPU that this machine does not have, asks for what its engine does not do, or
            has targets that miss parts of the model (`models.families.adapter_targets.check_targets`), or has a score
            of the task that no held-out row allows.
    """
    device = _fullest(planned_device(recipe, machine), recipe, machine)
    scored = [] if quick else task_notes(recipe.task, dataset)
    known = is_counted(spec)
    target_notes = check_spec_targets(spec, recipe.adapter) if known else []
    engine = choose_engine(recipe, spec, device.gpu(machine), device.precision, config)
    run = PlannedRun(recipe, spec, machine, device, engine, dataset)
    work = planned_work(recipe, dataset)
    processes = 1 if launched or not recipe.devices.shares else len(recipe.devices.gpus)
    free, whole, name = _memory_of(machine, device, processes)
    choice = choose_memory(run, work.largest, free, quick=quick) if engine.fast else None
    found, shared = _predicted(run, work, choice)
    total = sum(part.bytes for part in found.parts)
    memory, speed = found.parts, found.tokens_per_s
    trained = trained_parameters(spec, recipe.adapter)
    locked = choice.locked_bytes * processes if choice else 0
    host = _host_bytes(run, weights_bytes) * processes + locked if device.cuda else 0
    disk, export_disk = training_disk(recipe, spec) + download_bytes, export_disk_bytes(recipe, spec)
    seconds = work.tokens / speed if work.tokens is not None else None
    times: list[TimePart] = []
    samples: SamplePlan | None = None
    if seconds is not None and work.steps:
        pace = partial(
            predicted_pace,
            run,
            step_s=seconds / work.steps,
            shared=shared,
            streamed=len(choice.plan.layers_on_host) if choice else 0,
        )
        samples, past = plan_samples(run, pace(tokens_per_s=speed), work.steps), found.found
        plain = pace(tokens_per_s=found.basis.tokens_per_s, samples=samples).times
        found.basis.times.update(plain)
        measured = {name: plain[name] * past.times[name] for name in plain.keys() & past.times}
        corrected = pace(tokens_per_s=speed, samples=samples).with_times(measured)
        times = time_parts(recipe, corrected, done=-1, steps=work.steps, samples=samples)
        if past.loading_s:
            times.insert(0, TimePart(name="loading", count=1, seconds=past.loading_s))
    over_budget = recipe.memory.budget_gib > 0 and total > _ABOUT * _budget(recipe, choice)
    lower = None
    if not quick and (over_budget or lacks_memory(run, total, free)):
        lower = fitting_rank(recipe.adapter, rank_of_experts(run), _fits_with(run, work, free))
    remedy = None if quick else lower_rank_text(lower)
    problems = [] if launched else shared_problems(recipe.devices, machine)
    problems += problems_of(run, memory, free, name, choice.plan if choice else None, lower=remedy)
    exports = [] if quick else planned_exports(config, spec, recipe.adapter)
    alone = "" if quick or problems else _alone_note(run, work, free, shared)
    pins = recipe.memory.pins
    leave = f"Set {', '.join(pins)}. " if pins else ""
    if not problems and over_budget:
        ranks = f"; {adapter_text(run)}" if recipe.adapter.method != "full" else ""
        instead = f", or {remedy}" if remedy else ""
        again = "" if engine.fast or recipe.train.recompute else "set train.recompute = true, "
        problems.append(
            f"This run needs about {memory_size(total)} and memory.budget_gib allows {recipe.memory.budget_gib:g} GiB"
            f"{ranks}. {leave}Raise it, {again}or lower train.micro_batch_tokens "
            f"(now {recipe.train.micro_batch_tokens:,}) and data.max_length{instead}."
        )
    problems += room_problems(machine, host, locked, disk, download_bytes)
    return RunPlan(
        device=name,
        memory=memory,
        memory_bytes=total,
        memory_free_bytes=free,
        memory_total_bytes=whole,
        memory_budget_bytes=choice.budget_bytes if choice else 0,
        memory_plan=choice.plan if choice else None,
        host_bytes=host,
        locked_bytes=locked,
        host_free_bytes=machine.ram_free_bytes,
        disk_bytes=disk,
        export_disk_bytes=export_disk,
        disk_free_bytes=machine.disk_free_bytes,
        fits=not problems,
        problems=problems,
        samples=samples,
        notes=[
            *notes_on(run),
            *scored,
            *target_notes,
            *filter(
                None,
                [
                    shared_note(shared),
                    samples_note(recipe, samples),
                    fitting_note(run, memory),
                    alone,
                    streaming_note(choice.plan if choice else None),
                    export_space_note(recipe.export.quants, export_disk, machine.disk_free_bytes - disk),
                ],
            ),
            *export_notes(exports, spec, recipe.data.max_length),
            *found.notes,
        ],
        trainable_parameters=trained,
        adapter_bytes=adapter_bytes(run),
        fitting_rank=lower,
        coverage=planned_coverage(spec, recipe.adapter) if known else None,
        exports=exports,
        steps=work.steps,
        tokens=work.tokens,
        tokens_per_s=speed,
        seconds=seconds,
        times=times,
        shared=shared,
        speed_source=_speed_source(device.gpu(machine), found.found),
        basis=found.basis,
    )


def refuse_unfit(plan: RunPlan) -> None:
    """Refuse a run whose plan does not fit.

    Raises:
        DoesNotFitError: The run does not fit; the message has the figures and what would make it fit.
        NoSpaceError: Only the disk is too full.
    """
    if plan.fits:
        return
    only_disk = len(plan.problems) == 1 and plan.disk_bytes > plan.disk_free_bytes
    raise (NoSpaceError if only_disk else DoesNotFitError)(plan.problems[0], " ".join(plan.problems[1:]))


def planned_device(recipe: Recipe, machine: MachineFacts) -> PlannedDevice:
    """Choose the device and precision that the run would use, by the rules of `models.device.device`.

    Raises:
        UsageError: The recipe names a GPU that this machine does not have.
    """
    section = recipe.devices
    if section.kind == "cpu" or (section.kind == "auto" and not machine.gpus):
        precision = recipe.train.precision
        if precision == "auto":
            precision = "bf16" if machine.bf16_cpu else "fp32"
        return PlannedDevice(cuda=False, index=0, precision=precision)
    wanted = section.gpus[0]
    known = {gpu.index: gpu for gpu in machine.gpus}
    refuse_missing_gpu(wanted, {index: gpu.name for index, gpu in known.items()})
    precision = recipe.train.precision
    if precision == "auto":
        ampere = (8, 0)  # brought bf16 units
        precision = "bf16" if (known[wanted].compute_capability or ampere) >= ampere else "fp32"
    return PlannedDevice(cuda=True, index=wanted, precision=precision)


def _fullest(device: PlannedDevice, recipe: Recipe, machine: MachineFacts) -> PlannedDevice:
    """Return, of the GPUs that share a run, the one with the least free memory: all have to hold what each holds."""
    gpus = [gpu for gpu in machine.gpus if gpu.index in recipe.devices.gpus]
    if not device.cuda or not recipe.devices.shares or len(gpus) < 2:
        return device
    return replace(device, index=min(gpus, key=lambda gpu: gpu.vram_free_bytes).index)


def _predicted(
    run: PlannedRun, work: PlannedWork, choice: MemoryChoice | None
) -> tuple[CorrectedPrediction, SharedSteps | None]:
    """Predict the peak's components and the speed for the engine that would run, corrected by past runs."""
    recipe, spec, average = run.recipe, run.spec, work.average
    if choice is not None:
        parts, seconds = memory_parts(choice.run, choice.plan), fast_seconds(choice.run, average, choice.plan)
        gpu = run.device.gpu(run.machine)
        alone_s = fast_seconds(replace(choice.run, gpu=gpu), average, choice.plan) if gpu != choice.run.gpu else seconds
    else:
        cuda, precision = run.device.cuda, run.device.precision
        passes = work.steps * recipe.train.accumulation if work.steps is not None else None
        gpu = run.device.gpu(run.machine)
        parts = plain_memory(
            recipe,
            spec,
            work.largest,
            cuda=cuda,
            precision=precision,
            passes=passes,
            own_attention=uses_own_attention(recipe, spec, gpu),
            free_bytes=gpu.vram_free_bytes if gpu else 0,
        )
        seconds = alone_s = plain_seconds(recipe, spec, average, run.machine, run.device)
    work_on_pass = 1 + KL_WORK if recipe.preference.estimates_kl else 1.0
    shared = shared_steps(run, work_on_pass * seconds, work_on_pass * alone_s)
    times = shared.times if shared else 1.0
    return correct_prediction(run, parts, times * average.tokens / (work_on_pass * alone_s)), shared


def _alone_note(run: PlannedRun, work: PlannedWork, free: int, shared: SharedSteps | None) -> str:
    """Say what GPUs that share a whole model out would do alone; empty where they could not, or nothing is known."""
    devices = run.recipe.devices
    if devices.strategy != "sharded" or not shared or shared.exchange_ms is None:
        return ""
    one = devices.model_copy(update={"strategy": "single", "gpus": devices.gpus[:1]})
    if not _fits(replace(run, recipe=run.recipe.model_copy(update={"devices": one})), work, free):
        return ""
    if shared.times <= 1:
        return 'One of these GPUs holds the whole model and trains it faster alone: set devices.strategy = "single".'
    return (
        f"Each of these GPUs holds the whole model: {shared.gpus} runs of one GPU each, with devices.strategy = "
        '"single", get more done in the same time. Sharing it out only makes this one run end sooner.'
    )


def _budget(recipe: Recipe, choice: MemoryChoice | None) -> int:
    return choice.budget_bytes if choice else int(recipe.memory.budget_gib * GIB)


def _fits_with(run: PlannedRun, work: PlannedWork, free: int) -> Callable[[AdapterSection], bool]:
    """Return a function that says whether the run fits into the device's memory with another adapter."""

    def fits(adapter: AdapterSection) -> bool:
        return _fits(replace(run, recipe=run.recipe.model_copy(update={"adapter": adapter})), work, free)

    return fits


def _fits(run: PlannedRun, work: PlannedWork, free: int) -> bool:
    """Return whether a run fits into the device's free memory, and into the recipe's budget where it has one."""
    choice = choose_memory(run, work.largest, free, quick=True) if run.engine.fast else None
    total = sum(part.bytes for part in _predicted(run, work, choice)[0].parts)
    budget = _budget(run.recipe, choice) if run.recipe.memory.budget_gib else free
    return not lacks_memory(run, total, free) and total <= _ABOUT * budget


def _speed_source(gpu: GpuFacts | None, found: Calibration) -> str:
    if found.is_alike:
        return "measured in the last run like it here"
    runs = found.speed_runs
    estimated = f"estimated from {gpu_rates(gpu).source}" if gpu else "estimated"
    return f"{estimated}, corrected by {runs} runs here" if runs else estimated


def _memory_of(machine: MachineFacts, device: PlannedDevice, processes: int) -> tuple[int, int, str]:
    """The free and total bytes of the device's memory, and the device's name; of a CPU the share of each process."""
    gpu = device.gpu(machine)
    if gpu is None:
        name = f"CPU, for each of {processes} processes" if processes > 1 else "CPU"
        return machine.ram_free_bytes // processes, machine.ram_total_bytes // processes, name
    if gpu.unified_memory:
        return machine.ram_free_bytes, machine.ram_total_bytes, gpu.name
    return gpu.vram_free_bytes, gpu.vram_total_bytes, gpu.name


def _host_bytes(run: PlannedRun, weights_bytes: int | None) -> int:
    """The peak of system memory while loading, bytes; the plain engine reads the whole model into it."""
    if run.engine.fast:
        return LOADING_BYTES
    recipe = run.recipe
    paged = optimizer_bytes(run.spec, recipe.adapter, recipe.train.optimizer, cuda=run.device.cuda).host
    return paged + max(parameters(run.spec) * BYTES_OF[run.device.precision], weights_bytes or 0) + LOADING_BYTES
