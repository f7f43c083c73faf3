"""The fields that the recipe form shows, read from the recipe's schema. No Qt.

This module lists only which fields come first and which ones other pages own; labels are in `wording.recipe_text`.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from burnish_app.look.language import tr
from burnish_app.wording.numbers import as_sentence, decimal_text
from burnish_app.wording.recipe_text import CHOICES, LABELS, OPTIMIZER, SECTION_TITLES, ZERO_WORDS
from burnish_engine.contract.recipe.recipe import Recipe, sections
from burnish_engine.contract.recipe.recipe_section import field_unit

EditorKind = Literal["switch", "choice", "whole", "number", "text", "prose", "list", "lines"]
ListItemKind = Literal["text", "whole"]

MAIN = (
    "train.epochs", "train.max_steps", "train.learning_rate", "adapter.rank", "model.quantize", "data.max_length",
    "train.micro_batch_tokens", "task.metric",
)  # fmt: skip
"""Keys of the eight settings that decide most; the form shows them first, in this order."""
PLACE = "devices.where"
"""Key of the field that says where the recipe trains."""
_NAME = "name"

_CLEANING = (
    "data.duplicates", "data.leaks", "data.degenerate", "data.secrets", "data.addresses", "data.damaged",
    "data.control_tokens", "data.tools", "data.unwritten", "data.placeholders", "data.broken_rows", "data.encoding",
)  # fmt: skip
ELSEWHERE = {
    "version", "model.path", "adapter.start", "target.kind", "target.ram_gib",
    "data.files", "data.validation_files", "data.weights", "data.shape", "data.columns", "data.template", *_CLEANING,
}  # fmt: skip
"""Keys of the fields that the pages Model and Data own."""

_OPTIMIZER = (
    "train.optimizer", "train.momentum", "train.beta1", "train.beta2", "train.epsilon", "train.weight_decay",
    "train.max_grad_norm", "train.lora_plus_ratio",
)  # fmt: skip
_KINDS: dict[str, EditorKind] = {
    "evaluation.prompts": "lines",
    "data.system_prompt": "prose",
    "task.choices": "lines",
    "task.json_schema": "prose",
}
"""Editors of the fields whose schema type alone does not decide the editor."""


@dataclass(frozen=True)
class RecipeField:
    """One field of the recipe, as the form shows it."""

    key: str
    """Dotted key, such as train.epochs; top-level fields have no dot."""
    label: str
    kind: EditorKind
    choices: tuple[str, ...]
    unit: str
    help: str
    item: ListItemKind = "text"
    """Kind of a list's items."""
    low: float = -math.inf
    """Least allowed number; itself too, unless `low_is_open`."""
    high: float = math.inf
    low_is_open: bool = False
    high_is_open: bool = False

    @property
    def zero(self) -> str:
        """The word that stands for 0 in the form, such as "off"; empty: 0 is a number like others."""
        return ZERO_WORDS.get(self.key, "")

    @property
    def section(self) -> str:
        """The name of the field's section; empty for top-level fields."""
        return self.key.rpartition(".")[0]

    def read(self, values: dict[str, Any]) -> Any:
        """Return the field's value in a recipe given as nested tables."""
        table = values[self.section] if self.section else values
        return table[self.key.rpartition(".")[2]]

    def write(self, values: dict[str, Any], value: Any) -> None:
        """Write a value into a recipe given as nested tables."""
        table = values.setdefault(self.section, {}) if self.section else values
        table[self.key.rpartition(".")[2]] = value

    def as_text(self, value: Any) -> str:
        """Return a value as the form's line edits show it."""
        if self.kind in ("list", "lines"):
            return ("\n" if self.kind == "lines" else ", ").join(str(item) for item in value)
        if self.zero and value == 0 and not isinstance(value, str):
            return self.zero
        return decimal_text(value) if isinstance(value, float) else str(value)

    def choice_text(self, choice: str) -> str:
        """Return the text of one of `choices`."""
        return CHOICES.get(self.key, {}).get(choice, choice)

    def from_text(self, text: str) -> Any:
        """Parse a typed text into a value. A text that should be a number and is not stays: the schema refuses it."""
        text = text.strip()
        if self.zero and text.casefold() == self.zero.casefold():
            text = "0"
        if self.kind == "whole":
            return _number(text.replace(",", ""), int)
        if self.kind == "number":
            return _number(text, float)
        if self.kind in ("list", "lines"):
            parts = text.split("\n" if self.kind == "lines" else ",")
            items = [part.strip() for part in parts if part.strip()]
            return [_number(item, int) for item in items] if self.item == "whole" else items
        return text


