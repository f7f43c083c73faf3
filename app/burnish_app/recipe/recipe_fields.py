"""The fields that the recipe form shows, read from the recipe's declarations. No Qt."""

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
from burnish_app.wording.recipe_text import choice_texts, setting_name
from burnish_engine.contract.recipe.recipe import Recipe, sections
from burnish_engine.contract.recipe.recipe_section import SettingInfo, setting_info

EditorKind = Literal["switch", "choice", "whole", "number", "text", "prose", "list", "lines"]
ListItemKind = Literal["text", "whole"]

PLACE = "devices.where"
"""Key of the field that says where the recipe trains."""
_SHARE_STEP = 0.05


@dataclass(frozen=True)
class RecipeField:
    """One field of the recipe, as the form shows it."""

    key: str
    """Dotted key, such as train.epochs; top-level fields have no dot."""
    info: SettingInfo
    """Words of its declaration, in English."""
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
        return tr(self.info.zero) if self.info.zero and self.kind in ("whole", "number") else ""

    @property
    def placeholder(self) -> str:
        """The words in an empty line that say what it stands for."""
        return tr(self.info.zero) if self.info.zero and self.kind == "text" else ""

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
        return choice_texts(self.key).get(choice, choice)

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

    def stepped(self, value: float, *, up: bool) -> float:
        """Return the next value that a stepper offers: of a share 0.05 more or less, else as its declaration says.

        A value within the field's bounds stays within them; at a bound it stays as it is.

        Args:
            value: value now; not necessarily allowed.
            up: whether a larger value is wanted.
        """
        following = self._next(value, up=up)
        found = int(following) if self.kind == "whole" else float(following)
        above = found > self.low if self.low_is_open else found >= self.low
        return found if above and (found < self.high if self.high_is_open else found <= self.high) else value

    def _next(self, value: float, *, up: bool) -> float:
        step, is_share = self.info.step, self.info.unit == "share"
        if value <= 0:
            return (step.first or (_SHARE_STEP if is_share else 1.0)) if up else value
        if is_share:
            return round(value + (_SHARE_STEP if up else -_SHARE_STEP), 6)
        if not up and self.low <= 0 and not self.low_is_open and value <= step.first:
            return 0.0
        if step.doubles:
            return value * 2 if up else max(value / 2, min(value, self.low)) if self.kind == "number" else value // 2
        size = 10.0 ** math.floor(math.log10(value) + (1e-9 if up else -1e-9))  # below 1, 10, 100 the step is a tenth
        if self.kind == "whole":
            size = max(size, 1.0)
        count = value / size
        count = math.floor(count + 1 + 1e-6) if up else math.ceil(count - 1 - 1e-6)
        return float(f"{count * size:.6g}")


@cache
def all_fields() -> tuple[RecipeField, ...]:
    """Return every setting of a recipe, in the order of the recipe file."""
    found = []
    pages: list[tuple[str, type[BaseModel]]] = [("", Recipe), *sections().items()]
    for section, model in pages:
        for name, info in model.model_fields.items():
            key = f"{section}.{name}" if section else name
            if key not in sections():
                found.append(_field(key, info))
    return tuple(found)


def recipe_fields() -> tuple[RecipeField, ...]:
    """Return every field of the form, in the order of the recipe file."""
    return tuple(field for field in all_fields() if field.info.page in ("first", "recipe", "optimizer"))


def kept_elsewhere() -> set[str]:
    """Return the keys of the settings that the pages Model and Data own, and of the version."""
    return {field.key for field in all_fields()} - {field.key for field in recipe_fields()}


def cleaning_fields() -> list[RecipeField]:
    """Return the fields that decide what happens to odd rows; the page Data shows them."""
    found = _on_page("rows")
    overlong = next(field for field in all_fields() if field.key == "data.overlong")  # the form has it too
    return [*found[:4], overlong, *found[4:]]


def main_fields() -> list[RecipeField]:
    """Return the fields that the form shows first."""
    return _on_page("first")


def folded_sections() -> list[tuple[str, list[RecipeField]]]:
    """Return all other fields as (section title, fields); the optimizer's follow those of their section."""
    rest, optimizer = _on_page("recipe"), _on_page("optimizer")
    found = []
    for section in sections():
        found.append((setting_name(section), [field for field in rest if field.section == section]))
        found.append((tr("Optimizer"), [field for field in optimizer if field.section == section]))
    return [(title, fields) for title, fields in found if fields]


def _on_page(page: str) -> list[RecipeField]:
    return sorted((field for field in all_fields() if field.info.page == page), key=lambda field: field.info.order)


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


def _field(key: str, declared: FieldInfo) -> RecipeField:
    kind, choices, item = _kind(declared.annotation)
    info = setting_info(declared)
    if info.long:
        kind = "lines" if kind == "list" else "prose"
    return RecipeField(
        key=key,
        info=info,
        label=setting_name(key),
        kind=kind,
        choices=choices,
        unit=tr(info.unit) if info.unit else "",
        help=tr("{description}\n\nIn the recipe: {key}").format(description=tr(str(declared.description)), key=key),
        item=item,
        **_bounds(declared),
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
