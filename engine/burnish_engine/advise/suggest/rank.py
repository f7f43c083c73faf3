"""Ranks the catalog for a machine and a target: the models an expert would recommend first. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from burnish_engine.advise.facts.catalog import recipe_path
from burnish_engine.advise.facts.engine_choice import fast_obstacle
from burnish_engine.advise.facts.shape import active_parameters
from burnish_engine.advise.facts.workload import workload
from burnish_engine.advise.plan.recipe_fit import RecipeFit, best_gpu
from burnish_engine.advise.predict.on_target import OnTarget, on_target
from burnish_engine.advise.suggest.settings import FitInputs, quick_fit
from burnish_engine.contract.facts.advice import CatalogModel, RankedModel
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.units import memory_size

_Verdict = Literal["good", "tight", "slow", "too_big_to_train", "too_big_for_target", "small"]
_Judgment = tuple[_Verdict, str]

USUAL_TOKENS = 500_000
"""Number of training tokens of a small job: two epochs over 1,000 chats of 250 tokens."""
_COMFORTABLE_S = 8 * 3600.0  # over night
_COMFORTABLE_CPU_S = 1.5 * 3600.0  # nothing else can be done with the computer meanwhile
_MOST_ON_CPU = 1_000_000_000  # weights
_LONGEST_S = 3 * 86400.0
_SMALL_SHARE = 1 / 8  # share of the merit of the best model that runs well
_KIND_WORTH = {"chat": 1.0, "code": 0.7, "reasoning": 0.6, "base": 0.5}
"""Factor on a model's worth by its kind: most people first want a model that answers; a query finds the others."""
_GATED_WORTH = 0.6  # one has to sign in first
_CONDITIONS_WORTH = 0.8  # a license with conditions has to be read, and may bind what is made of the model
_CRAMPED_WORTH = 0.4  # a run near the edge of the memory may fail after hours
_QUANTIZED_WORTH = 0.8  # 4 bits cost some accuracy: only for a clearly better model
_WEIGHT_BYTES = 2  # bf16, to tell how far a model is from fitting
_ORDER = {"good": 0, "tight": 1, "slow": 1, "small": 2, "too_big_for_target": 4, "too_big_to_train": 5}
_NOT_EXPORTED = 3  # trains, but leaves without a GGUF


@dataclass(frozen=True)
class JudgedModel:
    """A model of the catalog with its judgment."""

    ranked: RankedModel  # model and verdict, as shown to people
    fit: RecipeFit | None  # recipe fitted to this machine; None where the model does not train here
    on_target: OnTarget  # prediction for the file on the target
    worth: float  # score that orders models of the same verdict


def judge_all(
    machine: MachineFacts,
    models: Sequence[CatalogModel],
    target: TargetSection,
    *,
    here: Collection[str] = (),
    dataset: DatasetFacts | None = None,
) -> list[JudgedModel]:
    """Rank models, best first, with the facts behind each judgment.

    Args:
        machine: facts of the machine that trains, as it is now.
        models: models of the catalog.
        target: target section of the recipe.
        here: names of the models whose files are on this machine.
        dataset: facts of the training data; None where not known.
    """
    judged = [_judge(model, machine, target, dataset, here=model.name in here) for model in models]
    good = [one.worth for one in judged if one.ranked.verdict == "good" and one.ranked.model.exports]
    best = max(good, default=0.0)
    return sorted((_mark_small(one, best) for one in judged), key=_sort_key)


def judge_best(
    machine: MachineFacts,
    models: Sequence[CatalogModel],
    target: TargetSection,
    *,
    here: Collection[str] = (),
    dataset: DatasetFacts | None = None,
) -> JudgedModel:
    """Find the first of `judge_all` without judging the models that cannot be it.

    Raises:
        ValueError: There is no model.
    """
    runs = {model.name: on_target(model.spec, target).verdict != "too_big" for model in models}
    best: JudgedModel | None = None
    for model in sorted(models, key=lambda model: (not runs[model.name], -_most_worth(model))):
        settled = best is not None and best.ranked.verdict == "good" and best.ranked.model.exports
        if best and settled and (not runs[model.name] or _most_worth(model) < best.worth):
            break
        one = _judge(model, machine, target, dataset, here=model.name in here)
        best = one if best is None or _sort_key(one) < _sort_key(best) else best
    if best is None:
        raise ValueError("There is no model to judge.")
    return best


def is_quantized(fit: RecipeFit | None) -> bool:
    """Whether a model trains with its frozen weights in 4 bits."""
    return fit is not None and fit.recipe.model.quantize == "nf4"


def training_seconds(fit: RecipeFit, dataset: DatasetFacts | None) -> float:
    """Predicted training time with a dataset, or with a usual small one."""
    if dataset is None:
        return USUAL_TOKENS / fit.plan.tokens_per_s
    work = workload(dataset, fit.recipe.data.max_length)
    return work.tokens * fit.recipe.train.epochs / fit.plan.tokens_per_s


def _judge(
    model: CatalogModel, machine: MachineFacts, target: TargetSection, dataset: DatasetFacts | None, *, here: bool
) -> JudgedModel:
    fit = quick_fit(FitInputs(model.name, model.spec, machine, target, dataset))
    runs = on_target(model.spec, target)
    on_cpu = not machine.gpus
    verdict, reason = (
        _too_big_to_train(model, fit, dataset, machine)
        or _too_big_for_target(runs, target)
        or _catch(fit, runs, target, dataset, weights=model.parameters, on_cpu=on_cpu)
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
        path=recipe_path(model.name) if here else "",
        train_bytes=fit.plan.memory_bytes if fit else _WEIGHT_BYTES * model.parameters,
        tokens_per_s=fit.plan.tokens_per_s if fit else 0.0,
        file_bytes=runs.file_bytes,
        run_bytes=runs.run_bytes,
        quant=runs.quant,
        method="qlora" if is_quantized(fit) else "lora",
        download_bytes=model.download_bytes,
    )
    return JudgedModel(ranked, fit, runs, worth)


