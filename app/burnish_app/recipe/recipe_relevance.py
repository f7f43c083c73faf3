"""Decides which fields of a recipe are relevant given the others, and what to note about a value. Pure, no Qt."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from burnish_app.look.language import tr
from burnish_app.recipe.recipe_fields import RecipeField
from burnish_app.wording.recipe_text import NOTES
from burnish_engine.contract.recipe.place import HERE
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_preference import LOSS_TYPES, PREFERENCE_USES
from burnish_engine.contract.recipe.recipe_task import TASK_USES
from burnish_engine.contract.recipe.recipe_train import OPTIMIZER_USES, TrainSection, optimizer_notes

_ADAPTER_FIELDS = {"adapter.rank", "adapter.expert_rank", "adapter.alpha", "adapter.dropout", "adapter.targets"}
_OPTIMIZER_FIELDS = {name for names in OPTIMIZER_USES.values() for name in names}
_TASK_FIELDS = {"max_rows", "max_tokens"}
_FROM_START = {f"adapter.{name}" for name in ("method", "rank", "alpha", "dropout", "targets", "expert_rank")}
_MAGMA_FIELDS = {"temperature", "decay", "start", "momentum"}
_DEFAULT_MOMENTUM = {"muon": "0.95", "lion": "0.99"}  # the same values as in the schema's help
_DEFAULTS: dict[str, Any] = Recipe().model_dump()

_HIGH_PREFERENCE_RATE = 1e-4

Values = dict[str, Any]


def not_applicable_text(key: str, values: Values) -> str:
    """Return why a field does not apply to a recipe, in a sentence; empty if it applies.

    Args:
        key: dotted key of the field.
        values: recipe as nested tables.
    """
    if key in _ADAPTER_FIELDS and values["adapter"]["method"] == "full":
        return tr("Does not apply: every weight is trained, without an adapter.")
    if key in _FROM_START and values["adapter"]["start"]:
        return tr("Comes from the adapter that training goes on from.")
    if key == "data.validation_share" and values["data"]["validation_files"]:
        return tr("Does not apply: a file of its own is held out.")
    return ""


def reason_text(key: str, values: Values, suggested: Values, reason: str) -> str:
    """Return the reason of a suggestion if it still holds for the edited recipe, else other advice.

    Args:
        key: dotted key of the field.
        values: edited recipe as nested tables.
        suggested: suggested recipe as nested tables.
        reason: reason as the engine gave it.
    """
    whole = values["adapter"]["method"] == "full" != suggested["adapter"]["method"]
    if whole and key == "train.learning_rate":
        return tr("Suggested for an adapter. To train every weight it should be some ten times lower.")
    if key == "train.epochs" and _stops_earlier(values):
        return tr("The run ends earlier where it is told to stop after so many steps or tokens.")
    return reason


def _stops_earlier(values: Values) -> bool:
    return bool(values["train"]["max_steps"] or values["train"]["max_tokens"])


def is_relevant(key: str, values: Values) -> bool:
    """Whether a field is worth showing. A field that is not at its default always is, so that it can be changed back.

    Args:
        key: dotted key of the field.
        values: recipe as nested tables; not necessarily valid.
    """
    section, _, name = key.rpartition(".")
    return _is_field_relevant(section, name, values) or (
        bool(section) and values[section][name] != _DEFAULTS[section][name]
    )


def _is_field_relevant(section: str, name: str, values: Values) -> bool:
    relevant = True
    match section:
        case "train":
            relevant = _is_train_field_relevant(name, values)
        case "memory":  # the plain engine keeps to no memory plan
            plain = values["train"]["engine"] == "plain" or values["adapter"]["method"] == "full"
            relevant = not plain and (name != "weights" or values["devices"]["kind"] != "cpu")
        case "masking" if name != "kind":
            kind = values["masking"]["kind"]
            relevant = kind == "magma" or (kind == "skip_update" and name not in _MAGMA_FIELDS)
        case "preference" if name != "objective":
            relevant = name in PREFERENCE_USES.get(values["preference"]["objective"], ())
        case "evaluation" if name == "min_improvement":
            relevant = bool(values["evaluation"]["patience"])
        case "task" if name != "metric":
            metric = values["task"]["metric"]
            relevant = metric != "none" and (name in _TASK_FIELDS or name in TASK_USES.get(metric, ()))
        case "devices" if name == "timeout_hours":
            relevant = values["devices"]["where"] != HERE
        case "guard" if name != "action":
            relevant = values["guard"]["action"] != "off"
        case "devices" if name == "exchange":
            relevant = values["devices"]["strategy"] == "data_parallel"
        case "export" if name == "importance_tokens":
            relevant = bool(values["export"]["importance"])
        case "export" if name == "merge_onto":
            relevant = values["model"]["quantize"] == "nf4"
    return relevant


def _is_train_field_relevant(name: str, values: Values) -> bool:
    train = values["train"]
    if name in _OPTIMIZER_FIELDS:
        return name in OPTIMIZER_USES.get(train["optimizer"], tuple(_OPTIMIZER_FIELDS))
    if name == "products":  # of frozen weights, on the fast engine
        return bool(values["adapter"]["method"] not in ("dora", "full") and train["engine"] != "plain")
    if name == "lora_plus_ratio":
        return bool(values["adapter"]["method"] != "full")
    if name == "decay_share":
        return bool(train["schedule"] == "wsd")
    return name != "final_share" or bool(train["schedule"] != "constant")


def fitting_choices(field: RecipeField, values: Values) -> tuple[str, ...]:
    """Return those of a field's choices that fit the objective.

    Args:
        field: field with choices.
        values: recipe as nested tables; not necessarily valid.
    """
    fitting = LOSS_TYPES.get(values["preference"]["objective"]) if field.key == "preference.loss_type" else None
    return fitting or field.choices


def _scale(adapter: Values) -> float | None:
    """Return what an adapter's update is multiplied by; None: its numbers are invalid."""
    alpha, rank = adapter["alpha"], adapter["rank"]
    if not isinstance(alpha, int | float) or not isinstance(rank, int) or rank <= 0:
        return None
    return float(f"{alpha / (rank**0.5 if adapter['method'] == 'rslora' else rank):.3g}")


