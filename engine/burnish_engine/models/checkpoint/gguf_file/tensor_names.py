"""Find the names that a base model's tensors have in a GGUF."""

from __future__ import annotations

import re
from collections.abc import Callable

from burnish_engine.models.families.rules.gguf import EXPERT_TENSORS, GgufRules

_MODULE = re.compile(r"model\.layers\.(?P<layer>\d+)\.(?P<module>.+)\.(?P<kind>weight|bias)")
_IN_LAYER = re.compile(r"model\.layers\.(?P<layer>\d+)\.(?P<rest>.+)")
_STACK = re.compile(r"(?:\w+\.)?experts\.(?P<stack>gate_up_proj|down_proj)")


def places(rules: GgufRules, layers: int) -> Callable[[str], tuple[str, ...]]:
    """Make the function from base tensor name to the GGUF names of its parts; empty for names it does not know.

    Stacks of experts go by their names in transformers' model.

    Args:
        rules: rules of the family.
        layers: number of layers.
    """
    names = _usual_names(rules, layers)

    def found(base: str) -> tuple[str, ...]:
        if inner := _IN_LAYER.fullmatch(base):
            block = f"blk.{inner['layer']}"
            if stack := _STACK.fullmatch(inner["rest"]):
                parts = ("down",) if stack["stack"] == "down_proj" else ("gate", "up")
                return tuple(f"{block}.{EXPERT_TENSORS[part]}.weight" for part in parts)
            if inner["rest"] in rules.parameters:
                return (f"{block}.{rules.parameters[inner['rest']]}",)
        match = _MODULE.fullmatch(base)
        if match and match["module"] in rules.modules:
            return tuple(f"blk.{match['layer']}.{part}.{match['kind']}" for part in rules.modules[match["module"]])
        name = names(base)
        return () if name is None else (name,)

    return found


def name_map(rules: GgufRules, layers: int) -> Callable[[str], str | None]:
    """Make the function from base tensor name to the GGUF name of it, or of its first part; None where unknown.

    Args:
        rules: rules of the family.
        layers: number of layers.
    """
    found = places(rules, layers)
    return lambda base: next(iter(found(base)), None)


def _usual_names(rules: GgufRules, layers: int) -> Callable[[str], str | None]:
    import gguf

    architectures = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(architectures[rules.named_by or rules.architecture], layers)
    return lambda base: names.get_name(base, try_suffixes=(".weight", ".bias"))
