"""Write the config of an adapter so that plain PEFT reads all of it, and read it back. Loads no torch.

WORKAROUND: PEFT 0.21 converts configs of transformers 4. In the mixtures that it knows, it takes gate_proj, up_proj and
down_proj among `target_modules` for the experts' maps, wherever they stand, so dense layers and shared experts lose
their adapters without a word
(https://github.com/huggingface/peft/blob/main/src/peft/utils/transformers_weight_conversion.py). It leaves
`target_parameters` alone, and LoRA of a linear layer's weight has the same tensors as LoRA of the layer. It can go when
PEFT converts only names that the model does not have.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from burnish_engine.models.families.matrices import TAKEN_FOR_EXPERTS

_WEIGHT, _WEIGHT_PATTERN = ".weight", r"\.weight"
_PATTERNS = ("rank_pattern", "alpha_pattern")


def as_peft_reads(config: dict[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """Return a config that names the weights of some linear layers instead of the layers.

    PEFT has neither DoRA nor dropout on parameters; such a config stays as it is.

    Args:
        config: content of adapter_config.json.
        paths: names of all linear layers with an adapter in a mixture whose config PEFT converts.
    """
    hidden = sorted(path for path in paths if _last(path) in TAKEN_FOR_EXPERTS)
    if not hidden or config.get("use_dora") or config.get("lora_dropout"):
        return config
    targets = config.get("target_modules")
    named = targets if isinstance(targets, list) else paths
    changed: dict[str, Any] = {
        "target_modules": sorted(name for name in named if _last(name) not in TAKEN_FOR_EXPERTS),
        "target_parameters": [*(config.get("target_parameters") or []), *(path + _WEIGHT for path in hidden)],
    }
    for key in _PATTERNS:
        own = config.get(key) or {}
        matching = [pattern for pattern in own if any(re.match(rf"(.*\.)?({pattern})$", path) for path in hidden)]
        changed[key] = own | {_of_weight(pattern): own[pattern] for pattern in matching}
    return config | changed


def by_modules(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config that names linear layers where it names their weights, as `as_peft_reads` writes them."""
    parameters, targets = config.get("target_parameters"), config.get("target_modules")
    if not isinstance(parameters, list) or isinstance(targets, str):
        return config
    weights = [name for name in parameters if _is_hidden(name)]
    if not weights:
        return config
    changed: dict[str, Any] = {
        "target_modules": [*(targets or []), *(name.removesuffix(_WEIGHT) for name in weights)],
        "target_parameters": [name for name in parameters if name not in weights] or None,
    }
    for key in _PATTERNS:
        own = config.get(key)
        if isinstance(own, dict):
            twins = set(map(_of_weight, own))
            changed[key] = {_of_module(pattern): value for pattern, value in own.items() if pattern not in twins}
    return config | changed


def _is_hidden(name: Any) -> bool:
    return isinstance(name, str) and name.endswith(_WEIGHT) and _last(name.removesuffix(_WEIGHT)) in TAKEN_FOR_EXPERTS


def _of_weight(pattern: str) -> str:
    return f"({pattern}){_WEIGHT_PATTERN}"


def _of_module(pattern: str) -> str:
    """Return the pattern of a layer, given that of its weight."""
    return pattern.removesuffix(_WEIGHT_PATTERN).removesuffix(_WEIGHT)


def _last(path: str) -> str:
    return path.rpartition(".")[2]
