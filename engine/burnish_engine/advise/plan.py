"""Whether a run fits, what it takes, and how long: predicted before anything is loaded, against what is free now."""

from __future__ import annotations

import math
from dataclasses import dataclass

from burnish_engine.advise.gguf_size import predicted_file_bytes
from burnish_engine.advise.memory import BYTES_OF, GIB, MIB, Pass, predict_memory
from burnish_engine.advise.shape import adapter_parameters, parameters
from burnish_engine.advise.speed import Device, seconds_per_pass
from burnish_engine.contract.advice import MemoryPart, Plan
from burnish_engine.contract.errors import DoesNotFitError, NoSpaceError, UsageError
from burnish_engine.contract.facts import DatasetFacts, DecoderSpec
from burnish_engine.contract.machine import GpuFacts, MachineFacts
from burnish_engine.contract.recipe import Recipe
from burnish_engine.hardware.gpu_table import facts_for

_GPU_MARGIN_BYTES = 256 * MIB  # what the desktop may take while a run is going on
_CPU_MARGIN_BYTES = 512 * MIB
_SUPERVISED_UNKNOWN = 0.6  # share of learned tokens where the dataset was not looked at
_FILL_UNKNOWN = 0.9
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
    download_bytes: int = 0,
    weights_bytes: int | None = None,
) -> Plan:
    """Predict what a run takes.

    Args:
        recipe: The run.
        spec: The base model's shape.
        machine: As it is now; free memory is what the run has to fit into.
        dataset: What `inspect` found with this recipe; without it steps and time are not known.
        download_bytes: What has to be downloaded first.
        weights_bytes: Size of the checkpoint on disk where known; else 2 bytes a weight.

    Raises:
        UsageError: The recipe names a GPU that this machine does not have.
    """
    device = choose_target(recipe, machine)
    work = _work(recipe, dataset)
    passes = work.steps * recipe.train.accumulation if work.steps is not None else None
    memory = predict_memory(recipe, spec, work.largest, cuda=device.cuda, precision=device.precision, passes=passes)
    total = sum(part.bytes for part in memory)
    free, whole, name = _memory_of(machine, device)
    trained = adapter_parameters(spec, recipe.adapter)
    host = _host_bytes(spec, device, weights_bytes) if device.cuda else 0
    disk = _disk_bytes(recipe, spec, trained) + download_bytes
    seconds = seconds_per_pass(recipe, spec, work.average, machine, device)
    speed = work.average.tokens / seconds
    problems = _problems(recipe, memory, total, free, name, cuda=device.cuda)
    if host > machine.ram_free_bytes:
        problems.append(
            f"Loading needs about {_gib(host)} of system memory and {_gib(machine.ram_free_bytes)} is free. "
            "Close other programs."
        )
    if disk > machine.disk_free_bytes:
        problems.append(
            f"Checkpoints and files need about {_gib(disk)} of disk and {_gib(machine.disk_free_bytes)} is free. "
            "Free some space, keep fewer checkpoints, or export fewer types."
        )
    return Plan(
        device=name,
        memory=memory,
        memory_bytes=total,
        memory_free_bytes=free,
        memory_total_bytes=whole,
        host_bytes=host,
        host_free_bytes=machine.ram_free_bytes,
        disk_bytes=disk,
        disk_free_bytes=machine.disk_free_bytes,
        fits=not problems,
        problems=problems,
        notes=_notes(spec, machine, device, dataset),
        trainable_parameters=trained,
        steps=work.steps,
        tokens=work.tokens,
        tokens_per_s=speed,
        seconds=work.tokens / speed if work.tokens is not None else None,
        speed_source=f"estimated from {facts_for(_gpu(machine, device)).source}" if device.cuda else "estimated",
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


def _work(recipe: Recipe, dataset: DatasetFacts | None) -> _Work:
    """The largest and the average pass, and how many there are.

    The facts may have been found with another token budget; learned tokens and passes are scaled to this one.
    """
    budget, train = recipe.train.micro_batch_tokens, recipe.train
    if dataset is None or not dataset.tokens or not dataset.micro_batches:
        supervised = budget if recipe.data.learn == "everything" else int(budget * _SUPERVISED_UNKNOWN)
        average = int(budget * _FILL_UNKNOWN)
        steps = train.max_steps or None
        limits = [limit for limit in (train.max_tokens, train.max_steps * train.accumulation * average) if limit]
        return _Work(
            Pass(budget, supervised), Pass(average, int(supervised * _FILL_UNKNOWN)), steps, min(limits, default=None)
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
    largest = Pass(int(largest_tokens), math.ceil(min(most, largest_tokens, share * tokens)))
    return _Work(largest, Pass(int(average_tokens), int(average_tokens * share)), max(steps, 1), int(total))


def _memory_of(machine: MachineFacts, device: Device) -> tuple[int, int, str]:
    """Free and total bytes of the device's memory, and its name."""
    if not device.cuda:
        return machine.ram_free_bytes, machine.ram_total_bytes, "CPU"
    gpu = _gpu(machine, device)
    if gpu.unified_memory:
        return machine.ram_free_bytes, machine.ram_total_bytes, gpu.name
    return gpu.vram_free_bytes, gpu.vram_total_bytes, gpu.name


def _problems(recipe: Recipe, memory: list[MemoryPart], total: int, free: int, name: str, *, cuda: bool) -> list[str]:
    margin = _GPU_MARGIN_BYTES if cuda else _CPU_MARGIN_BYTES
    if total + margin <= free:
        return []
    where = f"of {name}'s memory" if cuda else "of system memory"
    need = f"This run needs about {_gib(total)} {where} and {_gib(free)} is free"
    weights = next(part.bytes for part in memory if part.name == "base weights")
    fixed = total - sum(part.bytes for part in memory if part.name in _GROWS_WITH_TOKENS)
    if weights + margin > free:
        return [f"{need}; the base weights alone take {_gib(weights)}. Choose a smaller model."]
    if fixed + margin > free:
        rest = _gib(fixed - weights)
        return [f"{need}; the base weights take {_gib(weights)} and what is trained {rest}. Lower adapter.rank."]
    largest = max(memory, key=lambda part: part.bytes)
    text = f"{need}; the largest part is {largest.name} ({_gib(largest.bytes)})."
    hints = []
    if not recipe.train.recompute:
        hints.append("set train.recompute = true")
    hints.append(f"lower train.micro_batch_tokens (now {recipe.train.micro_batch_tokens:,}) and data.max_length")
    hints.append("close programs that use the memory")
    return [f"{text} To make it fit: {', '.join(hints[:-1])}, or {hints[-1]}."]


_GROWS_WITH_TOKENS = {"activations", "head and loss", "backward pass of a layer", "allocator"}


def _host_bytes(spec: DecoderSpec, device: Device, weights_bytes: int | None) -> int:
    """System memory at the worst moment of loading: the whole model passes through it."""
    return max(parameters(spec) * BYTES_OF[device.precision], weights_bytes or 0) + 2 * GIB


def _disk_bytes(recipe: Recipe, spec: DecoderSpec, trained: int) -> int:
    """Checkpoints with optimizer state, the adapter, exported files and the 16-bit file they are made from."""
    checkpoints = (recipe.train.keep_checkpoints + _CHECKPOINT_COPIES_ASIDE) * trained * 12
    files = 0
    for quant in recipe.export.quants:
        try:
            files += predicted_file_bytes(spec, quant) or parameters(spec) * 2
        except UsageError:
            files += parameters(spec) * 2
    return checkpoints + trained * 4 + files + parameters(spec) * 2 * 2


def _notes(spec: DecoderSpec, machine: MachineFacts, device: Device, dataset: DatasetFacts | None) -> list[str]:
    notes = []
    if dataset is None:
        notes.append("The dataset was not looked at: passes are assumed to be full and 60 % of the tokens learned.")
    if spec.num_experts:
        notes.append("A mixture of experts: the prediction is rougher than for dense models.")
    if device.cuda and not _gpu(machine, device).unified_memory:
        others = sum(user.bytes or 0 for user in _gpu(machine, device).users)
        if others > GIB:
            notes.append(f"Other programs hold {_gib(others)} of this GPU; closing them leaves more room.")
    return notes


def _gpu(machine: MachineFacts, device: Device) -> GpuFacts:
    return next(gpu for gpu in machine.gpus if gpu.index == device.index)


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= 0.95 * GIB else f"{size / MIB:.0f} MiB"
