"""Orders the catalog for a machine and a target: what an expert would recommend first. Loads no torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from burnish_engine.advise.engine_choice import why_not
from burnish_engine.advise.fit import Fit, best_gpu
from burnish_engine.advise.on_target import GIB, OnTarget, on_target
from burnish_engine.advise.settings import quick_fit
from burnish_engine.advise.workload import workload
from burnish_engine.contract.advice import CatalogModel, RankedModel
from burnish_engine.contract.facts import DatasetFacts
from burnish_engine.contract.machine import MachineFacts
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_export import TargetSection

_Verdict = Literal["good", "tight", "too_big_to_train", "too_big_for_target", "small"]
_Judgment = tuple[_Verdict, str]

USUAL_TOKENS = 500_000
"""Tokens of a small job of a person's own: twice over 1,000 chats of 250 tokens."""
_COMFORTABLE_S = 8 * 3600.0  # over night
_COMFORTABLE_CPU_S = 1.5 * 3600.0  # nothing else can be done with the computer meanwhile
_MOST_ON_CPU = 1_000_000_000  # weights
_LONGEST_S = 3 * 86400.0
_SMALL_SHARE = 1 / 8  # of the merit of the best model that runs well
_KIND_WORTH = {"chat": 1.0, "code": 0.7, "reasoning": 0.6, "base": 0.5}
"""How far a kind of model suits most people's first wish, a model that answers; a query finds the others."""
_GATED_WORTH = 0.6  # one has to sign in first
_CONDITIONS_WORTH = 0.8  # a license with conditions has to be read, and may bind what is made of the model
_CRAMPED_WORTH = 0.4  # a run near the edge of the memory may fail after hours
_QUANTIZED_WORTH = 0.8  # 4 bits cost some accuracy: only for a clearly better model
_WEIGHT_BYTES = 2  # bf16, where it is only told how far a model is from fitting
_ORDER = {"good": 0, "tight": 1, "small": 2, "too_big_for_target": 4, "too_big_to_train": 5}
_NOT_EXPORTED = 3  # trains, but leaves without a GGUF


@dataclass(frozen=True)
class Judged:
    """A model of the catalog with all that was found out about it.

    Attributes:
        ranked: What is shown.
        fit: How it trains here; None where it does not.
        on_target: How its file runs.
        worth: What orders models of the same verdict.
    """

    ranked: RankedModel
    fit: Fit | None
    on_target: OnTarget
    worth: float


def rank(
    machine: MachineFacts,
    models: Sequence[CatalogModel],
    target: TargetSection,
    *,
    here: Collection[str] = (),
    dataset: DatasetFacts | None = None,
) -> list[RankedModel]:
    """The models, best first.

    Args:
        machine: Where they train, as it is now.
        models: Of the catalog.
        target: Where the result shall run.
        here: Names of the models whose files are on this machine.
        dataset: What is trained on, where known.
    """
    return [judged.ranked for judged in judge_all(machine, models, target, here=here, dataset=dataset)]


def judge_all(
    machine: MachineFacts,
    models: Sequence[CatalogModel],
    target: TargetSection,
    *,
    here: Collection[str] = (),
    dataset: DatasetFacts | None = None,
) -> list[Judged]:
    """As `rank`, with what the judgment rests on."""
    judged = [_judge(model, machine, target, dataset, here=model.name in here) for model in models]
    good = [one.worth for one in judged if one.ranked.verdict == "good" and one.ranked.model.exports]
    best = max(good, default=0.0)
    return sorted((_mark_small(one, best) for one in judged), key=_place)


def judge_best(
    machine: MachineFacts,
    models: Sequence[CatalogModel],
    target: TargetSection,
    *,
    here: Collection[str] = (),
    dataset: DatasetFacts | None = None,
) -> Judged:
    """Find the first of `judge_all` without judging the models that cannot be it.

    Raises:
        ValueError: There is no model.
    """
    runs = {model.name: on_target(model.spec, target).verdict != "too_big" for model in models}
    best: Judged | None = None
    for model in sorted(models, key=lambda model: (not runs[model.name], -_most_worth(model))):
        settled = best is not None and best.ranked.verdict == "good" and best.ranked.model.exports
        if best and settled and (not runs[model.name] or _most_worth(model) < best.worth):
            break
        one = _judge(model, machine, target, dataset, here=model.name in here)
        best = one if best is None or _place(one) < _place(best) else best
    if best is None:
        raise ValueError("There is no model to judge.")
    return best


def is_quantized(fit: Fit | None) -> bool:
    """Whether a model trains with its frozen weights in 4 bits."""
    return fit is not None and fit.recipe.model.quantize == "nf4"


def training_seconds(fit: Fit, dataset: DatasetFacts | None) -> float:
    """Predicted training time with a dataset, or with a usual small one."""
    if dataset is None:
        return USUAL_TOKENS / fit.plan.tokens_per_s
    work = workload(dataset, fit.recipe.data.max_length)
    return work.tokens * fit.recipe.train.epochs / fit.plan.tokens_per_s


