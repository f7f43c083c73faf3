"""Says in plain words what the engine writes for a terminal: commands, recipe keys, devices and the built-in model."""

from __future__ import annotations

import re
from functools import cache

from burnish_app.look.language import tr
from burnish_app.wording.recipe_text import setting_term, setting_text
from burnish_engine.contract.recipe.recipe import sections

_COMMAND = re.compile(r"`([^`]+)`")
_BEFORE, _AFTER = r"(?<![\w./\\])(?<!\w-)", r"(?![\w/\\-]|\.\w)"  # so that it is no part of a path or a name
_KEY = rf"{_BEFORE}(?P<key>[a-z]+\.[a-z0-9_]+){_AFTER}"
_VALUE = r"""\s*=\s*(?P<value>"[^"]*"|'[^']*'|[\w.+-]*\w)"""
_ORDER = re.compile(rf"(?P<set>\b[Ss]et ){_KEY}{_VALUE}")
_SETTING = re.compile(rf"{_KEY}{_VALUE}")
_NAME = re.compile(_KEY)
_NUMBERS = tuple(
    (re.compile(f"{_BEFORE}{number}{_AFTER}"), words)
    for number, words in (("nan", tr("not a number")), ("inf", tr("infinite")))
)
_PLACE = re.compile(r"\bssh:(?=[\w@])(?!HOST\b)")
_BUILT_IN = "embedded"


def plain_words(text: str) -> str:
    """Say a sentence of the engine without backticks, recipe keys, and the names that computers have for numbers.

    Settings are named as the form names them: "Set train.engine = "plain"." becomes "Set “Engine” to “plain”.".

    Args:
        text: what happened, or what to do.
    """
    parts = _COMMAND.split(text)  # every other one is a command, which stays as it is to be typed
    return "".join(f"“{part}”" if at % 2 else _without_keys(part) for at, part in enumerate(parts))


def _without_keys(text: str) -> str:
    text = _PLACE.sub("", text)
    text = _ORDER.sub(_order, text)
    text = _SETTING.sub(_setting, text)
    text = _NAME.sub(_name, text)
    for pattern, words in _NUMBERS:
        text = pattern.sub(words, text)
    return text


def device_text(device: str) -> str:
    """Name a device of a run for people: "GPU 0" for "cuda-0", as NVIDIA's tools number it.

    Args:
        device: name under which the engine reserves it; empty: not known yet.
    """
    if device == "cpu":
        return tr("processor")
    kind, dash, name = device.partition("-")
    return tr("GPU {name}").format(name=name.removeprefix("GPU-")) if dash and kind == "cuda" else device


def model_text(path: str) -> str:
    """Name a base model for people; the one that comes with Burnish has no path that says what it is.

    Args:
        path: path or name, as a recipe has it.
    """
    return tr("SmolLM2 135M (comes with Burnish)") if path == _BUILT_IN else path


def model_name(path: str) -> str:
    """Name a base model by the last part of its path, where there is little room.

    Args:
        path: path or name, as a recipe has it.
    """
    return tr("SmolLM2 135M") if path == _BUILT_IN else path.rstrip("/\\").replace("\\", "/").rpartition("/")[2]


@cache
def _keys() -> frozenset[str]:
    return frozenset(f"{section}.{name}" for section, model in sections().items() for name in model.model_fields)


def _order(found: re.Match[str]) -> str:
    if found["key"] not in _keys():
        return found[0]
    return tr("{set}“{term}” to “{value}”").format(
        set=found["set"], term=setting_term(found["key"]), value=_value(found["key"], found["value"])
    )


def _setting(found: re.Match[str]) -> str:
    if found["key"] not in _keys():
        return found[0]
    return f"“{setting_term(found['key'])}: {_value(found['key'], found['value'])}”"


def _name(found: re.Match[str]) -> str:
    return f"“{setting_term(found['key'])}”" if found["key"] in _keys() else found[0]


def _value(key: str, text: str) -> str:
    return setting_text(key, text.strip("\"'")) or tr("nothing")
