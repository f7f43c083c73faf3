"""Finds a device's capacity: the longest row, the largest micro-batch and the largest model. Loads no torch.

Every answer is a search over `plan_run`, so the plan of the same recipe always agrees that it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from burnish_engine.advise.facts.past_runs import past_runs
from burnish_engine.advise.facts.shape import BYTES_OF, GIB, parameters
from burnish_engine.advise.plan.planned_memory import host_budget
from burnish_engine.advise.plan.recipe_fit import best_gpu, best_precision
from burnish_engine.advise.predict.level_mixes import MOVING
from burnish_engine.advise.suggest.largest_pass import RANK, PassSearch, card_memory
from burnish_engine.advise.suggest.suggest import ChosenModel
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.advice import CatalogModel, RunPlan
from burnish_engine.contract.facts.capacity import DeviceCapacity, Method, ModelCapacity
from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts
from burnish_engine.contract.units import file_size, memory_size

USUAL_MODELS = (
    "Qwen/Qwen3-0.6B",
    "meta-llama/Llama-3.2-1B-Instruct",
    "Qwen/Qwen3-4B-Instruct-2507",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-14B",
    "openai/gpt-oss-20b",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-32B",
)
"""One model of each size that people fine-tune; its answer roughly holds for others of its size."""
ROW_TOKENS = 2048
"""Length of the rows in the largest micro-batches, and of the rows that the largest model must be able to train."""

_SHORTEST_ROW = 256
_LEAST_SHARE = 0.7  # least share of the weights that has to find room; spares planning what is far too large
_ABOUT_AS_LARGE = 0.9  # share of the largest model's parameters
_NO_CARD = "this card"
"""Name of an assumed card where there is none; the table of rates lacks it, so its speed is guessed low."""

Progress = Callable[[str, int, int], None]


def find_capacity(
    machine: MachineFacts,
    models: Sequence[CatalogModel],
    *,
    only: ChosenModel | None = None,
    gpu_gib: float = 0.0,
    progress: Progress | None = None,
) -> DeviceCapacity:
    """Find the largest models that train here, and the longest row and largest micro-batch of each usual model.

    All rows are of one length with every token supervised, some are held out, and disk space counts only in the notes.

    Args:
        machine: facts of the machine that trains, as it is now.
        models: models of the catalog.
        only: model to answer for; None: the usual models and the largest.
        gpu_gib: memory of an assumed card in GiB, all of it free, as fast as the one that is here; 0: this machine as
            it is.
        progress: called with the current model's title, the number of models done, and the number in all.

    Raises:
        UsageError: No card has a memory of `gpu_gib`.
    """
    if gpu_gib:
        machine = with_card(machine, gpu_gib)
    ways: tuple[Method, ...] = ("lora", "qlora") if machine.gpus else ("lora",)
    largest: dict[Method, CatalogModel] = {}
    asked = [only] if only else _usual(models)
    if not only:
        for way in ways:
            found = _largest(machine, models, way)
            if found is not None:
                largest[way] = found
                asked += [] if any(one.path == found.name for one in asked) else [_entry(found)]
        asked.sort(key=_size)
    reached, plans, short_of_disk = [], [], []
    for number, model in enumerate(asked):
        if progress:
            progress(model.title, number, len(asked))
        for way in ways:
            search = PassSearch(model.path, model.spec, machine, way, config=model.config)
            is_largest = way in largest and largest[way].name == model.path
            reached.append(_model_capacity(search, model, largest=is_largest))
            plans += search.found
            if any(plan.disk_bytes > machine.disk_free_bytes for plan in search.found):
                short_of_disk.append(model.title)
    gpu = best_gpu(machine)
    free, total = card_memory(machine)
    return DeviceCapacity(
        device=_card_text(gpu, gpu_gib) if gpu else "CPU",
        memory_free_bytes=free,
        memory_total_bytes=total,
        host_free_bytes=machine.ram_free_bytes,
        precision=best_precision(machine),
        rank=RANK,
        row_tokens=ROW_TOKENS,
        models=reached,
        speed_source=plans[0].speed_source if plans and gpu is not None and gpu.name != _NO_CARD else "",
        notes=_notes(machine, gpu, gpu_gib, list(dict.fromkeys(short_of_disk))) + _notes_on(plans),
    )


def with_card(machine: MachineFacts, gib: float) -> MachineFacts:
    """Replace a machine's GPUs by one card of some memory, all of it free; without a GPU its rates are unknown.

    Args:
        machine: facts of the machine, whose best GPU gives the speed.
        gib: memory of the card, GiB.

    Raises:
        UsageError: No card has that memory.
    """
    if not 0.5 <= gib <= 4096:
        raise UsageError(f"{gib:g} GiB is no card's memory.", "Give GiB, such as 8 or 24.")
    gpu = best_gpu(machine) or GpuFacts(index=0, name=_NO_CARD, compute_capability=(8, 6))
    size = int(gib * GIB)
    changes = {"vram_total_bytes": size, "vram_free_bytes": size, "unified_memory": False, "users": []}
    return machine.model_copy(update={"gpus": [gpu.model_copy(update=changes)], "links": []})


def _model_capacity(search: PassSearch, model: ChosenModel, *, largest: bool) -> ModelCapacity:
    """Find a model's longest row and largest micro-batch, or why it does not train."""
    longest = biggest = None
    problem = ""
    context = model.spec.max_context
    least, row = min(_SHORTEST_ROW, context), min(ROW_TOKENS, context)
    try:
        longest = search.longest_row(least)
        if longest is None:
            problem = " ".join(search.plan(least, 1).problems)
        elif longest.tokens >= row:
            biggest = search.biggest_pass(row, guess=longest.tokens)
    except UsageError as error:
        problem = str(error)
    return ModelCapacity(
        name=model.path,
        title=model.title,
        parameters=_size(model),
        method=search.method,
        max_context=context,
        largest=largest,
        longest=longest,
        biggest=biggest,
        problem=problem,
    )


