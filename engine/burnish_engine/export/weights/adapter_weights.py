"""Hold the changes that an adapter makes, as fp32 tensors by the names of the base's.

Sources: Hu et al. 2021 (LoRA), Liu et al. 2024 (DoRA: the length of each output row is trained; of an embedding that of
each column, peft/tuners/lora/dora.py), peft/tuners/trainable_tokens/layer.py (rows of tokens).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from burnish_engine.models.saved_adapters.saved_adapter import WEIGHTS_FILE
from burnish_engine.runs.file_hashes import sha256_file


@dataclass(frozen=True)
class LowRankUpdate:
    """Update that an adapter adds to one weight."""

    a: torch.Tensor  # factor A [r, in], fp32; for an embedding [r, vocabulary]
    b: torch.Tensor  # factor B [out, r], fp32; for an embedding [hidden, r]
    scale: float  # factor on B·A
    magnitude: torch.Tensor | None = None
    """DoRA's trained length of every output row [out], of an embedding of every column [hidden]; or None."""
    embedding: bool = False  # whether the weight is [vocabulary, hidden], the transpose of B·A

    def merged(self, weight: torch.Tensor) -> torch.Tensor:
        """Apply the update to a weight.

        Args:
            weight: base weight in fp32, [out, in] (embedding: [vocabulary, hidden]).
        """
        delta = self.scale * (self.b @ self.a)
        updated = weight + (delta.T if self.embedding else delta)
        if self.magnitude is None:
            return updated
        lengths = torch.linalg.norm(updated, dim=0 if self.embedding else 1)
        factors = self.magnitude / lengths
        return updated * (factors if self.embedding else factors.unsqueeze(1))


@dataclass(frozen=True)
class StackUpdate:
    """Update that an adapter adds to a stack with one matrix for each expert."""

    a: torch.Tensor  # factors A of all experts, one below the other [experts * r, in], fp32
    b: torch.Tensor  # factors B [out, r * experts], fp32; column i * experts + e is column i of expert e's
    scale: float  # factor on B·A
    rank: int  # rank r of an expert's update

    @property
    def experts(self) -> int:
        """Number of experts."""
        return len(self.a) // self.rank

    def of_expert(self, expert: int, rows: slice = slice(None)) -> LowRankUpdate:
        """Return the update of one expert's matrix [out, in], or of some of its rows."""
        first = expert * self.rank
        return LowRankUpdate(self.a[first : first + self.rank], self.b[rows, expert :: self.experts], self.scale)


@dataclass(frozen=True)
class TokenRows:
    """Rows of an embedding or head that an adapter trains."""

    tokens: torch.Tensor  # ids of the tokens [n], int64
    values: torch.Tensor  # their rows [n, hidden], fp32, which take the place of the base's


@dataclass(frozen=True)
class AdapterWeights:
    """Content of a PEFT adapter."""

    folder: Path  # folder that it was read from
    updates: dict[str, LowRankUpdate]  # low-rank update by base tensor name
    replacements: dict[str, torch.Tensor]
    """Tensor, fp32, that takes the place of a base tensor, by name (modules_to_save, trained biases)."""
    stacks: dict[str, StackUpdate] = field(default_factory=dict)
    """Update of all experts, by the name of the stack in transformers' model."""
    rows: dict[str, TokenRows] = field(default_factory=dict)
    """Rows of tokens by base tensor name (trainable_token_indices)."""
    shifts: dict[str, torch.Tensor] = field(default_factory=dict)
    """Vector, fp32, that is added to a bias of the base, by name (lora_bias)."""

    @property
    def digest(self) -> str:
        """Compute the SHA-256 of the adapter's file, which identifies it in exported files."""
        return sha256_file(self.folder / WEIGHTS_FILE)

    @property
    def targets(self) -> set[str]:
        """Names of all base tensors that the adapter changes."""
        return {*self.updates, *self.replacements, *self.stacks, *self.rows, *self.shifts}

    def merged(self, name: str, base: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Merge the adapter into one tensor.

        Args:
            name: name of the base tensor.
            base: function that loads it in fp32.
        """
        replaced = self.replacements.get(name)
        weight = base() if replaced is None else replaced.clone()
        if (update := self.updates.get(name)) is not None:
            weight = update.merged(weight)
        if (rows := self.rows.get(name)) is not None:
            weight = weight.index_copy(0, rows.tokens, rows.values)
        shift = self.shifts.get(name)
        return weight if shift is None else weight + shift

    def renamed(self, new: Callable[[str], str]) -> AdapterWeights:
        """Give all but stacks the names that a function returns for them."""
        return replace(
            self,
            updates={new(name): value for name, value in self.updates.items()},
            replacements={new(name): value for name, value in self.replacements.items()},
            rows={new(name): value for name, value in self.rows.items()},
            shifts={new(name): value for name, value in self.shifts.items()},
        )

    def without(self, left_out: str) -> AdapterWeights:
        """Leave out what changes a base tensor."""
        return replace(
            self,
            updates={name: value for name, value in self.updates.items() if name != left_out},
            replacements={name: value for name, value in self.replacements.items() if name != left_out},
            rows={name: value for name, value in self.rows.items() if name != left_out},
        )

    def unties(self, embedding: str, head: str) -> bool:
        """Whether embedding and head of a base differ once this is merged, where the head is the embedding before.

        PEFT trains what is named: an adapter on one of the two, or a copy of it, leaves the other as it was. Rows of
        tokens of the embedding count for the head too, unless it has rows of its own (`TrainableTokensLayer`).
        """
        changed = {embedding, head} & (self.updates.keys() | self.replacements.keys())
        return bool(changed or head in self.rows) and not self._alike(embedding, head)

    def _alike(self, embedding: str, head: str) -> bool:
        """Whether both are changed by the same numbers, as with PEFT's `ensure_weight_tying`."""
        if embedding in self.replacements and head in self.replacements:
            return torch.equal(self.replacements[embedding], self.replacements[head])
        if embedding in self.updates and head in self.updates:
            one, other = self.updates[embedding], self.updates[head]
            plain = one.magnitude is None and other.magnitude is None and one.scale == other.scale
            return plain and torch.equal(one.a, other.b.T) and torch.equal(one.b, other.a.T)
        return False