def _judge(
    model: CatalogModel, machine: MachineFacts, target: TargetSection, dataset: DatasetFacts | None, *, here: bool
) -> Judged:
    fit = quick_fit(model.name, model.spec, machine, target, dataset)
    runs = on_target(model.spec, target)
    on_cpu = not machine.gpus
    verdict, reason = (
        _too_big_to_train(model, fit, dataset, machine)
        or _too_big_for_target(runs, target)
        or _tight(fit, runs, target, dataset, weights=model.parameters, on_cpu=on_cpu)
        or ("good", _praise(model, runs, target, quantized=is_quantized(fit)))
    )
    worth = _most_worth(model)
    if fit is not None:
        worth *= _ease(fit, dataset, on_cpu=on_cpu) * (_QUANTIZED_WORTH if is_quantized(fit) else 1.0)
    ranked = RankedModel(
        model=model,
        verdict=verdict,
        reason=reason,
        here=here,
        train_bytes=fit.plan.memory_bytes if fit else _WEIGHT_BYTES * model.parameters,
        tokens_per_s=fit.plan.tokens_per_s if fit else 0.0,
        file_bytes=runs.file_bytes,
        run_bytes=runs.run_bytes,
        quant=runs.quant,
        method="qlora" if is_quantized(fit) else "lora",
        download_bytes=model.download_bytes,
    )
    return Judged(ranked, fit, runs, worth)


def _most_worth(model: CatalogModel) -> float:
    """A model's worth where it trains with ease, which is the most that `_judge` can give it."""
    worth = model.parameters * model.merit * _KIND_WORTH[model.kind]
    return worth * (_GATED_WORTH if model.gated else 1.0) * (_CONDITIONS_WORTH if model.license_note else 1.0)


def _too_big_to_train(
    model: CatalogModel, fit: Fit | None, dataset: DatasetFacts | None, machine: MachineFacts
) -> _Judgment | None:
    where = _where(on_cpu=not machine.gpus)
    if fit is None:
        gpu = best_gpu(machine)
        tried = "" if gpu is None or why_not(Recipe(), model.spec, gpu) else ", not even in 4 bits"
        return "too_big_to_train", f"Its weights and one pass do not fit into the free memory of this {where}{tried}."
    seconds = training_seconds(fit, dataset)
    if seconds > _LONGEST_S:
        return "too_big_to_train", f"Training would take about {seconds / 86400:.0f} days on this {where}."
    return None


def _too_big_for_target(runs: OnTarget, target: TargetSection) -> _Judgment | None:
    if runs.verdict != "too_big":
        return None
    if runs.run_bytes <= runs.usable_bytes:
        return "too_big_for_target", f"Would write only {runs.tokens_per_s:.1f} tokens/s on a {target.kind}."
    return "too_big_for_target", (
        f"Takes {runs.run_bytes / GIB:.1f} GiB to run; a {target.kind} of {target.ram_gib:g} GiB has about "
        f"{runs.usable_bytes / GIB:.1f} to give."
    )


def _tight(
    fit: Fit | None,
    runs: OnTarget,
    target: TargetSection,
    dataset: DatasetFacts | None,
    *,
    weights: int,
    on_cpu: bool,
) -> _Judgment | None:
    if fit is None:
        return None
    where = _where(on_cpu=on_cpu)
    seconds = training_seconds(fit, dataset)
    if seconds > _comfortable_seconds(on_cpu=on_cpu):
        return "tight", f"Training would take about {seconds / 3600:.0f} hours on this {where}."
    if not fit.comfortable:
        return "tight", f"Trains with almost all of the free memory of this {where}."
    if fit.coverage < 1.0:
        return "tight", f"Reads rows of up to {fit.recipe.data.max_length:,} tokens here; longer ones would be cut."
    if on_cpu and weights > _MOST_ON_CPU:
        return "tight", "More than a billion weights are slow to train and to try out on a processor."
    if runs.verdict == "tight":
        return "tight", f"Writes {runs.tokens_per_s:.0f} tokens/s on a {target.kind}, slower than one reads."
    return None


def _praise(model: CatalogModel, runs: OnTarget, target: TargetSection, *, quantized: bool) -> str:
    speed = f"about {runs.tokens_per_s:.0f} tokens/s on a {target.kind}"
    trains = "Trains here in 4 bits (QLoRA)" if quantized else "Trains here"
    if not model.exports:
        return f"{trains} and would run at {speed}, but this version cannot export it to GGUF."
    return f"{trains} with room to spare and runs at {speed}."


def _ease(fit: Fit, dataset: DatasetFacts | None, *, on_cpu: bool) -> float:
    """What is left of a model's worth where it takes long, rows have to be cut, or memory is short, 0 to 1."""
    patience = min(1.0, _comfortable_seconds(on_cpu=on_cpu) / max(training_seconds(fit, dataset), 1.0))
    room = 1.0 if fit.comfortable else _CRAMPED_WORTH
    return float(patience**1.5 * fit.coverage**0.5 * room)


def _comfortable_seconds(*, on_cpu: bool) -> float:
    return _COMFORTABLE_CPU_S if on_cpu else _COMFORTABLE_S


def _where(*, on_cpu: bool) -> str:
    return "processor" if on_cpu else "GPU"


def _mark_small(one: Judged, best: float) -> Judged:
    """The same, called small where a far better model would do as well."""
    if one.ranked.verdict != "good" or one.worth >= _SMALL_SHARE * best:
        return one
    ranked = one.ranked.model_copy(
        update={"verdict": "small", "reason": "Trains and runs with ease, but far better models do so here as well."}
    )
    return replace(one, ranked=ranked)


def _place(one: Judged) -> tuple[int, float]:
    order = _ORDER[one.ranked.verdict]
    if not one.ranked.model.exports and order < _NOT_EXPORTED:
        order = _NOT_EXPORTED
    # What is too big is listed from the smallest, the one that is nearest to possible.
    return (order, one.worth) if order > _NOT_EXPORTED else (order, -one.worth)
