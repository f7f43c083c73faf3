"""Read the matrices of a mixture's experts from a checkpoint, one in memory at a time, in any form that files have."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

import torch

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.families.experts import BLOCKS, SCALES, ExpertStack, StoredExperts
from burnish_engine.models.families.record import Family
from burnish_kernels.moe_unpack.reference import mxfp4_values

ExpertPart = Literal["gate", "up", "down"]
"""One of the three matrices of an expert."""


@dataclass(frozen=True)
class StoredStack:
    """A stack of experts' matrices and the tensors of a checkpoint that hold it."""

    stack: ExpertStack  # name and shape of the stack in transformers' model
    stored: StoredExperts  # form and names of the tensors
    interleaved: bool  # whether gates and ups take turns in the rows of "gate_up", instead of all gates coming first

    @property
    def path(self) -> str:
        """Name of the stack in transformers' model."""
        return self.stack.path

    @property
    def parts(self) -> tuple[ExpertPart, ...]:
        """Matrices that the stack holds of each expert."""
        return ("gate", "up") if self.stack.role == "gate_up" else ("down",)

    @property
    def bias(self) -> str:
        """Name of the tensor of the experts' biases [experts, rows]; empty where they have none."""
        return f"{self.tensor(0, self.parts[0])}_bias" if self.stack.bias else ""

    @property
    def is_separate(self) -> bool:
        """Whether each matrix is a tensor of its own."""
        return self.stored.form == "each"

    @property
    def is_mxfp4(self) -> bool:
        """Whether the files hold the stack in MXFP4."""
        return self.stored.form == "mxfp4"

    @property
    def is_transposed(self) -> bool:
        """Whether an unquantized stack of the family's files is [E, in, out] instead of [E, out, in]."""
        return self.stored.form in {"transposed", "mxfp4"}

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the stack as one unquantized tensor of the family's files."""
        rows, columns = (self.stack.rows, self.stack.columns)[:: -1 if self.is_transposed else 1]
        return (self.stack.experts, rows, columns)

    def rows(self, part: ExpertPart) -> slice:
        """Return the rows of an expert's matrix in the stack that belong to a part."""
        if part == "down":
            return slice(None)
        if self.interleaved:
            return slice(0, None, 2) if part == "gate" else slice(1, None, 2)
        half = self.stack.rows // 2
        return slice(0, half) if part == "gate" else slice(half, None)

    def part_shape(self, part: ExpertPart) -> tuple[int, int]:
        """Return the shape of one expert's matrix [out, in]."""
        return (self.stack.rows if part == "down" else self.stack.rows // 2, self.stack.columns)

    def tensor(self, expert: int, part: ExpertPart) -> str:
        """Return the name of the tensor that holds one matrix, or the stack that it is in, without MXFP4's ending."""
        names = list(self.stored.tensors)
        if self.is_separate:
            return names[expert * len(self.parts) + self.parts.index(part)]
        return names[0].removesuffix(BLOCKS)

    def read(self, expert: int, part: ExpertPart, tensor_slice: Callable[[str], Any]) -> torch.Tensor:
        """Read one matrix [out, in] in fp32, of a stack that is not `is_separate`.

        Args:
            expert: number of the expert.
            part: one of `parts`.
            tensor_slice: function from the name of a tensor to safetensors' slice of it.
        """
        if self.is_mxfp4:
            return mxfp4_values(*self.read_packed(expert, part, tensor_slice))
        matrix: torch.Tensor = tensor_slice(self.tensor(expert, part))[expert]
        rows = matrix.T if self.stored.form == "transposed" else matrix
        return rows[self.rows(part)].float()

    def read_packed(
        self, expert: int, part: ExpertPart, tensor_slice: Callable[[str], Any]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read one matrix in MXFP4: codes [out, in / 32, 16], two a byte, and exponents [out, in / 32], both uint8."""
        name, rows = self.tensor(expert, part), self.rows(part)
        blocks, scales = tensor_slice(f"{name}{BLOCKS}")[expert], tensor_slice(f"{name}{SCALES}")[expert]
        return blocks[rows], scales[rows]


def stored_stacks(known: Family | None, spec: DecoderSpec | None, stored: Collection[str]) -> dict[str, StoredStack]:
    """Find the stacks of experts of a model, by their names in transformers' model; none of a dense model.

    Args:
        known: family of the model; None where it has no table.
        spec: specification of the model.
        stored: names of the checkpoint's tensors.
    """
    if known is None or spec is None or spec.experts is None:
        return {}
    interleaved = spec.experts.layout == "interleaved"
    return {
        stack.path: StoredStack(stack, known.stored_experts(spec, stack, stored), interleaved)
        for stack in known.all_expert_stacks(spec)
    }
