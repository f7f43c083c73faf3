"""Decides which fields of a recipe are relevant given the others, and what to note about a value. Pure, no Qt."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from burnish_app.look.language import tr
from burnish_app.recipe.recipe_fields import RecipeField
from burnish_app.wording.plain_words import plain_words
from burnish_app.wording.recipe_text import setting_term, setting_text
from burnish_engine.contract.recipe.recipe import is_changed, setting_of
from burnish_engine.contract.recipe.recipe_preference import LOSS_TYPES
from burnish_engine.contract.recipe.recipe_section import Condition
from burnish_engine.contract.recipe.recipe_train import TrainSection

_HIGH_PREFERENCE_RATE = 1e-4

Values = dict[str, Any]


def not_applicable_text(key: str, values: Values) -> str:
    """Return why a field that stays in sight does not apply to a recipe, in a sentence; empty if it applies.

    Args:
        key: dotted key of the field.
        values: recipe as nested tables.
    """
    missing = _missing(key, values)
    return tr(missing.why) if missing and missing.why else ""


def without_effect_text(key: str, values: Values) -> str:
    """Return which other setting leaves a field without effect, in a sentence; empty: it has an effect.

    Args:
        key: dotted key of the field.
        values: recipe as nested tables.
    """
    missing = _missing(key, values)
    if missing is None:
        return ""
    other = missing.key_in(key.rpartition(".")[0])
    section, _, name = other.partition(".")
    value = values[section][name]
    shown = setting_text(other, value) if not isinstance(value, bool) else tr("on") if value else tr("off")
    return tr("No effect while “{setting}” is: {value}.").format(setting=setting_term(other), value=shown)


def _missing(key: str, values: Values) -> Condition | None:
    section = key.rpartition(".")[0]
    return setting_of(key).missing(section, values) if section else None


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
    missing = _missing(key, values)
    return missing is None or bool(missing.why) or is_changed(key, values)


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
    value = values[section][name]
    declared = setting_of(key).note.get(value, "") if isinstance(value, str | int | float) else ""
    notes = [tr(declared)] if declared else []
    if is_changed(key, values) and not not_applicable_text(key, values):
        notes.append(without_effect_text(key, values))
    if key == "train.optimizer":
        with suppress(ValidationError):  # the field that is wrong says so itself
            notes += map(plain_words, TrainSection.model_validate(values["train"]).notes)
    compares = values["preference"]["objective"] not in ("sft", "orpo")
    rate = values["train"]["learning_rate"]
    if key == "train.learning_rate" and compares and isinstance(rate, float) and rate > _HIGH_PREFERENCE_RATE:
        notes.append(tr("High for learning from preferences, where 0.000005 to 0.00005 are usual."))
    stops = values["train"]["max_steps"]
    by_steps_only = key == "train.checkpoint_every" and not values["train"]["checkpoint_minutes"]
    if by_steps_only and isinstance(stops, int) and 0 < stops <= values[section][name]:
        notes.append(tr("The run stops after {stops:,} steps: nothing is saved before its end.").format(stops=stops))
    if key == "adapter.alpha" and (scale := _scale(values["adapter"])) is not None:
        notes.append(tr("Scales the update by {scale:g} now.").format(scale=scale))
    return " ".join(note for note in notes if note)
