"""Writes a run plan's sentences: why a run does not fit, what would make it fit, what is scored, and other notes."""

from __future__ import annotations

from collections.abc import Sequence

from burnish_engine.advise.facts.engine_choice import unused_pins_note
from burnish_engine.advise.facts.planned_run import PlannedRun
from burnish_engine.advise.facts.shape import GIB
from burnish_engine.advise.plan.expert_text import adapter_copy_bytes, adapter_text, expert_notes
from burnish_engine.advise.plan.memory_solver import MARGIN_BYTES
from burnish_engine.advise.plan.planned_memory import host_budget
from burnish_engine.advise.predict.fast_shape import HostedLayer, distinct_layers, frozen_weights, hosted_layer
from burnish_engine.advise.predict.transfers import SLOTS
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.advice import MemoryPart
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.eight_bit_use import NO_EIGHT_BITS, EightBitUse
from burnish_engine.contract.recipe.memory_plan import AUTO, MemoryPlan
from burnish_engine.contract.recipe.recipe import setting_notes
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.contract.units import file_size, memory_size
from burnish_engine.scoring.recognize import is_suggested
from burnish_engine.scoring.score import NO_ROW_REMEDY, no_row_text

_WEIGHTS = {"base weights", "experts", "streamed weights", "shared weights"}
_GROWS_WITH_TOKENS = {
    "activations", "head and loss", "backward pass of a layer", "workspace", "allocator", "fragmentation",
}  # fmt: skip


def lacks_memory(run: PlannedRun, total: int, free: int) -> bool:
    """Whether a peak of so many bytes does not fit into the free memory of the run's device."""
    return total + MARGIN_BYTES[run.device.cuda] > free


def problems_of(
    run: PlannedRun,
    memory: list[MemoryPart],
    free: int,
    name: str,
    plan: MemoryPlan | None = None,
    *,
    lower: str | None = None,
) -> list[str]:
    """Explain why a run does not fit into memory and what would make it fit; nothing where it fits.

    Args:
        run: the run.
        memory: components of the peak.
        free: bytes free on the device.
        name: name of the device.
        plan: memory plan of the fast engine.
        lower: setting with the largest lower rank that fits (`expert_text.lower_rank_text`); empty: none does; None:
            that was not asked.
    """
    margin = MARGIN_BYTES[run.device.cuda]
    total = sum(part.bytes for part in memory)
    if not lacks_memory(run, total, free):
        return []
    where = f"of {name}'s memory" if run.device.cuda else "of system memory"
    need = f"This run needs about {memory_size(total)} {where} and {memory_size(free)} is free"
    stored = sum(part.bytes for part in memory if part.name in _WEIGHTS)
    weights = stored - adapter_copy_bytes(run)
    fixed = total - sum(part.bytes for part in memory if part.name in _GROWS_WITH_TOKENS)
    in_4_bits = _hint_4_bits(run, fixed - stored, free - margin)
    more = _hint_system_memory(run, plan, total + margin - free)
    pinned = "" if run.recipe.memory.weights == AUTO else f'set memory.weights = "{AUTO}"'
    remedies = [f"set {in_4_bits}" if in_4_bits else "", pinned, more, "choose a smaller model"]
    is_full = run.recipe.adapter.method == "full"
    beside = "" if is_full else f" and {adapter_text(run)}"
    if weights + margin > free:
        alone = f"the base weights alone take {memory_size(weights)}"
        return [f"{need}; {alone}{beside and f', whatever the rank,{beside}'}. {_one_of(remedies)}"]
    if fixed + margin > free:
        rest = memory_size(fixed - weights)
        if is_full:
            smaller = "" if run.recipe.train.optimizer != "adamw" else ', or train.optimizer = "adamw8bit"'
            return [
                f"{need}; training every weight takes {rest} beside the {memory_size(weights)} that are computed with. "
                f'Set adapter.method = "lora"{smaller}, or choose a smaller model.'
            ]
        held = f"{need}; the base weights take {memory_size(weights)}{beside}."
        if lower == "":
            return [f"{held} No lower rank is enough. {_one_of(remedies)}"]
        way = f"Set {in_4_bits}, or lower" if in_4_bits else "Lower"
        return [f"{held} {way} {lower or 'adapter.rank'}."]
    largest = max(memory, key=lambda part: part.bytes)
    text = f"{need}; the largest part is {largest.name} ({memory_size(largest.bytes)}){beside and f',{beside}'}."
    train, pins = run.recipe.train, run.recipe.memory.pins
    hints = []
    if run.engine.fast:  # a memory plan that is not pinned is already the smallest
        hints += [f"set {', '.join(pins)}"] if pins else []
    elif not train.recompute:
        hints.append("set train.recompute = true")
    hints.append(f"lower train.micro_batch_tokens (now {train.micro_batch_tokens:,}) and data.max_length")
    hints += [f"lower {lower}"] if lower else []
    hints += [f"set {in_4_bits}"] if in_4_bits else []
    hints += [more] if more else []
    hints.append("close programs that use the memory")
    return [f"{text} To make it fit: {', '.join(hints[:-1])}, or {hints[-1]}."]


