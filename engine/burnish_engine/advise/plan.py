"""Whether a run fits, what it takes, and how long: predicted before anything is loaded, against what is free now."""

from __future__ import annotations

import math
from dataclasses import dataclass

from burnish_engine.advise.calibrate import Corrected, corrected
from burnish_engine.advise.engine_choice import Config, choose_engine
from burnish_engine.advise.exports import planned_exports
from burnish_engine.advise.fast_parts import memory_parts
from burnish_engine.advise.fast_speed import fast_seconds
from burnish_engine.advise.gguf_size import predicted_file_bytes
from burnish_engine.advise.plain_memory import attends_apart, plain_memory
from burnish_engine.advise.plain_speed import plain_seconds
from burnish_engine.advise.plan_words import notes_on, problems_of
from burnish_engine.advise.planned_memory import LOADING_BYTES, MemoryChoice, choose_memory
from burnish_engine.advise.planned_run import Device, PlannedRun
from burnish_engine.advise.shape import BYTES_OF, parameters
from burnish_engine.advise.trained_bytes import optimizer_bytes, trained_parameters
from burnish_engine.advise.workload import Pass, static_rows, token_span
from burnish_engine.contract.advice import Plan
from burnish_engine.contract.errors import DoesNotFitError, NoSpaceError, UsageError
from burnish_engine.contract.exports import export_words
from burnish_engine.contract.facts import DatasetFacts, DecoderSpec
from burnish_engine.contract.machine import GpuFacts, MachineFacts
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.units import file_size, memory_size
from burnish_engine.hardware.gpu_table import facts_for
from burnish_engine.models.adapter_targets import check_spec_targets, planned_coverage
from burnish_engine.models.spec import is_counted

_SUPERVISED_UNKNOWN = 0.6  # share of learned tokens where the dataset was not looked at
_FILL_UNKNOWN = 0.9
_ABOUT = 1.01  # what past runs correct is known no better
_CHECKPOINT_COPIES_ASIDE = 1  # a checkpoint is written whole before an old one is deleted


@dataclass(frozen=True)
class _Work:
    """How much there is to train."""

    largest: Pass
    average: Pass
    steps: int | None
    tokens: int | None


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
) -> Plan:
    """Predict what a run takes.

    Args:
        recipe: The run.
        spec: The base model's shape.
        machine: As it is now; free memory is what the run has to fit into.
        dataset: What `inspect` found with this recipe; without it steps and time are not known.
        config: The model's config.json, where it is here.
        download_bytes: What has to be downloaded first.
        weights_bytes: Size of the checkpoint on disk where known; else 2 bytes a weight.
        quick: Many runs are compared: do not look for the very best use of memory.

    Raises:
        UsageError: The recipe names a GPU that this machine does not have, asks for what its engine does not do, or
            has targets that miss parts of the model (`models.adapter_targets.check_targets`).
    """
    device = choose_target(recipe, machine)
    known = is_counted(spec)
    target_notes = check_spec_targets(spec, recipe.adapter) if known else []
    engine = choose_engine(recipe, spec, device.gpu(machine), device.precision, config)
    run = PlannedRun(recipe, spec, machine, device, engine, dataset)
    work = _work(recipe, dataset)
    free, whole, name = _memory_of(machine, device)
    choice = choose_memory(run, work.largest, free, quick=quick) if engine.fast else None
    found = _predicted(run, work, choice)
    total = sum(part.bytes for part in found.parts)
    memory, speed = found.parts, found.tokens_per_s
    trained = trained_parameters(spec, recipe.adapter)
    locked = choice.locked_bytes if choice else 0
    host = _host_bytes(run, weights_bytes) + locked if device.cuda else 0
    disk = _disk_bytes(recipe, spec) + download_bytes
    problems = problems_of(run, memory, free, name)
    exports = [] if quick else planned_exports(config, spec, recipe.adapter)
    pins = recipe.memory.pins
    leave = f"Set {', '.join(pins)}. " if pins else ""
    if not problems and choice is not None and recipe.memory.budget_gib and total > _ABOUT * choice.budget_bytes:
        problems.append(
            f"This run needs about {memory_size(total)} and memory.budget_gib allows {recipe.memory.budget_gib:g} GiB. "
            f"{leave}Raise it, or lower train.micro_batch_tokens (now {recipe.train.micro_batch_tokens:,}) and "
            "data.max_length."
        )
    if host > machine.ram_free_bytes:
        what = f"Loading, and {memory_size(locked)} that layers keep there, need" if locked else "Loading needs"
        problems.append(
            f"{what} about {memory_size(host)} of system memory and {memory_size(machine.ram_free_bytes)} is free. "
            "Close other programs."
        )
    if disk > machine.disk_free_bytes:
        problems.append(
            f"Checkpoints and files need about {file_size(disk)} of disk and {file_size(machine.disk_free_bytes)} "
            "is free. Free some space, keep fewer checkpoints, or export fewer types."
        )
    return Plan(
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
        disk_free_bytes=machine.disk_free_bytes,
        fits=not problems,
        problems=problems,
        notes=[*notes_on(run), *target_notes, *filter(None, [export_words(exports)]), *found.notes],
        trainable_parameters=trained,
        coverage=planned_coverage(spec, recipe.adapter) if known else None,
        exports=exports,
        steps=work.steps,
        tokens=work.tokens,
        tokens_per_s=speed,
        seconds=work.tokens / speed if work.tokens is not None else None,
        speed_source=_speed_source(device.gpu(machine), found.speed_runs),
        basis=found.basis,
    )


