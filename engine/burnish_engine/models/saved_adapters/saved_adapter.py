"""Checks a saved adapter for all that read one, so that both engines, chat and export judge it alike. No torch.

A file may hold other tensors than its config says. PEFT makes the matrices from the config and takes the tensors that
fit by name, others it leaves out; the fast engine makes them from the tensors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.files import read_limited
from burnish_engine.contract.recipe.recipe_train import ALL_LINEAR
from burnish_engine.models.saved_adapters.name_patterns import is_named, refuse_many
from burnish_engine.models.saved_adapters.peft_form import by_modules

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
ADAPTER_FILES = (CONFIG_FILE, WEIGHTS_FILE)
"""Files of an adapter in PEFT's format."""
PREFIX = "base_model.model."
"""Beginning of every name in PEFT's files."""
_LARGEST_CONFIG_BYTES = 10_000_000
_LORA_A = ".lora_A.weight"
_EXPERTS = "experts"
"""Module that a parameter named without a path belongs to, such as gate_up_proj: a linear layer's is its weight."""
_CHOOSING = ("layers_to_transform", "layers_pattern", "exclude_modules")
_NO_SWITCH, _NO_LIST, _NO_OBJECT = ((bool,), "neither true nor false"), ((list,), "no list"), ((dict,), "no object")
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "target_modules": ((str, list), "neither a text nor a list"),
    "target_parameters": _NO_LIST,
    "modules_to_save": _NO_LIST,
    "rank_pattern": _NO_OBJECT,
    "alpha_pattern": _NO_OBJECT,
    "bias": ((str,), "no text"),
    "use_dora": _NO_SWITCH,
    "use_rslora": _NO_SWITCH,
    "lora_bias": _NO_SWITCH,
    "ensure_weight_tying": _NO_SWITCH,
}
"""Types that values of a config may have beside null, and what to say of others."""
_PEFT_RANK, _PEFT_ALPHA = 8, 8  # LoraConfig's where the file does not say
_COPY = "Copy the adapter again, with both of its files."
_CORRECT = f"Correct its {CONFIG_FILE}."


