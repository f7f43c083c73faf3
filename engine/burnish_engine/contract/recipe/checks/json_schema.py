"""Check JSON values by the part of JSON Schema (draft 2020-12) that descriptions of a reply use.

A keyword that is not known here is refused rather than ignored: ignoring it would let wrong replies pass.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from burnish_engine.contract.recipe.checks.patterns import SlowPatternError, check_pattern, find

_ANNOTATIONS = {
    "$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "format",
    "deprecated", "readOnly", "writeOnly",
}  # fmt: skip
_TYPES: dict[str, type] = {
    "object": dict, "array": list, "string": str, "number": float, "integer": int, "boolean": bool, "null": type(None),
}  # fmt: skip
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_COUNTS = {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
_LISTS = {"anyOf", "oneOf", "allOf"}
_MAPS = {"properties", "$defs", "definitions"}
_SCHEMAS = {"additionalProperties", "items", "not"}
_KNOWN = _ANNOTATIONS | _NUMBERS | _COUNTS | _LISTS | _MAPS | _SCHEMAS | {
    "type", "enum", "const", "required", "uniqueItems", "pattern", "$ref",
}  # fmt: skip
_DEEPEST = 64
"""Most references and nested values on the way to one place; more are an endless circle or no useful reply."""
_MOST_NESTED = 128
"""Most lists and objects within one another. Python's own limit, of about a thousand, counts the callers too."""
_MOST_STEPS = 100_000
"""Most places of a value and a schema that are compared; references can make more out of a short schema."""


