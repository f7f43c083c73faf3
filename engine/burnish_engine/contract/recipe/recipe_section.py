"""The base class of a recipe's sections, and its fields with help and unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.fields import FieldInfo


class Section(BaseModel):
    """A section of a recipe: immutable; unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())

    @field_validator("*")
    @classmethod
    def _no_nul(cls, value: Any) -> Any:
        for text in value if isinstance(value, list) else (value,):
            if isinstance(text, str) and "\0" in text:
                raise ValueError("holds a NUL character, which no name or path has")
        return value


def setting(default: Any, help_text: str, *, unit: str = "", **constraints: Any) -> Any:
    """Declare a recipe field: default, help shown to people, unit, and the range pydantic enforces."""
    extra: dict[str, Any] = {"unit": unit} if unit else {}
    if callable(default):
        return Field(default_factory=default, description=help_text, json_schema_extra=extra, **constraints)
    return Field(default=default, description=help_text, json_schema_extra=extra, **constraints)


def field_unit(field: FieldInfo) -> str:
    """The field's unit, or an empty string."""
    extra = field.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""


def field_limits(schema: Mapping[str, Any]) -> str:
    """Write the range, length and number of items that a field's JSON schema allows, such as "≥ 1 ≤ 64"."""
    numbers = schema.get("items", schema)
    found = []
    for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<")):
        if key in numbers:
            number = numbers[key]
            found.append(f"{sign} {number:,.0f}" if float(number).is_integer() else f"{sign} {number:g}")
    for kind, low, high in (("characters", "minLength", "maxLength"), ("items", "minItems", "maxItems")):
        least, most = schema.get(low, 0), schema.get(high)
        if most:
            found.append(f"{f'{least} to' if least else 'up to'} {most:,} {kind}")
        elif least:
            found.append("not empty" if least == 1 else f"at least {least} {kind}")
    return " ".join(found)
