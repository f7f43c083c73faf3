"""What the recipe form shows: one entry a field, read from the schema. No Qt.

Only the choice of what is basic, and the fields that other pages own, are written down here.
"""

from __future__ import annotations

import json
import types
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from burnish_engine.contract.recipe import Recipe, field_unit, sections

Kind = Literal["switch", "choice", "whole", "number", "text", "prose", "list", "lines"]

BASIC = (
    "name",
    "train.epochs",
    "train.learning_rate",
    "adapter.rank",
    "data.max_length",
    "data.learn",
    "train.micro_batch_tokens",
    "train.accumulation",
    "export.quants",
    "evaluation.prompts",
)
"""Shown first, in this order: what people change."""

ELSEWHERE = {"version", "model.path", "data.files", "data.validation_files", "target.kind", "target.ram_gib"}
"""Chosen on the pages Model and Data."""

_SECTION_TITLES = {
    "model": "Base model",
    "data": "Reading the data",
    "adapter": "What is trained",
    "train": "Training",
    "memory": "Memory",
    "masking": "Experimental: matrices that sit out steps",
    "evaluation": "Watching",
    "export": "Export",
    "target": "On the target",
    "devices": "Devices",
}
_KINDS: dict[str, Kind] = {"evaluation.prompts": "lines", "data.system_prompt": "prose"}
"""Where the schema's type alone does not say how it is best typed."""
_LABELS = {
    "name": "Name of the run",
    "model.quantize": "While training, in 4 bits",
    "data.validation_share": "Share held out",
    "data.shape": "Kind of rows",
    "data.learn": "Learn from",
    "data.max_length": "Longest row",
    "data.overlong": "Longer rows",
    "train.epochs": "Passes over the data",
    "train.max_steps": "Stop after",
    "train.max_tokens": "Stop after",
    "train.micro_batch_tokens": "Tokens per pass",
    "train.accumulation": "Passes per step",
    "train.pack": "Pack rows together",
    "train.schedule": "Learning rate over time",
    "train.warmup_share": "Warm up for",
    "train.final_share": "Final learning rate",
    "train.decay_share": "Fall over the last",
    "train.max_grad_norm": "Clip gradients at",
    "train.recompute": "Save memory by recomputing",
    "train.checkpoint_every": "Checkpoint every",
    "train.keep_checkpoints": "Keep",
    "train.beta1": "Adam beta 1",
    "train.beta2": "Adam beta 2",
    "train.epsilon": "Adam epsilon",
    "adapter.method": "Way of training",
    "adapter.targets": "Layers with adapters",
    "memory.layers": "Kept by layers",
    "memory.budget_gib": "Most memory",
    "memory.mlp_rows": "Feed-forward at once",
    "memory.head_rows": "Logits at once",
    "masking.kind": "Way of sitting out",
    "masking.probability": "Chance of moving",
    "masking.temperature": "Temperature",
    "masking.decay": "Decay of the scale",
    "masking.start": "Scale at the start",
    "masking.momentum": "Momentum of the step",
    "masking.share": "What sits out together",
    "masking.rate": "Times the learning rate",
    "evaluation.every": "Check every",
    "evaluation.max_rows": "Held-out rows used",
    "evaluation.prompts": "Questions to ask as it learns",
    "evaluation.sample_tokens": "Longest reply",
    "export.quants": "Files to make",
    "target.quant": "Preferred file",
    "devices.gpus": "GPUs",
    "devices.threads": "CPU threads",
}
"""Plain words; the key itself is in the help. Fields not listed are called by their key."""


_OF_ADAPTERS = {"adapter.rank", "adapter.alpha", "adapter.dropout", "adapter.targets"}


