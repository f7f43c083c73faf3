"""The base class of a recipe's sections, and the declaration of their settings.

A setting is declared in one place, with everything that people read about it in plain English. The form of the window
(which translates it), its search, what is hidden, the command line, the reference page and the comments of a recipe
file follow from the declaration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.fields import FieldInfo

Page = Literal["recipe", "first", "optimizer", "model", "data", "rows", "none"]
"""Place of a setting in the window: on the page Recipe among the others of its section, before all of them, or among
those of the optimizer; on the page Model or Data; with the choices about odd rows there; or nowhere."""


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

    @property
    def notes(self) -> list[str]:
        """Sentences on values that do not go well together, though they are valid."""
        return []


@dataclass(frozen=True)
class Condition:
    """A condition on another setting, without which a setting has no effect. Made by `when` and `unless`."""

    key: str
    """Name of the other setting; dotted where it is in another section."""
    values: tuple[object, ...]
    wanted: bool
    """Whether the other setting has to be one of the values, or none of them."""
    why: str = ""
    """Sentence for a person where that is not so; the setting then stays in sight, and is hidden without it."""
    replaces: bool = False
    """Whether this setting then gets its value from the other one, rather than having no effect."""

    def key_in(self, section: str) -> str:
        """Return the dotted key of the other setting, for a setting of this section."""
        return self.key if "." in self.key else f"{section}.{self.key}"

    def holds(self, section: str, values: Mapping[str, Any]) -> bool:
        """Whether a setting of this section has an effect in a recipe, given as nested tables."""
        table, _, name = self.key_in(section).partition(".")
        return (values[table][name] in self.values) == self.wanted

    def text_in(self, section: str) -> str:
        """Write the condition as a sentence, such as 'Only with train.schedule = "wsd".'."""
        values = " or ".join(json.dumps(value, ensure_ascii=False) for value in self.values)
        return f"{'Only' if self.wanted else 'Not'} with {self.key_in(section)} = {values}."


def when(key: str, *values: object, why: str = "", replaces: bool = False) -> Condition:
    """Return the condition that another setting is one of the values."""
    return Condition(key, values, wanted=True, why=why, replaces=replaces)


def unless(key: str, *values: object, why: str = "") -> Condition:
    """Return the condition that another setting is none of the values."""
    return Condition(key, values, wanted=False, why=why)


@dataclass(frozen=True)
class Step:
    """The next value that a stepper offers: one more in the leading digit, unless it doubles."""

    first: float = 0
    """First value above 0, where 0 means something else than nothing."""
    doubles: bool = False
    """Whether the next value is twice or half the present one."""


@dataclass(frozen=True)
class SettingInfo:
    """The words of a setting besides its help, and its place in the window, in plain English."""

    unit: str = ""
    label: str = ""
    """The field's term, with plain words in brackets where that helps; empty: the key."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Value to its name, where it is not called by itself."""
    zero: str = ""
    """Name of 0, or of an empty text, where it means something else than nothing."""
    note: Mapping[Any, str] = field(default_factory=dict)
    """Value to a sentence for a person who chooses it."""
    more: str = ""
    """Sentence on a value above the suggested one; {ratio} stands for how many times it is larger."""
    less: str = ""
    """Sentence on a value below the suggested one; {ratio} stands for how many times it is smaller."""
    used_if: tuple[Condition, ...] = ()
    """Conditions, all of which have to hold so that the setting has an effect."""
    page: Page = "recipe"
    order: int = 0
    """Place among the settings of `page`, where it is not that of the recipe file."""
    step: Step = field(default_factory=Step)
    long: bool = False
    """Whether its texts are written on several lines."""

    def __call__(self, schema: dict[str, Any]) -> None:
        """Add the unit to the field's JSON schema; pydantic calls this."""
        if self.unit:
            schema["unit"] = self.unit

    def use_text(self, section: str) -> str:
        """Write in sentences when a setting of this section has an effect; empty: always."""
        return " ".join(one.text_in(section) for one in self.used_if if not one.replaces)

    def missing(self, section: str, values: Mapping[str, Any]) -> Condition | None:
        """Return the first condition that does not hold, so that the setting has no effect; None: it has one.

        Args:
            section: name of the setting's section.
            values: recipe as nested tables; not necessarily valid.
        """
        return next((one for one in self.used_if if not one.holds(section, values)), None)


def setting(
    default: Any,
    help_text: str,
    *,
    unit: str = "",
    label: str = "",
    choices: Mapping[str, str] | None = None,
    zero: str = "",
    note: Mapping[Any, str] | None = None,
    more: str = "",
    less: str = "",
    used_if: Condition | tuple[Condition, ...] = (),
    page: Page = "recipe",
    order: int = 0,
    step: Step | None = None,
    long: bool = False,
    **constraints: Any,
) -> Any:
    """Declare a setting: its default or a function that makes it, its help, and what `SettingInfo` describes.

    The help has at most 300 characters; what is longer belongs in the guide. All other arguments are the range that
    pydantic enforces, such as `ge=0`.
    """
    info = SettingInfo(
        unit=unit, label=label, choices=choices or {}, zero=zero, note=note or {}, more=more, less=less,
        used_if=used_if if isinstance(used_if, tuple) else (used_if,), page=page, order=order, step=step or Step(),
        long=long,
    )  # fmt: skip
    made = {"default_factory": default} if callable(default) else {"default": default}
    return Field(**made, description=help_text, json_schema_extra=info, **constraints)


def setting_info(declared: FieldInfo) -> SettingInfo:
    """Return what a setting's declaration says besides its default, help and range."""
    extra = declared.json_schema_extra
    return extra if isinstance(extra, SettingInfo) else SettingInfo()


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
