"""Which fields of a recipe play a part, given the others, and what to know of a value. Pure, no Qt."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from burnish_app.recipe_words import NOTES
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_train import OPTIMIZER_USES, TrainSection, optimizer_notes

_OF_ADAPTERS = {"adapter.rank", "adapter.alpha", "adapter.dropout", "adapter.targets"}
_OF_OPTIMIZERS = {name for names in OPTIMIZER_USES.values() for name in names}
_OF_MAGMA = {"temperature", "decay", "start", "momentum"}
_USUAL_MOMENTUM = {"muon": "0.95", "lion": "0.99"}  # as the schema's help says
_USUAL: dict[str, Any] = Recipe().model_dump()

Values = dict[str, Any]


def idle_words(key: str, values: Values) -> str:
    """Why a field plays no part in a recipe, in a sentence; empty where it does.

    Args:
        key: Dotted.
        values: The recipe as nested tables.
    """
    if key in _OF_ADAPTERS and values["adapter"]["method"] == "full":
        return "Does not apply: every weight is trained, without an adapter."
    return ""


def reason_words(key: str, values: Values, suggested: Values, reason: str) -> str:
    """The reason of a suggestion where it still holds, else what to think of instead.

    Args:
        key: Dotted.
        values: The recipe as edited, as nested tables.
        suggested: The recipe as suggested.
        reason: As the engine gave it.
    """
    whole = values["adapter"]["method"] == "full" != suggested["adapter"]["method"]
    if whole and key == "train.learning_rate":
        return "Suggested for an adapter. To train every weight it should be some ten times lower."
    return reason


def is_of_use(key: str, values: Values) -> bool:
    """Whether a field is worth showing. One that was changed is, so that it can be changed back.

    Args:
        key: Dotted.
        values: The recipe as nested tables; not necessarily valid.
    """
    section, _, name = key.rpartition(".")
    return _is_of_use(section, name, values) or (bool(section) and values[section][name] != _USUAL[section][name])


def _is_of_use(section: str, name: str, values: Values) -> bool:
    of_use = True
    match section:
        case "train":
            of_use = _train(name, values)
        case "masking" if name != "kind":
            kind = values["masking"]["kind"]
            of_use = kind == "magma" or (kind == "skip_update" and name not in _OF_MAGMA)
        case "evaluation" if name == "min_improvement":
            of_use = bool(values["evaluation"]["patience"])
        case "guard" if name != "action":
            of_use = values["guard"]["action"] != "off"
        case "export" if name == "importance_tokens":
            of_use = bool(values["export"]["importance"])
        case "export" if name == "merge_onto":
            of_use = values["model"]["quantize"] != "none"
    return of_use


def _train(name: str, values: Values) -> bool:
    train = values["train"]
    if name in _OF_OPTIMIZERS:
        return name in OPTIMIZER_USES.get(train["optimizer"], tuple(_OF_OPTIMIZERS))
    if name == "lora_plus_ratio":
        return bool(values["adapter"]["method"] != "full")
    if name == "decay_share":
        return bool(train["schedule"] == "wsd")
    return name != "final_share" or bool(train["schedule"] != "constant")


def note_words(key: str, values: Values) -> str:
    """What a person should know of a field's value; empty for nothing.

    Args:
        key: Dotted.
        values: The recipe as nested tables; not necessarily valid.
    """
    section, _, name = key.rpartition(".")
    if not section:
        return ""
    notes = [NOTES.get((key, values[section][name]), "")] if isinstance(values[section][name], str) else []
    if key == "train.optimizer":
        with suppress(ValidationError):  # the field that is wrong says so itself
            notes += optimizer_notes(TrainSection.model_validate(values["train"]))
    if key == "train.momentum" and values["train"]["momentum"] == 0 and values["train"]["optimizer"] in _USUAL_MOMENTUM:
        notes.append(f"0: as usual, {_USUAL_MOMENTUM[values['train']['optimizer']]}.")
    if key == "evaluation.patience" and not values["evaluation"]["patience"]:
        notes.append("0: train all steps, keep the last.")
    return " ".join(note for note in notes if note)
