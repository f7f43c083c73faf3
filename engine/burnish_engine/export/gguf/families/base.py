"""What a family has to say for its models to become GGUF files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.export.merge import MergedWeights

Metadata = dict[str, int | float | bool | str]
"""GGUF keys without the architecture's prefix, such as `attention.head_count`, to their values."""


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
    """

    architecture: str
    pre_tokenizers: tuple[str, ...]
    metadata: Callable[[DecoderSpec, dict[str, Any]], Metadata]
    tensors: Callable[[DecoderSpec, MergedWeights], list[PlannedTensor]]
