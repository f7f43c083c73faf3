"""Converts the values of Arrow columns, by their types, to the JSON values that a row holds.

A struct column has every key in every row: a key that a row lacks is null there. So nulls in structs are left out; to
keep one, a row's value is JSON text, a map, or of `datasets`' Json type.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from burnish_engine.data.files.problems import unreadable_value

Convert = Callable[[Any], Any]
"""Function from a value that pyarrow made, never None, to a JSON value."""

_MEDIA = ({"bytes", "path"}, {"array", "sampling_rate"})  # fields of datasets' Image and Audio
_TIMES = ("date", "time", "timestamp")


def converter(kind: Any, name: str, encoding: str = "utf-8") -> Convert | None:
    """Return the function that converts the values of a type; None where they are JSON values as they are.

    Values that are no JSON values, such as bytes that are no text, become `problems.unreadable_value`, so that a column
    which nobody reads does no harm.

    Args:
        kind: Arrow type.
        name: name of the column, for messages.
        encoding: encoding of texts that are stored as bytes.
    """
    from pyarrow import types

    if isinstance(kind, _extension_type()):
        return _extension(kind, name, encoding)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return converter(kind.value_type, name, encoding)
    if types.is_struct(kind):
        return _struct(kind, name, encoding)
    if types.is_map(kind):
        return _map(converter(kind.key_type, name, encoding), converter(kind.item_type, name, encoding), name)
    if types.is_nested(kind) and hasattr(kind, "value_type"):
        return _list(converter(kind.value_type, name, encoding))
    return _plain(kind, name, encoding)


def _plain(kind: Any, name: str, encoding: str) -> Convert | None:
    from pyarrow import types

    shown = str(kind)
    if types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind) or "string" in shown:
        return None
    if types.is_floating(kind):
        return float
    if "binary" in shown:
        return _text(name, encoding)
    if types.is_decimal(kind):
        return _number
    if shown.startswith(_TIMES):
        return lambda value: value.isoformat()
    if types.is_duration(kind):
        return lambda value: value.total_seconds()
    return lambda _: unreadable_value(name, f"values of the type {shown}")


def _extension_type() -> Any:
    from pyarrow import BaseExtensionType

    return BaseExtensionType


def _extension(kind: Any, name: str, encoding: str) -> Convert | None:
    match kind.extension_name:
        case "arrow.json":  # datasets' Json, and Parquet's
            return _parsed
        case "arrow.uuid":
            return str
        case "arrow.bool8":
            return None
        case "arrow.fixed_shape_tensor" | "arrow.variable_shape_tensor":
            return lambda _: unreadable_value(name, f"values of the type {kind.extension_name}")
    return converter(kind.storage_type, name, encoding)


def _struct(kind: Any, name: str, encoding: str) -> Convert:
    fields = {field.name: converter(field.type, f"{name}.{field.name}", encoding) for field in kind}
    if any(fields.keys() >= media for media in _MEDIA):
        return lambda value: {key: item if isinstance(item, str) else None for key, item in value.items()}

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for key, item in value.items():
            if item is not None:
                change = fields[key]
                found[key] = item if change is None else change(item)
        return found

    return convert


def _list(change: Convert | None) -> Convert | None:
    if change is None:
        return None
    return lambda value: [None if item is None else change(item) for item in value]


def _map(key_of: Convert | None, change: Convert | None, name: str) -> Convert:
    def convert(value: list[tuple[Any, Any]]) -> dict[str, Any]:
        found = {}
        for key, item in value:
            made = key if key_of is None else key_of(key)
            text = made if isinstance(made, str) else json.dumps(made)
            found[text] = item if item is None or change is None else change(item)
        return found if len(found) == len(value) else unreadable_value(name, "a map with a key twice")

    return convert


def _text(name: str, encoding: str) -> Convert:
    def convert(value: bytes) -> Any:
        try:
            return value.decode(encoding)
        except UnicodeDecodeError:
            return unreadable_value(name, f"bytes that are not {encoding.upper()}")

    return convert


def _number(value: Decimal) -> Any:
    """Convert a decimal to the number of the same value, or to its digits where no number has it."""
    if not value.is_finite():
        return None
    whole = value == value.to_integral_value()
    if whole:
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
