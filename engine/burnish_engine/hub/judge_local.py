"""Judge the models on this machine: can they be trained here, and how fast? No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from burnish_engine.advise.facts.shape import parameters
from burnish_engine.advise.plan.recipe_fit import RecipeFit
from burnish_engine.advise.suggest.rank import is_quantized
from burnish_engine.advise.suggest.settings import FitInputs, quick_fit
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.facts.advice import LocalModel
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.units import memory_size
from burnish_engine.hub.local_models import FoundModel
from burnish_engine.models.checkpoint.source import open_model, opens_without_torch
from burnish_engine.models.checkpoint.tokenizer_file import check_token_ids

SEVERAL_FILES = "Its folder holds several GGUF files, or parts of one: choose one by its path."

TOO_BIG = "Not even its smallest pass fits into what is free here."
OTHER_FAMILY = "Its family is none of Burnish's own; choose it to see whether transformers can train it here."


def judge_local(
    found: Sequence[FoundModel],
    machine: MachineFacts,
    target: TargetSection,
    *,
    dataset: DatasetFacts | None = None,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> list[LocalModel]:
    """Judge models: the headers of their weights are read, and a recipe is fitted to this machine.

    Args:
        found: models on this machine.
        machine: facts of the machine that trains.
        target: device that the result shall run on.
        dataset: facts on the rows; None: usual ones.
        progress: callback given the model that is judged, the number that are, and how many there are.
    """
    judged = []
    for number, model in enumerate(found):
        progress(model.name, number, len(found))
        judged.append(_judge(model, machine, target, dataset))
    order = ("good", "tight", "unknown", "too_big", "unusable")
    return sorted(judged, key=lambda model: order.index(model.verdict))


def _judge(model: FoundModel, machine: MachineFacts, target: TargetSection, dataset: DatasetFacts | None) -> LocalModel:
    known: dict[str, Any] = {"name": model.name, "place": model.place, "folder": model.path, "bytes": model.bytes}
    if model.gguf_only and model.file is None:
        return LocalModel(**known, verdict="unusable", reason=SEVERAL_FILES)
    folder = model.path
    if not opens_without_torch(folder):
        return LocalModel(**known, verdict="unknown", reason=OTHER_FAMILY)
    try:
        source = open_model(folder)
        check_token_ids(source)
        known["parameters"] = parameters(source.spec) if source.spec else 0
        fit = source.spec and quick_fit(FitInputs(folder, source.spec, machine, target, dataset, config=source.config))
    except BurnishError as error:  # also one of weights in a form that cannot be trained on here
        return LocalModel(**known, verdict="unusable", reason=error.what)
    if not fit:
        return LocalModel(**known, verdict="too_big", reason=TOO_BIG)
    return LocalModel(**known, **judgment(fit))


def judgment(fit: RecipeFit) -> dict[str, Any]:
    """Return verdict, reason, training peak (bytes) and speed of a model by the recipe that was fitted to it."""
    plan, method = fit.plan, "QLoRA" if is_quantized(fit) else "LoRA"
    memory = f"{memory_size(plan.memory_bytes)} of {memory_size(plan.memory_free_bytes)} free"
    return {
        "verdict": "good" if fit.comfortable else "tight",
        "reason": f"{method} takes {memory}, at about {plan.tokens_per_s:,.0f} tokens/s.",
        "train_bytes": plan.memory_bytes,
        "tokens_per_s": plan.tokens_per_s,
    }
