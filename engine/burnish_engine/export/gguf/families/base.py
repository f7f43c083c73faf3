"""Interface that a family implements so that its models can become GGUF files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.export.weights.merge import MergedWeights

_MODULE = re.compile(r"model\.layers\.(?P<layer>\d+)\.(?P<module>.+)\.(?P<kind>weight|bias)")
_IN_LAYER = re.compile(r"model\.layers\.(?P<layer>\d+)\.(?P<rest>.+)")
_STACK = re.compile(r"\w+\.experts\.(?P<stack>gate_up_proj|down_proj)")
EXPERT_TENSORS = {"gate": "ffn_gate_exps", "up": "ffn_up_exps", "down": "ffn_down_exps"}
"""Part of an expert to the tensor that holds it of all experts [experts, out, in]."""

Metadata = dict[str, int | float | bool | str | list[int] | list[bool]]
"""GGUF keys without the architecture's prefix, such as `attention.head_count`, to their values; a list has one value
per layer."""

Change = Callable[[DecoderSpec, str, torch.Tensor], torch.Tensor]
"""Function that turns a base tensor (given its base name) into the one that llama.cpp's graph expects. For weights
of linear layers it may only move rows, so that it fits an adapter's B [out, r] as well."""


def unchanged(_spec: DecoderSpec, _name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as it is: a `Change` that changes nothing."""
    return tensor


@dataclass(frozen=True)
class PlannedTensor:
    """One tensor of the file, before it is read.

    Attributes:
        name: GGUF name.
        shape: shape with rows first, as in torch (GGUF stores it reversed).
        make: function that reads base tensors and returns the value in fp32, or the matrices of a stack one by one.
        full_precision: whether the tensor stays F32 in every file type.
        packed: whether it stays MXFP4 in every file type; `make` then returns the bytes of its rows, uint8.
    """

    name: str
    shape: tuple[int, ...]
    make: Callable[[], torch.Tensor | Iterator[torch.Tensor]]
    full_precision: bool
    packed: bool = False

    @property
    def type(self) -> str:
        """GGUF type in an F16 file."""
        return "MXFP4" if self.packed else "F32" if self.full_precision else "F16"


@dataclass(frozen=True)
class GgufFamily:
    """Export rules of one family.

    Attributes:
        architecture: value of `general.architecture`, which chooses llama.cpp's graph.
        pre_tokenizers: llama.cpp's names of the pre-tokenizers that its models use, most likely first; the right one is
            found by testing.
        metadata: function that makes the architecture's keys for one model.
        tensors: function that lists all tensors of one model.
        change: function applied to each base tensor.
        modules: last parts of the names of modules that gguf has no name for in this architecture, and the matrices
            that the file has for each: parts of equally many rows, from top to bottom.
        parameters: names below a layer of parameters that are neither weight nor bias of a module, and their names
            below a block of the file.
    """

    architecture: str
    pre_tokenizers: tuple[str, ...]
    metadata: Callable[[DecoderSpec, dict[str, Any]], Metadata]
    tensors: Callable[[DecoderSpec, MergedWeights], list[PlannedTensor]]
    change: Change = unchanged
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)

    def places(self, layers: int) -> Callable[[str], tuple[str, ...]]:
        """Make the function from base tensor name to the GGUF names of its parts; empty for names it does not know.

        Stacks of experts go by their names in transformers' model.
        """
        names = self._names(layers)

        def found(base: str) -> tuple[str, ...]:
            if inner := _IN_LAYER.fullmatch(base):
                block = f"blk.{inner['layer']}"
                if stack := _STACK.fullmatch(inner["rest"]):
                    parts = ("down",) if stack["stack"] == "down_proj" else ("gate", "up")
                    return tuple(f"{block}.{EXPERT_TENSORS[part]}.weight" for part in parts)
                if inner["rest"] in self.parameters:
                    return (f"{block}.{self.parameters[inner['rest']]}",)
            match = _MODULE.fullmatch(base)
            if match and match["module"] in self.modules:
                return tuple(f"blk.{match['layer']}.{part}.{match['kind']}" for part in self.modules[match["module"]])
            name = names(base)
            return () if name is None else (name,)

        return found

    def name_map(self, layers: int) -> Callable[[str], str | None]:
        """Make the function from base tensor name to the GGUF name of it, or of its first part; None where unknown."""
        places = self.places(layers)
        return lambda base: next(iter(places(base)), None)

    def _names(self, layers: int) -> Callable[[str], str | None]:
        import gguf

        architectures = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
        names = gguf.get_tensor_name_map(architectures[self.architecture], layers)
        return lambda base: names.get_name(base, try_suffixes=(".weight", ".bias"))