@cache
def recipe_fields() -> tuple[RecipeField, ...]:
    """Return every field of the form, in the order of the recipe file."""
    found = []
    pages: list[tuple[str, type[BaseModel]]] = [("", Recipe), *sections().items()]
    for section, model in pages:
        for name, info in model.model_fields.items():
            key = f"{section}.{name}" if section else name
            if key not in ELSEWHERE and key not in sections():
                found.append(_field(key, info))
    return tuple(found)


def cleaning_fields() -> list[RecipeField]:
    """Return the fields that decide what happens to odd rows; the page Data shows them."""
    infos = sections()["data"].model_fields
    keys = [*_CLEANING[:4], "data.overlong", *_CLEANING[4:]]
    return [_field(key, infos[key.rpartition(".")[2]]) for key in keys]


def main_fields() -> list[RecipeField]:
    """Return the fields that the form shows first: the run's name, `MAIN`, and where it runs."""
    by_key = {field.key: field for field in recipe_fields()}
    return [by_key[key] for key in (_NAME, *MAIN, PLACE)]


def folded_sections() -> list[tuple[str, list[RecipeField]]]:
    """Return all other fields as (section title, fields)."""
    first = {field.key for field in main_fields()}
    rest = [field for field in recipe_fields() if field.key not in first]
    return [
        (title, fields)
        for section, title in SECTION_TITLES.items()
        if (fields := sorted((field for field in rest if _shown_in(field) == section), key=_optimizer_order))
    ]


def _shown_in(field: RecipeField) -> str:
    return OPTIMIZER if field.key in _OPTIMIZER else field.section


def _optimizer_order(field: RecipeField) -> int:
    """Return the sort key of a field: optimizer fields have an order of their own, others keep the recipe file's."""
    return _OPTIMIZER.index(field.key) if field.key in _OPTIMIZER else 0


def problems_by_field(problems: Mapping[str, str]) -> dict[str, str]:
    """Attach each problem to a field; that of a section or of the whole recipe goes to the field that it begins with.

    Args:
        problems: dotted key, section name, or the empty key of the whole recipe, to what is wrong.
    """
    found = {}
    for key, text in problems.items():
        first = text.removeprefix(f"{key} ").partition(" ")[0]
        section, _, name = f"{key}.{first}".removeprefix(".").partition(".")
        is_field = section in sections() and name in sections()[section].model_fields
        found[f"{section}.{name}" if is_field else key] = text
    return found


def problem_of_row(key: str, text: str) -> str:
    """Return what is wrong with a field for its own row, where its name and value are seen already.

    Args:
        key: dotted key of the field.
        text: problem that may begin with the key and the value.
    """
    if text.startswith(f"{key} = "):
        text = text.partition(": ")[2] or text
    return as_sentence(text.removeprefix(f"{key} "))


def _field(key: str, info: FieldInfo) -> RecipeField:
    kind, choices, item = _kind(info.annotation)
    return RecipeField(
        key=key,
        label=LABELS.get(key) or key.rpartition(".")[2].replace("_", " ").capitalize(),
        kind=_KINDS.get(key, kind),
        choices=choices,
        unit=field_unit(info),
        help=tr("{description}\n\nIn the recipe: {key}").format(description=info.description, key=key),
        item=item,
        **_bounds(info),
    )


def _bounds(info: FieldInfo) -> dict[str, Any]:
    """Return the bounds of a number as fields of `RecipeField`."""
    found: dict[str, Any] = {}
    for limit in info.metadata:
        for name, bound in (("ge", "low"), ("gt", "low"), ("le", "high"), ("lt", "high")):
            if (value := getattr(limit, name, None)) is not None:
                found[bound] = float(value)
                found[f"{bound}_is_open"] = name in ("gt", "lt")
    return found


def _kind(annotation: Any) -> tuple[EditorKind, tuple[str, ...], ListItemKind]:
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
        parts = [_kind(part) for part in get_args(annotation) if part is not type(None)]
        kind, _, item = parts[0]
        return kind, tuple(choice for _, choices, _ in parts for choice in choices), item
    raise TypeError(f"the form has no editor for {json.dumps(str(annotation))}")


def _number(text: str, kind: type[int] | type[float]) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text