def refuse_unfit(plan: Plan) -> None:
    """Do nothing where the plan fits.

    Raises:
        DoesNotFitError: It does not; the message has the figures and what would make it fit.
        NoSpaceError: Only the disk is too full.
    """
    if plan.fits:
        return
    only_disk = len(plan.problems) == 1 and plan.disk_bytes > plan.disk_free_bytes
    raise (NoSpaceError if only_disk else DoesNotFitError)(plan.problems[0], " ".join(plan.problems[1:]))


def choose_target(recipe: Recipe, machine: MachineFacts) -> Device:
    """The device and precision the run would use, as `models.device` chooses them with torch.

    Raises:
        UsageError: The recipe names a GPU that this machine does not have.
    """
    section = recipe.devices
    if section.kind == "cpu" or (section.kind == "auto" and not machine.gpus):
        precision = recipe.train.precision
        if precision == "auto":
            precision = "bf16" if machine.bf16_cpu else "fp32"
        return Device(cuda=False, index=0, precision=precision)
    wanted = section.gpus[0]
    gpu = next((gpu for gpu in machine.gpus if gpu.index == wanted), None)
    if gpu is None:
        raise UsageError(
            f"The recipe names GPU {wanted}; this machine has {len(machine.gpus)}.",
            "Set devices.gpus to one that `burnish doctor` lists, or devices.kind to cpu.",
        )
    precision = recipe.train.precision
    if precision == "auto":
        precision = "bf16" if (gpu.compute_capability or (8, 0)) >= (8, 0) else "fp32"  # Ampere brought bf16 units
    return Device(cuda=True, index=wanted, precision=precision)


def _predicted(run: PlannedRun, work: _Work, choice: MemoryChoice | None) -> Corrected:
    """Components of the peak and the speed, by the engine that would run, corrected by past runs."""
    recipe, spec, average = run.recipe, run.spec, work.average
    if choice is not None:
        parts, seconds = memory_parts(choice.run, choice.plan), fast_seconds(choice.run, average, choice.plan)
    else:
        cuda, precision = run.device.cuda, run.device.precision
        passes = work.steps * recipe.train.accumulation if work.steps is not None else None
        apart = attends_apart(recipe, spec, run.device.gpu(run.machine))
        parts = plain_memory(recipe, spec, work.largest, cuda=cuda, precision=precision, passes=passes, apart=apart)
        seconds = plain_seconds(recipe, spec, average, run.machine, run.device)
    return corrected(run, parts, average.tokens / seconds)


def _speed_source(gpu: GpuFacts | None, runs: int) -> str:
    estimated = f"estimated from {facts_for(gpu).source}" if gpu else "estimated"
    return f"{estimated}, corrected by {runs} runs here" if runs else estimated