def _largest(machine: MachineFacts, models: Sequence[CatalogModel], method: Method) -> CatalogModel | None:
    """Find the largest model that trains a row of usual length; of those about as large the best for most people.

    Mixtures of experts that the fast engine does not know are left out: their plans are too rough for this claim.
    """
    free, _ = card_memory(machine)
    free += host_budget(machine, best_gpu(machine))
    bytes_of_one = _LEAST_SHARE * (0.5 if method == "qlora" else BYTES_OF[best_precision(machine)])
    known = [model for model in models if not model.spec.num_experts or model.spec.experts is not None]
    small = [model for model in known if model.parameters * bytes_of_one < free]
    able: list[CatalogModel] = []
    for model in sorted(small, key=lambda model: -model.parameters):
        if able and model.parameters < _ABOUT_AS_LARGE * able[0].parameters:
            break
        try:
            search, row = PassSearch(model.name, model.spec, machine, method), min(ROW_TOKENS, model.spec.max_context)
            if search.shortfall(row, 1) <= 0 and search.plan(row, 1).fits:
                able.append(model)
        except UsageError:  # its family is not trained in this way
            continue
    return max(able, key=lambda model: (model.kind == "chat", model.exports, model.merit), default=None)


def _usual(models: Sequence[CatalogModel]) -> list[ChosenModel]:
    known = {model.name: model for model in models}
    return [_entry(known[name]) for name in USUAL_MODELS if name in known]


def _entry(model: CatalogModel) -> ChosenModel:
    return ChosenModel(model.name, model.title, model.spec, here=False, entry=model)


def _size(model: ChosenModel) -> int:
    return model.entry.parameters if model.entry else parameters(model.spec)


def _card_text(gpu: GpuFacts, gpu_gib: float) -> str:
    if not gpu_gib:
        return gpu.name
    return f"a card of {gpu_gib:g} GiB" + ("" if gpu.name == _NO_CARD else f", as fast as this {gpu.name}")


def _notes(machine: MachineFacts, gpu: GpuFacts | None, gpu_gib: float, short_of_disk: list[str]) -> list[str]:
    notes = []
    if gpu_gib and gpu is not None and gpu.name == _NO_CARD:
        notes.append("There is no card here to take the speed from: the speeds are those of a slow one.")
    if gpu is None:
        notes.append("Without an NVIDIA GPU everything is trained by the processor, in system memory.")
    elif not gpu_gib and not gpu.unified_memory:
        others = sum(user.bytes or 0 for user in gpu.users)
        if others > GIB:
            notes.append(f"Other programs hold {memory_size(others)} of this GPU; closing them leaves more room.")
    if short_of_disk:
        free = file_size(machine.disk_free_bytes)
        notes.append(f"The disk ({free} free) is too full for a run of {', '.join(short_of_disk)}: free some space.")
    return notes


def _notes_on(plans: Sequence[RunPlan]) -> list[str]:
    """List the notes that all plans share, and the error of plans for this device where runs on it are known."""
    notes, chosen = [], [plan.memory_plan for plan in plans if plan.memory_plan]
    if any(plan.layers_on_ranks for plan in chosen):
        notes.append(
            "Where the weights of a model do not fit beside its rows, the GPUs share those of some layers, and read "
            "them from each other in every pass."
        )
    if any(plan.layers_on_host for plan in chosen):
        notes.append(
            "Where the weights of a model do not fit beside its rows, those of some layers stay in system memory and "
            "every pass copies them: passes of few tokens are slow."
        )
    if any(set(plan.layers) & set(MOVING) for plan in chosen):
        notes.append(
            "Long rows and big passes keep a part of what they need in system memory, which takes time: smaller passes "
            "may be faster."
        )
    device = plans[0].basis.device if plans and plans[0].basis else ""
    runs = [run for run in past_runs() if device and run.device == device]
    memory = [abs(run.process_bytes / sum(run.memory.values()) - 1) for run in runs if run.process_bytes and run.memory]
    speed = [abs(run.measured_tokens_per_s / run.tokens_per_s - 1) for run in runs if run.measured_tokens_per_s]
    off = [f"{median(errors):.0%} in {what}" for errors, what in ((memory, "memory"), (speed, "speed")) if errors]
    if off:
        count = max(len(memory), len(speed))
        of = "the one past run" if count == 1 else f"{count} past runs (the middle one)"
        notes.append(
            f"Predictions for this device were off by {' and '.join(off)} in {of}, before what they took was learned."
        )
    return notes