def room_problems(machine: MachineFacts, host: int, locked: int, disk: int, download: int = 0) -> list[str]:
    """Explain why system memory or the disk are too small for a run; nothing where they are not.

    Args:
        machine: facts of the machine.
        host: bytes of system memory that the run needs.
        locked: bytes of these that layers keep there.
        disk: bytes of disk space that the run needs, the download included.
        download: bytes that the model's download takes of these.
    """
    problems = []
    if host > machine.ram_free_bytes:
        what = f"Loading, and {memory_size(locked)} that layers keep there, need" if locked else "Loading needs"
        problems.append(
            f"{what} about {memory_size(host)} of system memory and {memory_size(machine.ram_free_bytes)} is free. "
            "Close other programs."
        )
    if disk > machine.disk_free_bytes:
        first = f"The model's download ({file_size(download)}), checkpoints" if download else "Checkpoints"
        problems.append(
            f"{first} and trained weights need about {file_size(disk)} of disk and "
            f"{file_size(machine.disk_free_bytes)} is free. Free some space, or keep fewer checkpoints "
            "(train.keep_checkpoints)."
        )
    return problems


def notes_on(run: PlannedRun) -> list[str]:
    """List further notes that a person should know."""
    notes = [run.engine.note] if run.engine.note else []
    notes += setting_notes(run.recipe, "adapter", "preference")
    if not run.engine.fast and (idle := unused_pins_note(run.recipe)):
        notes.append(idle)
    if run.engine.nf4 and not run.device.cuda:
        packed = "The file's blocks save" if any(layer.blocks for layer in run.spec.layers) else "NF4 saves"
        notes.append(
            f"{packed} memory on a processor, not time: weights are unpacked for every product, which makes short "
            "passes and replies slow."
        )
    if run.engine.fast and run.recipe.train.products == "auto" and run.device.cuda and not run.spec.num_experts:
        notes.append(
            'train.products = "auto" is decided by a few seconds of timing when the run begins; this plan is for '
            "products in 16 bits."
        )
    if run.engine.eight_bits.products == "mxfp8":
        notes.append("MXFP8 has run on no card yet: its speed is predicted by measurements of others.")
    if run.dataset is None:
        notes.append("The dataset was not looked at: passes are assumed to be full and 60 % of the tokens learned.")
    notes += expert_notes(run)
    gpu = run.device.gpu(run.machine)
    if gpu is not None and not gpu.unified_memory:
        others = sum(user.bytes or 0 for user in gpu.users)
        if others > GIB:
            notes.append(f"Other programs hold {memory_size(others)} of this GPU; closing them leaves more room.")
    return notes


def task_notes(section: TaskSection, dataset: DatasetFacts | None) -> list[str]:
    """List what a person should know of the held-out rows that the score of a task finds.

    Args:
        section: section of the recipe.
        dataset: facts on the data; None: not known.

    Raises:
        UsageError: Somebody chose a metric that can score no held-out row. A suggested one is left out of the run.
    """
    report = dataset.report if dataset is not None else None
    fit = report.task_fit if report is not None else None
    if report is None or fit is None or not section.is_active:
        return []
    same = fit.section == section  # else facts of another score, which only say whether any could be
    if not (fit.rows if same else fit.usable_rows):
        text = no_row_text(section, fit.left_out)
        if is_suggested(section, report.task):
            return [f"{text} It was suggested, and is left out."]
        if not report.sampled_rows:
            raise UsageError(text, NO_ROW_REMEDY)
        return [text]
    notes = []
    if same and fit.left_out:
        left_out = "; ".join(f"{count} not scored: {why}" for why, count in fit.left_out.items())
        notes.append(f"The task is scored on {fit.rows} held-out rows ({left_out}).")
    if same and fit.long_replies:
        notes.append(
            f"The own replies of {fit.long_replies} of {fit.rows} scored rows do not end within "
            f"{section.max_tokens:,} tokens (task.max_tokens). A reply that is cut there is not right: allow more."
        )
    return notes


