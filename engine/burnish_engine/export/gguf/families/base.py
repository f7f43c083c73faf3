"""What a family has to say for its models to become GGUF files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.export.merge import MergedWeights

Metadata = dict[str, int | float | bool | str | list[int] | list[bool]]
"""GGUF keys without the architecture's prefix, such as `attention.head_count`, to their values; a list has one for each
layer."""

Change = Callable[[DecoderSpec, str, torch.Tensor], torch.Tensor]
"""Turns a base tensor (by its base name) into what llama.cpp's graph expects. For weights of linear layers it may only
move rows, so that it fits an adapter's B [out, r] as well."""


def unchanged(_spec: DecoderSpec, _name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A `Change` that changes nothing."""
    return tensor


@dataclass(frozen=True)
class PlannedTensor:
    """One tensor of the file, before it is read.

    Attributes:
        name: Its GGUF name.
        shape: Rows first, as in torch (GGUF stores it reversed).
        make: Reads base tensors and returns the value in fp32.
        full_precision: Stays F32 in every file type.
    """

    name: str
    shape: tuple[int, ...]
    make: Callable[[], torch.Tensor]
    full_precision: bool


@dataclass(frozen=True)
class Family:
    """One family.

    Attributes:
        architecture: `general.architecture`, which chooses llama.cpp's graph.
        pre_tokenizers: llama.cpp's names of pre-tokenizers its models use, most likely first. Which one is right is
            tested, not assumed.
        metadata: The architecture's keys for one model.
        tensors: All tensors of one model.
        change: What becomes of a base tensor on the way.
    """

    architecture: str
    pre_tokenizers: tuple[str, ...]
    metadata: Callable[[DecoderSpec, dict[str, Any]], Metadata]
    tensors: Callable[[DecoderSpec, MergedWeights], list[PlannedTensor]]
    change: Change = unchanged

    def name_map(self, layers: int) -> Callable[[str], str | None]:
        """Base tensor name to GGUF name; None for tensors the architecture does not know."""
        import gguf

        architectures = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
        names = gguf.get_tensor_name_map(architectures[self.architecture], layers)
        return lambda base: names.get_name(base, try_suffixes=(".weight", ".bias"))