@dataclass
class _Root:
    """The whole schema, which references name places of, and the number of comparisons so far."""

    schema: Mapping[str, Any]
    steps: int = 0

    def count(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise SlowPatternError


def parse_json(text: str) -> Any:
    """Parse a JSON document as the standard has it: NaN, infinities and text behind the value are refused.

    Raises:
        ValueError: The text is no JSON, or is nested too deeply.
    """

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is no JSON value")

    try:
        value = json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [value]
    for _ in range(_MOST_NESTED + 1):
        level = [part for one in level for part in _parts(one)]
    if level:
        raise ValueError("it is nested too deeply")
    return value


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def parse_schema(text: str) -> dict[str, Any]:
    """Parse a schema and check that every keyword in it is known.

    Raises:
        ValueError: The text is no schema, or uses what is not checked here.
    """
    schema = parse_json(text)
    if not isinstance(schema, dict):
        raise ValueError('a schema is a JSON object, such as {"type": "object"}')
    _check(schema, schema, "", 0)
    parts = list(_schemas(schema))
    checked = {id(part) for part in parts}
    for reference in [part["$ref"] for part in parts if "$ref" in part]:
        target = _target(reference, schema)
        if isinstance(target, dict) and id(target) not in checked:
            raise ValueError(f"$ref names {reference}, which is no schema; those that are named stand in $defs")
    return schema


def schema_problem(value: Any, schema: Mapping[str, Any]) -> str:
    """Say what of a value contradicts a schema from `parse_schema`; empty where nothing does.

    Raises:
        SlowPatternError: The schema or a pattern of it takes too long.
    """
    return next(_problems(value, schema, _Root(schema), "", 0), "")


def same_json(one: Any, other: Any) -> bool:
    """Whether two parsed JSON values are equal: 1 equals 1.0, and true does not equal 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def _frozen(value: Any) -> Any:
    """Return a form of a parsed JSON value that can be hashed, and is equal where `same_json` says so."""
    if isinstance(value, dict):
        return frozenset((name, _frozen(entry)) for name, entry in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return (bool, value) if isinstance(value, bool) else value


def _check(schema: Any, root: Mapping[str, Any], place: str, depth: int) -> None:
    """Raise a ValueError that names the place of the first fault of a schema."""
    where = f" at {place}" if place else ""
    if depth > _DEEPEST:
        raise ValueError(f"it is nested too deeply{where}")
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise ValueError(f"a schema is an object, true or false{where}, not {json.dumps(schema)}")
    if unknown := sorted(schema.keys() - _KNOWN):
        raise ValueError(f"{unknown[0]}{where} is not a keyword that Burnish checks (known: {', '.join(_checked())})")
    for key, value in schema.items():
        _check_keyword(key, value, root, f"{place}/{key}", depth)


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """List a checked schema and all schemas in it, but not what stands in annotations, `enum` and `const`."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, value in schema.items():
        parts = value.values() if key in _MAPS else value if key in _LISTS else [value] if key in _SCHEMAS else []
        for part in parts:
            yield from _schemas(part)


def _checked() -> list[str]:
    return sorted(_KNOWN - _ANNOTATIONS)


def _check_keyword(key: str, value: Any, root: Mapping[str, Any], place: str, depth: int) -> None:
    wanted, fits = _VALUES.get(key, ("", _anything))
    if not fits(value):
        raise ValueError(f"{place} has to be {wanted}, not {_short(value)}")
    if key == "$ref":
        _target(value, root)
    elif key == "pattern":
        check_pattern(value)
    elif key in _LISTS:
        for number, part in enumerate(value):
            _check(part, root, f"{place}/{number}", depth + 1)
    elif key in _MAPS:
        for name, part in value.items():
            _check(part, root, f"{place}/{name}", depth + 1)
    elif key in _SCHEMAS:
        _check(value, root, place, depth + 1)


def _anything(_value: Any) -> bool:
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_types(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


_VALUES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "type": (f"one of {', '.join(_TYPES)}, or a list of these", _are_types),
    "pattern": ("text", lambda value: isinstance(value, str)),
    "uniqueItems": ("true or false", lambda value: isinstance(value, bool)),
    "enum": ("a list", lambda value: isinstance(value, list)),
    "required": ("a list of names", _are_names),
    **dict.fromkeys(_NUMBERS, ("a number", _is_number)),
    **dict.fromkeys(_COUNTS, ("a whole number", lambda value: _is_number(value) and isinstance(value, int))),
    **dict.fromkeys(_LISTS, ("a list of schemas", lambda value: isinstance(value, list) and bool(value))),
    **dict.fromkeys(_MAPS, ("an object of schemas", lambda value: isinstance(value, dict))),
}
"""Keyword to what its value has to be, and the function that tells."""


def _target(reference: Any, root: Mapping[str, Any]) -> Any:
    """Return what a reference within the schema names."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise ValueError(f"$ref is {json.dumps(reference)}; only places of the schema itself can be named (#/$defs/..)")
    found: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            raise ValueError(f"$ref names {reference}, which the schema does not have")
        found = found[name]
    if not isinstance(found, dict | bool):
        raise ValueError(f"$ref names {reference}, which is no schema")
    return found


def _problems(value: Any, schema: Any, root: _Root, place: str, depth: int) -> Iterator[str]:
    here = f"{place or 'the reply'} "
    root.count()
    if depth > _DEEPEST:
        yield f"{here}is nested too deeply"
    elif schema is False:
        yield f"{here}must not be there"
    elif isinstance(schema, dict):
        kinds = schema.get("type")
        names = kinds if isinstance(kinds, list) else [kinds] if kinds else []
        if names and not any(_is(value, name) for name in names):
            yield f"{here}is not of type {' or '.join(names)}"
            return
        if "$ref" in schema:
            yield from _problems(value, _target(schema["$ref"], root.schema), root, place, depth + 1)
        if "enum" in schema and not any(same_json(value, one) for one in schema["enum"]):
            yield f"{here}is none of {_short(schema['enum'])}"
        if "const" in schema and not same_json(value, schema["const"]):
            yield f"{here}is not {_short(schema['const'])}"
        yield from _combined(value, schema, root, place, depth)
        if isinstance(value, dict):
            yield from _object(value, schema, root, place, depth)
        elif isinstance(value, list):
            yield from _array(value, schema, root, place, depth)
        elif isinstance(value, str):
            yield from _text(value, schema, here)
        elif _is(value, "number"):
            yield from _number(value, schema, here)


def _is(value: Any, name: str) -> bool:
    if name == "number":
        return _is_number(value)
    if name == "integer":
        return _is_number(value) and (isinstance(value, int) or float(value).is_integer())
    return isinstance(value, _TYPES[name])


def _combined(value: Any, schema: Mapping[str, Any], root: _Root, place: str, depth: int) -> Iterator[str]:
    def fits(part: Any) -> bool:
        return next(_problems(value, part, root, place, depth + 1), None) is None

    here = f"{place or 'the reply'} "
    for part in schema.get("allOf", ()):
        yield from _problems(value, part, root, place, depth + 1)
    if "anyOf" in schema and not any(fits(part) for part in schema["anyOf"]):
        yield f"{here}fits none of the schemas of anyOf"
    if "oneOf" in schema and (count := sum(fits(part) for part in schema["oneOf"])) != 1:
        yield f"{here}fits {count} of the schemas of oneOf instead of one"
    if "not" in schema and fits(schema["not"]):
        yield f"{here}fits what it must not"


def _object(value: Mapping[str, Any], schema: Mapping[str, Any], root: _Root, place: str, depth: int) -> Iterator[str]:
    here = f"{place or 'the reply'} "
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{here}lacks {name}"
    yield from _sized(len(value), schema, here, "Properties", "keys")
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, entry in value.items():
        part = properties.get(name, others)
        if part is False and name not in properties:
            yield f"{here}has the key {name}, which the schema does not"
        else:
            yield from _problems(entry, part, root, f"{place}.{name}".lstrip("."), depth + 1)


def _array(value: list[Any], schema: Mapping[str, Any], root: _Root, place: str, depth: int) -> Iterator[str]:
    here = f"{place or 'the reply'} "
    yield from _sized(len(value), schema, here, "Items", "items")
    if schema.get("uniqueItems") and len(set(map(_frozen, value))) < len(value):
        yield f"{here}has an item twice"
    for number, entry in enumerate(value):
        yield from _problems(entry, schema.get("items", True), root, f"{place}[{number}]", depth + 1)


def _text(value: str, schema: Mapping[str, Any], here: str) -> Iterator[str]:
    yield from _sized(len(value), schema, here, "Length", "characters")
    if "pattern" in schema and find(schema["pattern"], value) is None:
        yield f"{here}does not match {schema['pattern']}"


def _sized(count: int, schema: Mapping[str, Any], here: str, of: str, what: str) -> Iterator[str]:
    if not schema.get(f"min{of}", 0) <= count <= schema.get(f"max{of}", math.inf):
        yield f"{here}has {count} {what}"


def _number(value: float, schema: Mapping[str, Any], here: str) -> Iterator[str]:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    if not (low <= value <= high and above < value < below):
        yield f"{here}is {_short(value)}, out of range"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
