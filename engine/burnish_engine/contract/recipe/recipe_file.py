"""Reads and writes recipes: TOML in, validated `Recipe` out; errors name the key, value and nearest known key."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Table

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_limited
from burnish_engine.contract.paths import expand_home, is_address, is_model_name
from burnish_engine.contract.recipe.recipe import RECIPE_VERSION, Recipe, sections, tables
from burnish_engine.contract.recipe.recipe_section import field_limits, setting_info

_LARGEST_RECIPE_BYTES = 1_000_000
_MOST_PROBLEMS = 10  # told of one recipe


def load_recipe(path: Path) -> Recipe:
    """Load the recipe in a TOML file, with relative paths made absolute from the file's folder.

    Raises:
        UsageError: The file is missing, no plain file, larger than 1 MB, not UTF-8, not TOML, of another version, or
            breaks the schema.
    """
    try:
        text = read_limited(path, _LARGEST_RECIPE_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"There is no recipe at {path}.", "Write one with `burnish recipe new`, or check the path."
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The recipe {path} is not UTF-8 text (byte {error.start}).", "Save it as UTF-8 and try again."
        ) from None
    except ValueError as error:
        raise UsageError(
            f"The recipe {path} {error}.", "Give a TOML file such as `burnish recipe new` writes."
        ) from None
    except OSError as error:
        raise UsageError(f"The recipe {path} could not be read: {error.strerror}.", "Check the path.") from None
    return resolve_paths(parse_recipe(text, source=str(path)), path.resolve().parent)


def parse_recipe(text: str, source: str = "recipe") -> Recipe:
    """Parse the recipe in a TOML text.

    Args:
        text: recipe as TOML.
        source: name of the text in messages.

    Raises:
        UsageError: The text is not TOML, of another version, or breaks the schema.
    """
    try:
        document = _read_toml(text)
    except (TOMLKitError, ValueError, RecursionError) as error:  # Python refuses numbers of more than 4,300 digits
        problem = str(error).rstrip(".")
        raise UsageError(f"{source} is not valid TOML: {problem}.", "Correct that place and try again.") from None
    version = document.get("version", RECIPE_VERSION)
    if version != RECIPE_VERSION:
        raise UsageError(
            f"{source} has recipe version {version!r}; this Burnish reads version {RECIPE_VERSION}.",
            "Use the Burnish that wrote it, or set version = 1 and check it with `burnish recipe check`.",
        )
    try:
        return Recipe.model_validate(document)
    except ValidationError as error:
        count = error.error_count()
        problems = [_explain(detail) for detail in error.errors(include_url=False)[:_MOST_PROBLEMS]]
        more = f"; and {count - len(problems)} more" if count > len(problems) else ""
        raise UsageError(
            f"{source} has {count} problem{'s' if count > 1 else ''}: {'; '.join(problems)}{more}.",
            "`burnish recipe reference` lists every key with its range.",
        ) from None


def _read_toml(text: str) -> dict[str, Any]:
    """Read a TOML text. Python's own reader takes a tenth of the time; tomlkit's words say better what is wrong."""
    try:
        return tomllib.loads(text)
    except ValueError:
        return tomlkit.parse(text).unwrap()


def recipe_problems(document: Mapping[str, Any]) -> dict[str, str]:
    """Find what is wrong with a recipe that is being edited, key by key.

    Args:
        document: recipe as nested tables.

    Returns:
        Problems by dotted key, such as train.epochs; the empty key holds those that concern several keys. Empty where
        the recipe is valid.
    """
    try:
        Recipe.model_validate(document)
    except ValidationError as error:
        found: dict[str, str] = {}
        for detail in error.errors(include_url=False):
            found.setdefault(".".join(str(part) for part in detail["loc"][:2]), _explain(detail))
        return found
    return {}


def resolve_paths(recipe: Recipe, base: Path) -> Recipe:
    """Resolve a recipe's relative data files and model folder from `base`.

    A model such as owner/name is a folder where there is one of that path, else the name of a model.
    """

    def absolute(name: str) -> str:
        if is_address(name):
            return name
        path = expand_home(name)
        return str(path if path.is_absolute() else base / path)

    data = recipe.data.model_copy(
        update={
            "files": [absolute(name) for name in recipe.data.files],
            "validation_files": [absolute(name) for name in recipe.data.validation_files],
            "template": absolute(recipe.data.template)
            if recipe.data.template.endswith(".jinja")
            else recipe.data.template,
        }
    )
    adapter = recipe.adapter
    if adapter.start:
        adapter = adapter.model_copy(update={"start": absolute(adapter.start)})
    model = recipe.model
    if model.path != "embedded" and (not is_model_name(model.path) or (base / model.path).is_dir()):
        model = model.model_copy(update={"path": absolute(model.path)})
    rewards = [
        reward.model_copy(
            update={
                "file": absolute(reward.file) if reward.file else "",
                "model": absolute(reward.model) if (base / reward.model).exists() and reward.model else reward.model,
            }
        )
        for reward in recipe.reward
    ]
    return recipe.model_copy(update={"data": data, "model": model, "adapter": adapter, "reward": rewards})


def dump_recipe(recipe: Recipe, *, comments: bool = False) -> str:
    """Write the recipe as TOML, with every key.

    Args:
        recipe: recipe to write.
        comments: whether to put each key's help above it.
    """
    document = tomlkit.document()
    known = sections()
    for name in Recipe.model_fields:
        value = getattr(recipe, name)
        if name in tables():
            continue
        if name not in known:
            document.add(name, value)
            continue
        document.add(tomlkit.nl())
        document.add(name, _table(name, value, comments=comments))
    for name in tables():  # after all sections
        if rows := getattr(recipe, name):
            array = tomlkit.aot()
            for row in rows:
                array.append(_table(name, row, comments=comments))
            document.add(tomlkit.nl())
            document.add(name, array)
    return tomlkit.dumps(document)


def _table(name: str, value: BaseModel, *, comments: bool) -> Table:
    table, model = tomlkit.table(), type(value)
    if comments:
        table.comment(str(model.__doc__))
    for key, field in model.model_fields.items():
        if comments:
            table.add(tomlkit.comment(_comment(name, field)))
        table.add(key, getattr(value, key))
    return table


def recipe_hash(recipe: Recipe) -> str:
    """Hash the recipe's values by SHA-256, independent of layout and comments."""
    return hashlib.sha256(json.dumps(recipe.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def recipe_schema() -> dict[str, Any]:
    """Make the JSON schema of the recipe, for editors that complete and check TOML."""
    schema = Recipe.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Burnish recipe"
    return schema


def reference_page() -> str:
    """Make the reference of all recipe keys as Markdown."""
    made = "Made by `burnish recipe reference`. A recipe is one TOML file; what it does not say has its default."
    lines = ["# Recipe reference", "", made]
    pages: list[tuple[str, type[BaseModel]]] = [("", Recipe), *sections().items(), *tables().items()]
    for name, model in pages:
        heading = f"`[[{name}]]`" if name in tables() else f"`[{name}]`" if name else "Top level"
        lines += ["", f"## {heading}", "", str(model.__doc__), ""]
        lines += ["| key | default | range | unit | meaning |", "|---|---|---|---|---|"]
        schema = model.model_json_schema(mode="validation")
        for key, field in model.model_fields.items():
            if not name and (key in sections() or key in tables()):
                continue
            default = field.get_default(call_default_factory=True)
            shown = "" if default is PydanticUndefined else json.dumps(default, ensure_ascii=False)
            allowed = _allowed(schema["properties"][key])
            lines.append(f"| `{key}` | `{shown}` | {allowed} | {setting_info(field).unit} | {_meaning(name, field)} |")
    return "\n".join(lines) + "\n"


def _allowed(schema: dict[str, Any]) -> str:
    item = schema.get("items", schema)
    choices = item.get("enum", [item["const"]] if "const" in item else [])
    return ", ".join(f"`{value}`" for value in choices) or field_limits(schema)


def _comment(section: str, field: FieldInfo) -> str:
    """Write a setting's help, unit and use in one line."""
    info = setting_info(field)
    return " ".join(filter(None, (field.description, f"[{info.unit}]" if info.unit else "", info.use_text(section))))


def _meaning(section: str, field: FieldInfo) -> str:
    """Write what a setting is called, its help, its use, and what to know of its values."""
    info = setting_info(field)
    notes = [f"`{value}`: {note}" for value, note in info.note.items() if isinstance(value, str)]
    label = f"*{info.label}.*" if info.label else ""
    return " ".join(filter(None, (label, field.description, info.use_text(section), *notes))).replace("|", "\\|")


_PLAIN = {
    "greater_than": "it has to be more than {gt}",
    "greater_than_equal": "it has to be at least {ge}",
    "less_than": "it has to be less than {lt}",
    "less_than_equal": "it has to be at most {le}",
    "literal_error": "it has to be {expected}",
    "finite_number": "it has to be a finite number",
    "bool_type": "it has to be true or false",
    "bool_parsing": "it has to be true or false",
    "int_from_float": "it has to be a whole number",
    **dict.fromkeys(("int_type", "int_parsing"), "it has to be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "it has to be a number"),
    "string_type": "it has to be text",
    "list_type": "it has to be a list",
}
"""Words for the usual problems by pydantic's type of error; they may name the problem's context."""


def _explain(detail: ErrorDetails) -> str:
    """Write one pydantic error as a phrase a person can act on."""
    location = [str(part) for part in detail["loc"]]
    dotted = ".".join(location) or "the recipe"
    if detail["type"] == "extra_forbidden":
        return f"unknown key {dotted}{_nearest(location)}"
    words = _PLAIN.get(detail["type"])
    message = words.format(**detail.get("ctx", {})) if words else detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not location:
        return message
    if detail["type"] == "value_error":
        return f"{dotted} {message}"
    return f"{dotted} = {_shorten(detail['input'])}: {message}"


def _nearest(location: list[str]) -> str:
    known_tables: dict[str, type[BaseModel]] = {**sections(), **tables()}
    model: type[BaseModel] = known_tables[location[0]] if len(location) > 1 else Recipe
    known = list(model.model_fields)
    close = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
    if close:
        return f" (did you mean {'.'.join([*location[:-1], close[0]])}?)"
    elsewhere = [
        f"{name}.{location[-1]}" for name, section in sections().items() if location[-1] in section.model_fields
    ]
    if elsewhere:
        return f" (did you mean {elsewhere[0]}?)"
    return f" (known here: {', '.join(known)})"


def _shorten(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