def _work(recipe: Recipe, dataset: DatasetFacts | None) -> _Work:
    """The largest and the average pass, and how many there are.

    The facts may have been found with another token budget; learned tokens and passes are scaled to this one.
    """
    budget, train, max_length = recipe.train.micro_batch_tokens, recipe.train, recipe.data.max_length
    span = token_span(dataset.lengths if dataset else None, max_length)
    if dataset is None or not dataset.tokens or not dataset.micro_batches:
        supervised = budget if recipe.data.learn == "everything" else int(budget * _SUPERVISED_UNKNOWN)
        average = int(budget * _FILL_UNKNOWN)
        steps = train.max_steps or None
        limits = [limit for limit in (train.max_tokens, train.max_steps * train.accumulation * average) if limit]
        return _Work(
            Pass(budget, supervised, longest=max_length, span=span),
            Pass(average, int(supervised * _FILL_UNKNOWN), static_rows(average, budget, packed=train.pack), span=span),
            steps,
            min(limits, default=None),
        )
    tokens = dataset.tokens * dataset.train_rows / max(dataset.train_rows + dataset.validation_rows, 1)
    share = dataset.supervised_tokens / dataset.tokens
    found_budget = tokens / (dataset.micro_batches * dataset.fill) if dataset.fill else budget
    longest = dataset.lengths.longest if dataset.lengths else budget
    largest_tokens = min(budget, math.ceil(tokens)) if train.pack else min(budget, longest, recipe.data.max_length)
    found_largest = min(found_budget, tokens) if train.pack else longest
    most = dataset.most_supervised * largest_tokens / found_largest or share * largest_tokens
    fill = dataset.fill if dataset.micro_batches > 1 else _FILL_UNKNOWN
    passes = max(tokens / (budget * fill), 1) if train.pack else dataset.train_rows
    average_tokens = tokens / passes
    steps = math.ceil(passes * train.epochs / train.accumulation)
    if train.max_steps:
        steps = min(steps, train.max_steps)
    total = steps * train.accumulation * average_tokens
    total = min(total, tokens * train.epochs)
    if train.max_tokens and total > train.max_tokens:
        steps, total = math.ceil(steps * train.max_tokens / total), float(train.max_tokens)
    learned = math.ceil(min(most, largest_tokens, share * tokens))
    largest = Pass(int(largest_tokens), learned, longest=min(longest, max_length), span=span)
    rows = static_rows(int(average_tokens), largest.tokens, packed=train.pack)
    usual = Pass(int(average_tokens), int(average_tokens * share), rows, span=span)
    return _Work(largest, usual, max(steps, 1), int(total))


def _memory_of(machine: MachineFacts, device: Device) -> tuple[int, int, str]:
    """Free and total bytes of the device's memory, and its name."""
    gpu = device.gpu(machine)
    if gpu is None:
        return machine.ram_free_bytes, machine.ram_total_bytes, "CPU"
    if gpu.unified_memory:
        return machine.ram_free_bytes, machine.ram_total_bytes, gpu.name
    return gpu.vram_free_bytes, gpu.vram_total_bytes, gpu.name


def _host_bytes(run: PlannedRun, weights_bytes: int | None) -> int:
    """System memory at the worst moment of loading: the plain engine reads the whole model into it."""
    if run.engine.fast:
        return LOADING_BYTES
    recipe = run.recipe
    paged = optimizer_bytes(run.spec, recipe.adapter, recipe.train.optimizer, cuda=run.device.cuda).host
    return paged + max(parameters(run.spec) * BYTES_OF[run.device.precision], weights_bytes or 0) + LOADING_BYTES


def _disk_bytes(recipe: Recipe, spec: DecoderSpec) -> int:
    """Checkpoints with optimizer state, what was trained, exported files and the 16-bit file they are made from."""
    trained = trained_parameters(spec, recipe.adapter)
    state = optimizer_bytes(spec, recipe.adapter, recipe.train.optimizer, cuda=False).total
    checkpoints = (recipe.train.keep_checkpoints + _CHECKPOINT_COPIES_ASIDE) * (trained * 4 + state)
    files = 0
    for quant in recipe.export.quants:
        try:
            files += predicted_file_bytes(spec, quant) or parameters(spec) * 2
        except UsageError:
            files += parameters(spec) * 2
    return checkpoints + trained * 4 + files + parameters(spec) * 2 * 2