@dataclass(frozen=True)
class RecipeField:
    """One field of the recipe as the form shows it."""

    key: str
    """Dotted, such as train.epochs; top-level fields have no dot."""
    label: str
    kind: Kind
    choices: tuple[str, ...]
    unit: str
    help: str
    item: Literal["text", "whole"] = "text"
    """What a list holds."""

    @property
    def section(self) -> str:
        """The section's name; empty for top-level fields."""
        return self.key.rpartition(".")[0]

    def read(self, values: dict[str, Any]) -> Any:
        """Its value in a recipe given as nested tables."""
        table = values[self.section] if self.section else values
        return table[self.key.rpartition(".")[2]]

    def write(self, values: dict[str, Any], value: Any) -> None:
        """Put a value into a recipe given as nested tables."""
        table = values.setdefault(self.section, {}) if self.section else values
        table[self.key.rpartition(".")[2]] = value

    def as_text(self, value: Any) -> str:
        """A value as the form's line edits show it."""
        if self.kind in ("list", "lines"):
            return ("\n" if self.kind == "lines" else ", ").join(str(item) for item in value)
        return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)

    def from_text(self, text: str) -> Any:
        """The value of a text as typed; where it is no number the text itself, for the schema to refuse."""
        text = text.strip()
        if self.kind == "whole":
            return _number(text, int)
        if self.kind == "number":
            return _number(text, float)
        if self.kind in ("list", "lines"):
            parts = text.split("\n" if self.kind == "lines" else ",")
            items = [part.strip() for part in parts if part.strip()]
            return [_number(item, int) for item in items] if self.item == "whole" else items
        return text


def recipe_fields() -> list[RecipeField]:
    """Every field of the form, in the order of the document."""
    found = []
    pages: list[tuple[str, type[BaseModel]]] = [("", Recipe), *sections().items()]
    for section, model in pages:
        for name, info in model.model_fields.items():
            key = f"{section}.{name}" if section else name
            if key not in ELSEWHERE and key not in sections():
                found.append(_field(key, info))
    return found


def basic_fields() -> list[RecipeField]:
    """What the form shows at first."""
    by_key = {field.key: field for field in recipe_fields()}
    return [by_key[key] for key in BASIC]


def advanced_sections() -> list[tuple[str, list[RecipeField]]]:
    """Everything else as (title, fields), by section."""
    rest = [field for field in recipe_fields() if field.key not in BASIC]
    return [
        (title, fields)
        for section, title in _SECTION_TITLES.items()
        if (fields := [field for field in rest if field.section == section])
    ]


def idle_words(key: str, values: dict[str, Any]) -> str:
    """Why a field plays no part in a recipe, in a sentence; empty where it does.

    Args:
        key: Dotted.
        values: The recipe as nested tables.
    """
    if key in _OF_ADAPTERS and values["adapter"]["method"] == "full":
        return "Does not apply: every weight is trained, without an adapter."
    return ""


def reason_words(key: str, values: dict[str, Any], suggested: dict[str, Any], reason: str) -> str:
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


def _field(key: str, info: FieldInfo) -> RecipeField:
    kind, choices, item = _kind(info.annotation)
    return RecipeField(
        key=key,
        label=_LABELS.get(key) or key.rpartition(".")[2].replace("_", " ").capitalize(),
        kind=_KINDS.get(key, kind),
        choices=choices,
        unit=field_unit(info),
        help=f"{info.description}\n\nIn the recipe: {key}",
        item=item,
    )


def _kind(annotation: Any) -> tuple[Kind, tuple[str, ...], Literal["text", "whole"]]:
    origin = get_origin(annotation)
    if annotation is bool:
        return "switch", (), "text"
    if origin is Literal:
        return "choice", tuple(str(choice) for choice in get_args(annotation)), "text"
    if annotation is int:
        return "whole", (), "text"
    if annotation is float:
        return "number", (), "text"
    if annotation is str:
        return "text", (), "text"
    if origin is list:
        inner = get_args(annotation)[0]
        choices = tuple(get_args(inner)) if get_origin(inner) is Literal else ()
        return "list", choices, "whole" if inner is int else "text"
    if origin in (Union, types.UnionType):
        return _kind(next(part for part in get_args(annotation) if part is not type(None)))
    raise TypeError(f"the form has no editor for {json.dumps(str(annotation))}")


def _number(text: str, kind: type[int] | type[float]) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text