def _most_worth(model: CatalogModel) -> float:
    """The worth of a model that trains with ease, which is the most that `_judge` can give it.

    A mixture counts as a dense model of the geometric mean of all its weights and those that a token passes: about what
    their makers compare them with (LFM2-8B-A1B, 8.3 B and 1.6 B: dense models of 3 to 4 B).
    """
    size = math.sqrt(model.parameters * active_parameters(model.spec)) if model.spec.num_experts else model.parameters
    worth = size * model.merit * _KIND_WORTH[model.kind]
    return worth * (_GATED_WORTH if model.gated else 1.0) * (_CONDITIONS_WORTH if model.license_note else 1.0)


def _work(dataset: DatasetFacts | None) -> str:
    """Name the training that a time is of: the dataset's, or the usual one of `training_seconds`."""
    return "Training" if dataset else f"Training on {USUAL_TOKENS:,} tokens"


def _too_big_to_train(
    model: CatalogModel, fit: RecipeFit | None, dataset: DatasetFacts | None, machine: MachineFacts
) -> _Judgment | None:
    where = _where(on_cpu=not machine.gpus)
    if fit is None:
        gpu = best_gpu(machine)
        tried = "" if gpu is None or fast_obstacle(Recipe(), model.spec, gpu) else ", not even in 4 bits"
        return "too_big_to_train", f"Its weights and one pass do not fit into the free memory of this {where}{tried}."
    seconds = training_seconds(fit, dataset)
    if seconds > _LONGEST_S:
        return "too_big_to_train", f"{_work(dataset)} would take about {seconds / 86400:.0f} days on this {where}."
    return None


def _too_big_for_target(runs: OnTarget, target: TargetSection) -> _Judgment | None:
    if runs.verdict != "too_big":
        return None
    if runs.run_bytes <= runs.usable_bytes:
        return "too_big_for_target", f"Would write only {runs.tokens_per_s:.1f} tokens/s on a {target.kind}."
    return "too_big_for_target", (
        f"Takes {memory_size(runs.run_bytes)} to run; a {target.kind} of {target.ram_gib:g} GiB has about "
        f"{memory_size(runs.usable_bytes)} to give."
    )


def _catch(
    fit: RecipeFit | None,
    runs: OnTarget,
    target: TargetSection,
    dataset: DatasetFacts | None,
    *,
    weights: int,
    on_cpu: bool,
) -> _Judgment | None:
    """Tell what takes long or barely fits: "slow" is about time, "tight" about memory."""
    if fit is None:
        return None
    where = _where(on_cpu=on_cpu)
    seconds = training_seconds(fit, dataset)
    if seconds > _comfortable_seconds(on_cpu=on_cpu):
        return "slow", f"{_work(dataset)} would take about {seconds / 3600:.0f} hours on this {where}."
    if not fit.comfortable:
        return "tight", f"Trains with almost all of the free memory of this {where}."
    if fit.length_share < 1.0:
        return "tight", f"Reads rows of up to {fit.recipe.data.max_length:,} tokens here; longer ones would be cut."
    if on_cpu and weights > _MOST_ON_CPU:
        return "slow", "More than a billion weights are slow to train and to try out on a processor."
    if runs.verdict == "tight":
        return "slow", f"Writes {runs.tokens_per_s:.0f} tokens/s on a {target.kind}, slower than one reads."
    return None


def _praise(model: CatalogModel, runs: OnTarget, target: TargetSection, *, quantized: bool) -> str:
    speed = f"about {runs.tokens_per_s:.0f} tokens/s on a {target.kind}"
    trains = "Trains here in 4 bits (QLoRA)" if quantized else "Trains here"
    if not model.exports:
        return f"{trains} and would run at {speed}, but this version cannot export it to GGUF."
    return f"{trains} with room to spare and runs at {speed}."


def _ease(fit: RecipeFit, dataset: DatasetFacts | None, *, on_cpu: bool) -> float:
    """The factor on a model's worth for long training, cut rows and short memory, 0 to 1."""
    patience = min(1.0, _comfortable_seconds(on_cpu=on_cpu) / max(training_seconds(fit, dataset), 1.0))
    room = 1.0 if fit.comfortable else _CRAMPED_WORTH
    return float(patience**1.5 * fit.length_share**0.5 * room)


def _comfortable_seconds(*, on_cpu: bool) -> float:
    return _COMFORTABLE_CPU_S if on_cpu else _COMFORTABLE_S


def _where(*, on_cpu: bool) -> str:
    return "processor" if on_cpu else "GPU"


def _mark_small(one: JudgedModel, best: float) -> JudgedModel:
    """Mark a model as small where a far better model would run as well."""
    if one.ranked.verdict != "good" or one.worth >= _SMALL_SHARE * best:
        return one
    ranked = one.ranked.model_copy(
        update={"verdict": "small", "reason": "Trains and runs with ease, but far better models do so here as well."}
    )
    return replace(one, ranked=ranked)


def _sort_key(one: JudgedModel) -> tuple[int, float]:
    order = _ORDER[one.ranked.verdict]
    if not one.ranked.model.exports and order < _NOT_EXPORTED:
        order = _NOT_EXPORTED
    # Models that are too big are listed from the smallest, which is nearest to fitting.
    return (order, one.worth) if order > _NOT_EXPORTED else (order, -one.worth)
