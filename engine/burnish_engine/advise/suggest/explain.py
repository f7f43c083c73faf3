"""Explains the settings of a suggestion: one sentence of reason for each choice. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from burnish_engine.advise.facts.shape import frozen_bytes, parameters
from burnish_engine.advise.facts.workload import CPU_ROW_TOKENS, Workload, hold_out, sequence_lengths, wanted_length
from burnish_engine.advise.plan.recipe_fit import RecipeFit, best_gpu
from burnish_engine.advise.suggest.objective import rate_reason
from burnish_engine.contract.facts.advice import SettingChoice
from burnish_engine.contract.facts.facts import DatasetFacts, DecoderSpec
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.units import memory_size, plural
from burnish_engine.models.families.adapter_targets import expert_rank


@dataclass
class SuggestedSettings:
    """The suggested settings of a run and the reason for each."""

    fit: RecipeFit  # recipe fitted to the device, and its run plan
    recipe: Recipe  # whole recipe except for target and export
    choices: list[SettingChoice] = field(default_factory=list)  # choice and reason for each key
    warnings: list[str] = field(default_factory=list)  # sentences that a person should know

    def choose(self, key: str, value: object, reason: str) -> None:
        """Add a choice: a key's value and the reason for it."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        self.choices.append(SettingChoice(key=key, value=text, reason=reason))


@dataclass(frozen=True)
class SettingsContext:
    """The inputs that suggested settings were made from."""

    spec: DecoderSpec  # shape of the model
    machine: MachineFacts  # facts of the machine that trains
    dataset: DatasetFacts | None  # facts that `inspect` found about the data
    work: Workload | None  # workload at the settings' row length
    step_s: float  # predicted time of a step, seconds
    separate_validation: bool  # whether there are validation files


def explain(settings: SuggestedSettings, by: SettingsContext) -> None:
    """Add a reason for every choice, and the warnings, to the settings."""
    _explain_quantization(settings, by)
    settings.choose("data.max_length", settings.recipe.data.max_length, _length_reason(settings, by))
    _explain_rows(settings, by)
    _explain_adapter(settings, by)
    _explain_precision(settings, by.machine)
    _explain_passes(settings, by)
    _explain_rate(settings, by)
    _explain_cadence(settings, by)
    _explain_task(settings, by)


def _explain_quantization(settings: SuggestedSettings, by: SettingsContext) -> None:
    recipe = settings.recipe
    if recipe.model.quantize != "nf4":
        return
    precision, fast = recipe.train.precision, settings.fit.plan.memory_plan is not None
    whole, packed = (memory_size(frozen_bytes(by.spec, precision, nf4=nf4, fast=fast)) for nf4 in (False, True))
    reason = (
        f"QLoRA: in 4 bits the frozen weights take {packed} instead of {whole}, which would leave too little of the "
        "GPU's memory to train in, and the model learns almost as well."
    )
    settings.choose("model.quantize", recipe.model.quantize, reason)


def _length_reason(settings: SuggestedSettings, by: SettingsContext) -> str:
    length = settings.recipe.data.max_length
    lengths = sequence_lengths(by.dataset)
    pairs = settings.recipe.preference.learns_pairs
    if lengths is None:
        return "A usual length for chats; give the data and it is taken from the rows."
    if length >= lengths.longest:
        if pairs:
            return f"Covers the longest pair: its prompt and the longer reply have {lengths.longest:,} tokens."
        return f"Covers the longest row ({lengths.longest:,} tokens), so none is cut."
    of = "prompts with the longer reply" if pairs else "rows"
    most = f"95 % of the {of} have up to {lengths.p95:,.0f} tokens"
    if length == by.spec.max_context:
        return f"{most}; the model reads no more than {by.spec.max_context:,}."
    if length == CPU_ROW_TOKENS and not by.machine.gpus:
        return f"{most}; on a processor longer passes take too long."
    if length < wanted_length(by.dataset, by.spec.max_context):
        return f"{most}, but no more than {length:,} fit into memory."
    return f"{most}; covering the longest, with {lengths.longest:,}, would cost memory for all."


def _explain_rows(settings: SuggestedSettings, by: SettingsContext) -> None:
    if by.work is None or by.dataset is None:
        return
    if by.work.cut_share >= 0.005 and settings.recipe.preference.learns_pairs:
        settings.warnings.append(
            f"About {by.work.cut_share:.0%} of the pairs are left out: with the longer reply they have more than "
            f"{by.work.max_length:,} tokens, and a cut reply says nothing about which is better."
        )
    elif by.work.cut_share >= 0.005:
        settings.warnings.append(
            f"About {by.work.cut_share:.0%} of the rows are longer than {by.work.max_length:,} tokens and are cut; "
            "split long documents into parts if their ends matter."
        )
    if not by.separate_validation:
        share = settings.recipe.data.validation_share
        held = _held_rows(settings, by.dataset)
        settings.choose(
            "data.validation_share",
            share,
            f"Holds out about {plural(held, 'row')} to tell learning from memorizing."
            if held
            else "There are too few rows to hold any out, so that nothing tells learning from memorizing.",
        )