def read_config(folder: Path) -> dict[str, Any]:
    """Read the adapter_config.json of an adapter; linear layers are named as such, see `by_modules`.

    Raises:
        SetupError: The file cannot be read, or holds no object.
    """
    file = folder / CONFIG_FILE
    try:
        config = json.loads(read_limited(file, _LARGEST_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise SetupError(f"{file} cannot be read: {error}.", "Copy the adapter again.") from error
    if not isinstance(config, dict):
        raise SetupError(f"{file} holds no object.", "Copy the adapter again.")
    for key, (kinds, words) in _KINDS.items():
        if not isinstance(config.get(key), (*kinds, NoneType)):
            raise SetupError(f"{file} has {key} = {config[key]!r:.60}, which is {words}.", _CORRECT)
    return by_modules(config)


def setting_of(folder: Path, config: Mapping[str, Any], patterns: str, module: str, usual: Any) -> Any:
    """Return a module's rank or alpha: its own where a pattern names it, by the rule of PEFT's `get_pattern_key`.

    Args:
        folder: folder of the adapter, for errors.
        config: content of adapter_config.json.
        patterns: key of the patterns, "rank_pattern" or "alpha_pattern".
        module: path of the module.
        usual: value of modules that no pattern names.

    Raises:
        SetupError: The patterns are no regular expressions, or one takes too long.
    """
    own = config.get(patterns) or {}
    refuse_many(folder, patterns, own)
    for pattern, value in own.items():
        if is_named(folder, patterns, pattern, module, end=True):
            return value
    return usual


def refuse_other_ranks(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse an adapter whose matrices have another rank than its config says, or an alpha that is no number.

    The rank of experts' matrices is not looked at.

    Args:
        folder: folder of the adapter, for errors.
        config: content of adapter_config.json.
        shapes: shape of every tensor by its name in the file.

    Raises:
        SetupError: A rank differs, or an alpha is no finite number.
    """
    parameters = config.get("target_parameters") or ()  # without the model, the number of experts is not known
    stacked = {str(name).rpartition(".")[0] or _EXPERTS for name in parameters}
    for name in sorted(shapes):
        module = name.removeprefix(PREFIX).removesuffix(_LORA_A)
        if not name.endswith(_LORA_A):
            continue
        alpha_of(folder, config, module.replace(".base_layer", ""))
        if any(_ends_with(module.replace(".base_layer", ""), path) for path in stacked):
            continue
        refuse_other_rank(folder, config, module, shapes[name][0] if shapes[name] else 0)


def refuse_other_rank(folder: Path, config: Mapping[str, Any], module: str, rank: int) -> None:
    """Refuse an adapter one of whose modules or stacks of experts has another rank than its config says.

    Args:
        folder: folder of the adapter, for errors.
        config: content of adapter_config.json.
        module: path of the module or stack.
        rank: rank of its matrices; of a stack, that of each expert.

    Raises:
        SetupError: The rank differs.
    """
    usual = config.get("r")
    said = setting_of(folder, config, "rank_pattern", module, _PEFT_RANK if usual is None else usual)
    if rank != said:
        raise SetupError(
            f"The adapter in {folder} has the rank {rank} for {module}, and its {CONFIG_FILE} says {said!r:.60}.", _COPY
        )


def alpha_of(folder: Path, config: Mapping[str, Any], module: str) -> float:
    """Return the alpha that a config gives a module.

    Args:
        folder: folder of the adapter, for errors.
        config: content of adapter_config.json.
        module: path of the module or stack.

    Raises:
        SetupError: The alpha is no finite number.
    """
    usual = config.get("lora_alpha")
    alpha = setting_of(folder, config, "alpha_pattern", module, _PEFT_ALPHA if usual is None else usual)
    if type(alpha) in (int, float) and abs(alpha) <= sys.float_info.max:
        return float(alpha)
    raise SetupError(
        f"The adapter in {folder} has the alpha {alpha!r:.60} for {module}, which is no finite number.",
        _CORRECT,
    )


def refuse_missing(folder: Path, missing: Collection[str]) -> None:
    """Refuse an adapter whose file lacks tensors of modules that its config names.

    Args:
        folder: folder of the adapter, for errors.
        missing: names of those tensors.

    Raises:
        SetupError: There are some.
    """
    if missing:
        raise SetupError(
            f"The adapter in {folder} lacks {len(missing)} of the tensors that its {CONFIG_FILE} promises, first "
            f"{min(missing)}.",
            _COPY,
        )


def refuse_strange(folder: Path, strange: Collection[str]) -> None:
    """Refuse an adapter that has tensors for which the model has no place.

    Args:
        folder: folder of the adapter, for errors.
        strange: names of those tensors.

    Raises:
        SetupError: There are some.
    """
    if strange:
        raise SetupError(
            f"The adapter in {folder} has {min(strange)}; this model has no place for that.",
            "Use it with its own base.",
        )


def refuse_not_finite(folder: Path, names: Collection[str]) -> None:
    """Refuse an adapter some of whose values are infinite or no numbers.

    Args:
        folder: folder of the adapter, for errors.
        names: names of the tensors with such values.

    Raises:
        SetupError: There are some.
    """
    if names:
        raise SetupError(
            f"The adapter in {folder} is damaged: {len(names)} of its tensors have values that are infinite or no "
            f"numbers, first {min(names)}.",
            "Use another checkpoint of the run that made it, or copy it again.",
        )


def is_promised(folder: Path, config: Mapping[str, Any], module: str) -> bool:
    """Return whether a config says that a linear module has an adapter, by the rules of PEFT's `target_modules`.

    Configs that choose among layers or leave out modules say so in several ways; of those nothing is promised.

    Raises:
        SetupError: `target_modules` is no regular expression, or takes too long.
    """
    if any(config.get(key) not in (None, [], "") for key in _CHOOSING):
        return False
    targets = config.get("target_modules")
    if not isinstance(targets, str):
        return isinstance(targets, list) and any(_ends_with(module, str(target)) for target in targets)
    return targets == ALL_LINEAR or is_named(folder, "target_modules", targets, module)


def _ends_with(module: str, path: str) -> bool:
    return module == path or module.endswith(f".{path}")
