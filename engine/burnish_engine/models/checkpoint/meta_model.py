"""Build a checkpoint's model in transformers without weights, and compare its tensors with those in the files.

This is for families that Burnish has no specification of; it loads torch and transformers where it is called.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.checkpoint.import_lock import IMPORT_LOCK
from burnish_engine.models.checkpoint.safetensors_header import PLAIN_TYPES, StoredTensor
from burnish_engine.models.checkpoint.spec import MOST_LAYERS


def meta_model(config: Mapping[str, Any]) -> Any:
    """Build the causal language model of a configuration without weights, as `from_pretrained` does first.

    Args:
        config: parsed config.json of the checkpoint.

    Raises:
        Exception: transformers does not accept the configuration, with errors of any kind.
    """
    return _meta_model(json.dumps(config, sort_keys=True))


@lru_cache(maxsize=2)
def _meta_model(text: str) -> Any:
    import torch

    with IMPORT_LOCK:
        from transformers import CONFIG_MAPPING, AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    read = json.loads(text)
    config = CONFIG_MAPPING[str(read.get("model_type"))].from_dict(read)
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if isinstance(layers, int) and layers > MOST_LAYERS:
        raise ValueError(f"it has {layers:,} layers, more than any model")
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def stored_names(config: Mapping[str, Any], stored: Collection[str]) -> dict[str, str]:
    """Map the names of a model's tensors to the names of the stored tensors with the same numbers.

    Tensors that transformers builds from several stored ones, or from a part of one, are left out.

    Args:
        config: parsed config.json of the checkpoint.
        stored: names of the tensors in the checkpoint's files.
    """
    return _stored_names(meta_model(config), stored)[0]


def made_names(model: Any) -> set[str]:
    """Return the names of a model's weights that transformers makes of other stored tensors than one each.

    Args:
        model: transformers model, with or without weights.
    """
    return _wanted(model)[1]


def check_built(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> None:
    """Refuse a checkpoint that transformers cannot build, or whose weights are of another model.

    Args:
        folder: the model folder, for messages.
        config: the language model's configuration.
        tensors: headers of the tensors in its files.

    Raises:
        SetupError: transformers does not accept the configuration, or tensors are missing or have other shapes. The
            message names the first.
    """
    try:
        model = meta_model(config)
    except Exception as error:  # transformers builds foreign configs: what it does not like ends in errors of any kind
        raise SetupError(
            f"transformers cannot build the model that config.json in {folder} describes: {_in_short(error)}.",
            "Download config.json again, or correct it.",
        ) from error
    if config.get("quantization_config"):
        return  # stored in other shapes, of which the loaders tell
    (found, parts), shapes = _stored_names(model, tensors), model.state_dict()
    for name, stored_name in found.items():
        stored, shape = tensors[stored_name], tuple(shapes[name].shape)
        if stored.shape != shape and stored.dtype in PLAIN_TYPES:
            raise SetupError(
                f"The tensor {stored.name} in {stored.file} has the shape {list(stored.shape)}; config.json says "
                f"{list(shape)}.",
                "Download the model again: config and weights are of different models.",
            )
    wanted, made = _wanted(model)
    missing = sorted(wanted - found.keys())
    if missing:
        raise SetupError(
            f"The weights in {folder} lack {len(missing)} tensors, first {missing[0]}.",
            "Download the model again: config and weights are of different models, or files are missing.",
        )
    numbers = sum(math.prod(tensors[name].shape) for name in parts), sum(shapes[name].numel() for name in made)
    if numbers[0] != numbers[1]:
        raise SetupError(
            f"The tensors in {folder} that become {min(made, default='others')} and its like hold {numbers[0]:,} "
            f"numbers; config.json says {numbers[1]:,}.",
            "Download the model again: config and weights are of different models, or files are missing.",
        )


def _stored_names(model: Any, stored: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return the map of `stored_names`, and the names of the stored tensors that are changed on loading.

    Source: transformers `core_model_loading.convert_and_load_state_dict_in_model`, which renames in this way.
    """
    from transformers.core_model_loading import dot_natural_key, rename_source_key

    renamings, converters = _conversions(model)
    tensors, parts = model.state_dict(), []
    found = {}
    for name in sorted(stored, key=dot_natural_key):
        renamed, converter = rename_source_key(name, renamings, converters, model.base_model_prefix, tensors)
        if renamed not in tensors and name in tensors:  # stored under the new name already
            renamed, converter = rename_source_key(name, [], [], model.base_model_prefix, tensors)
        if renamed not in tensors:
            continue
        if converter is None:
            found[renamed] = name
        else:
            parts.append(name)
    return found, parts


def _conversions(model: Any) -> tuple[list[Any], list[Any]]:
    """Return transformers' renamings of stored tensors, and its conversions that also change them."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming

    steps = get_model_conversion_mapping(model)
    return (
        [step for step in steps if isinstance(step, WeightRenaming)],
        [step for step in steps if isinstance(step, WeightConverter)],
    )


def _wanted(model: Any) -> tuple[set[str], set[str]]:
    """Return the names of the weights that must be stored under one name each, and of those that conversions make."""
    from transformers.core_model_loading import apply_converters

    backwards = [step.reverse_transform() for step in _conversions(model)[1]]
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    optional = [re.compile(pattern) for pattern in model._keys_to_ignore_on_load_missing or ()]
    weights = {
        name
        for name, _ in model.named_parameters()
        if name not in tied and not any(pattern.search(name) for pattern in optional)
    }
    made = {name for name in weights if apply_converters(name, backwards)[1] is not None}
    return weights - made, made


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(".: ")