def _explain_adapter(settings: SuggestedSettings, by: SettingsContext) -> None:
    adapter, work = settings.recipe.adapter, by.work
    if adapter.method == "rslora":
        why = "At high ranks its scale, alpha / sqrt(rank), keeps the whole adapter learning."
    else:
        share = settings.fit.plan.trainable_parameters / parameters(by.spec)
        why = f"Trains {share:.1%} of the weights and learns as much from such data as training them all."
    settings.choose("adapter.method", adapter.method, why)
    if work is None:
        reason = "A rank that suits most datasets; give the data and it is taken from its size."
    else:
        amount = f"{_count(work.supervised_tokens)} learned tokens"
        reason = {
            8: f"{amount} do not need more, and a small rank is harder to overfit.",
            16: f"Room enough for {amount}.",
            32: f"{amount} can fill more than the usual 16.",
        }.get(adapter.rank, f"{amount} can fill a large adapter.")
    settings.choose("adapter.rank", adapter.rank, reason)
    if by.spec.experts is not None and adapter.method != "full":
        rank = expert_rank(adapter, by.spec.experts_per_token)
        settings.choose(
            "adapter.expert_rank",
            adapter.expert_rank,
            f"Gives each expert rank {rank}: a token visits {by.spec.experts_per_token}, so it passes as many trained "
            f"weights as with rank {adapter.rank} in a dense model.",
        )
    covered = settings.fit.plan.coverage
    reached = f": {covered.text}" if covered else ""
    settings.choose(
        "adapter.targets",
        ", ".join(adapter.targets),
        f"Every matrix of the layers that an adapter is meant for{reached}.",
    )
    scale = "alpha / sqrt(rank)" if adapter.method == "rslora" else "alpha / rank"
    settings.choose(
        "adapter.alpha", f"{adapter.alpha:g}", f"Keeps the update's scale, {scale}, at 2, as the learning rate expects."
    )


def _explain_precision(settings: SuggestedSettings, machine: MachineFacts) -> None:
    gpu = best_gpu(machine)
    where = gpu.name.removeprefix("NVIDIA ") if gpu else "processor"
    if settings.recipe.train.precision == "bf16":
        reason = f"The {where} computes it fast, in half the memory of fp32; the adapter stays fp32."
    else:
        reason = f"The {where} has no fast bf16."
    settings.choose("train.precision", settings.recipe.train.precision, reason)


def _explain_passes(settings: SuggestedSettings, by: SettingsContext) -> None:
    train, plan, work = settings.recipe.train, settings.fit.plan, by.work
    if work is None:
        reason = "Twice suits most datasets; give the data and it is taken from its size."
    elif train.epochs == 1.0:
        reason = f"{plural(work.rows, 'row')}: one pass teaches enough."
    else:
        reason = f"{plural(work.rows, 'row')}, each seen {train.epochs:g} times; more often would memorize them."
    settings.choose("train.epochs", f"{train.epochs:g}", reason)
    fits = f"{memory_size(plan.memory_bytes)} of {memory_size(plan.memory_free_bytes)} free"
    both = "; it holds both replies of a pair" if settings.recipe.preference.learns_pairs else ""
    settings.choose("train.micro_batch_tokens", train.micro_batch_tokens, f"The fastest pass that fits: {fits}{both}.")
    tokens = train.micro_batch_tokens * train.accumulation
    settings.choose(
        "train.accumulation",
        train.accumulation,
        f"Makes {tokens:,} tokens a step, for a steady gradient and still enough steps.",
    )
    if train.recompute:
        settings.choose(
            "train.recompute", True, "Without it the run does not fit; it costs a fifth to a third of the speed."
        )


def _explain_rate(settings: SuggestedSettings, by: SettingsContext) -> None:
    train = settings.recipe.train
    settings.choose(
        "train.learning_rate",
        f"{train.learning_rate:g}",
        rate_reason(settings.recipe.preference.objective, by.spec.hidden_size),
    )
    settings.choose("train.schedule", train.schedule, "Ends at a tenth of the peak, which settles the last steps.")
    settings.choose(
        "train.warmup_share",
        train.warmup_share,
        "The rate rises over the first steps, until the optimizer knows its scales.",
    )


def _explain_cadence(settings: SuggestedSettings, by: SettingsContext) -> None:
    every = settings.recipe.train.checkpoint_every
    minutes = every * by.step_s / 60
    often = f"About every {minutes:.0f} minutes" if minutes >= 1.5 else "Often"
    settings.choose("train.checkpoint_every", every, f"{often}: no more than that is lost in a crash.")
    if by.separate_validation or by.dataset is None or _held_rows(settings, by.dataset):
        settings.choose(
            "evaluation.every",
            settings.recipe.evaluation.every,
            "Some ten looks at the held-out rows show when to stop.",
        )


def _explain_task(settings: SuggestedSettings, by: SettingsContext) -> None:
    task = settings.recipe.task
    hint = by.dataset.report.task if by.dataset is not None and by.dataset.report is not None else None
    if hint is None or not task.is_active:
        return
    counted = {"json": "valid JSON", "choice": "the right label", "number": "the right number"}.get(task.metric, "")
    settings.choose(
        "task.metric",
        task.metric,
        f"{hint.says} So replies to {task.max_rows} held-out rows at most can be scored: how many are {counted} before "
        "training, after it and in the exported file.",
    )
    if task.json_schema:
        settings.choose("task.json_schema", task.json_schema, "The keys that every looked-at reply has.")
    settings.choose(
        "task.max_tokens",
        task.max_tokens,
        f"The rows' longest reply has {plural(hint.reply_tokens, 'token')}.",
    )


def _held_rows(settings: SuggestedSettings, dataset: DatasetFacts) -> int:
    return hold_out(dataset, settings.recipe.data.validation_share).validation_rows


def _count(number: int) -> str:
    for size, name in ((1_000_000_000, "billion"), (1_000_000, "million")):
        if number >= size:
            return f"{number / size:.3g} {name}"
    return f"{number:,}"