def note_text(key: str, values: Values) -> str:
    """Return what a person should know about a field's value; empty for nothing.

    Args:
        key: dotted key of the field.
        values: recipe as nested tables; not necessarily valid.
    """
    section, _, name = key.rpartition(".")
    if not section:
        return ""
    notes = [NOTES.get((key, values[section][name]), "")] if isinstance(values[section][name], str) else []
    if key == "train.optimizer":
        with suppress(ValidationError):  # the field that is wrong says so itself
            notes += optimizer_notes(TrainSection.model_validate(values["train"]))
    if (
        key == "train.momentum"
        and values["train"]["momentum"] == 0
        and values["train"]["optimizer"] in _DEFAULT_MOMENTUM
    ):
        notes.append(
            tr("auto: as usual, {default_momentum}.").format(
                default_momentum=_DEFAULT_MOMENTUM[values["train"]["optimizer"]]
            )
        )
    compares = values["preference"]["objective"] not in ("sft", "orpo")
    rate = values["train"]["learning_rate"]
    if key == "train.learning_rate" and compares and isinstance(rate, float) and rate > _HIGH_PREFERENCE_RATE:
        notes.append(tr("High for learning from preferences, where 0.000005 to 0.00005 are usual."))
    stops = values["train"]["max_steps"]
    by_steps_only = key == "train.checkpoint_every" and not values["train"]["checkpoint_minutes"]
    if by_steps_only and isinstance(stops, int) and 0 < stops <= values[section][name]:
        notes.append(tr("The run stops after {stops:,} steps: nothing is saved before its end.").format(stops=stops))
    if key == "evaluation.patience" and not values["evaluation"]["patience"]:
        notes.append(tr("off: train all steps, keep the last."))
    if key == "adapter.alpha" and (scale := _scale(values["adapter"])) is not None:
        notes.append(tr("Scales the update by {scale:g} now.").format(scale=scale))
    return " ".join(note for note in notes if note)