def streaming_note(plan: MemoryPlan | None) -> str:
    """Tell a person that layers' weights are copied to the GPU in every pass, and from where; empty if they are not."""
    if plan is None:
        return ""
    where = {
        "stay in system memory and are copied to the GPU": plan.layers_on_host,
        "are shared out over the GPUs of the run, which read them from each other": plan.layers_on_ranks,
    }
    found = []
    for what, layers in where.items():
        if layers:
            whose = "all layers" if len(layers) == len(plan.layers) else f"{len(layers)} of {len(plan.layers)} layers"
            found.append(f"The weights of {whose} {what} in every pass.")
    if found:
        found.append("The more tokens a pass has (train.micro_batch_tokens), the less that slows it down.")
    return " ".join(found)


def _one_of(remedies: Sequence[str]) -> str:
    """Join remedies to one sentence; empty ones are left out."""
    found = [remedy for remedy in remedies if remedy]
    text = ", or ".join([", ".join(found[:-1]), found[-1]]) if found[1:] else found[0]
    return f"{text[0].upper()}{text[1:]}."


def _hint_system_memory(run: PlannedRun, plan: MemoryPlan | None, lacking: int) -> str:
    """Name the system memory that would have to be free for the weights of more layers; empty where it is no help."""
    if plan is None or not run.device.cuda or run.recipe.memory.weights != AUTO:
        return ""
    held, count = run.engine, run.spec.num_layers - len(plan.layers_on_host) - len(plan.layers_on_ranks)
    layer = _hosted_layer(run, nf4=held.nf4, eight_bits=held.eight_bits)
    slots = 0 if count < run.spec.num_layers else SLOTS * layer.block
    weights = frozen_weights(
        run.spec, run.recipe.adapter, run.device.precision, nf4=held.nf4, eight_bits=held.eight_bits
    )
    tables = weights.embedding * (2 - plan.embedding_on_host - plan.head_on_host) // 2
    machine = run.machine.model_copy(update={"ram_free_bytes": run.machine.ram_total_bytes})
    whole = run.spec.num_layers * layer.block + weights.embedding
    if host_budget(machine, run.device.gpu(machine)) < whole or count * layer.all_freed + tables - slots < lacking:
        return ""
    needed = count * layer.block + tables
    return f"free about {memory_size(needed)} of system memory, where weights of layers can be"


def _hint_4_bits(run: PlannedRun, beside: int, room: int) -> str:
    """Name the setting that keeps the frozen weights in 4 bits; empty where that is not possible or not enough."""
    if not run.engine.fast or run.engine.nf4 or not run.device.cuda:
        return ""
    weights = frozen_weights(run.spec, run.recipe.adapter, run.device.precision, nf4=True)
    layer, room_there = _hosted_layer(run, nf4=True), host_budget(run.machine, run.device.gpu(run.machine))
    count = min(run.spec.num_layers, max(room_there - weights.embedding, 0) // layer.block)
    hosted = weights.embedding + count * layer.all_freed - SLOTS * layer.block if count > SLOTS else 0
    if weights.stored - hosted + weights.scratch + beside >= room:
        return ""
    return f'model.quantize = "nf4" (4 bits, {memory_size(weights.stored + weights.scratch)})'


def _hosted_layer(run: PlannedRun, *, nf4: bool, eight_bits: EightBitUse = NO_EIGHT_BITS) -> HostedLayer:
    """Count what the largest layer takes in host memory."""
    section, precision = run.recipe.adapter, run.device.precision
    kinds, _ = distinct_layers(run.spec)
    found = (hosted_layer(run.spec, section, one, precision, nf4=nf4, eight_bits=eight_bits) for one in kinds)
    return max(found, key=lambda one: one.block)
