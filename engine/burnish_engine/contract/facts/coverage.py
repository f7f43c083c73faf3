"""Counts coverage: how many weights of a model's decoder layers a run trains, by kind of matrix. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from burnish_engine.contract.record import Record


class Matrix(Record):
    """One weight matrix of a layer, or a stack of them (the experts of a mixture)."""

    name: str = Field(description="Path below its layer, such as self_attn.q_proj; outside of layers the whole path.")
    kind: str = Field(description="What it is a part of, such as attention, feed-forward, experts or convolution.")
    rows: int = Field(description="Outputs.")
    columns: int = Field(description="Inputs.")
    count: int = Field(default=1, description="Matrices in the stack.")
    form: Literal["linear", "stacked", "other"] = Field(
        default="linear",
        description="linear: a linear layer. stacked: a parameter of three dimensions. other: no adapter fits it.",
    )
    stored: bool = Field(
        default=True, description="False where transformers makes it of a part of a stored tensor, or of several."
    )

    @property
    def weights(self) -> int:
        """The number of weights in the matrix or stack."""
        return self.count * self.rows * self.columns


class KindCoverage(Record):
    """The weights of one kind of matrix, and how many of them are trained or have an adapter."""

    kind: str
    weights: int = Field(description="Weights in the matrices of this kind, in all decoder layers.")
    reached: int = Field(description="Weights in those of the matrices that are trained or have an adapter.")


class BeyondLayers(Record):
    """One thing that a run trains beside the matrices of the decoder layers."""

    name: str = Field(description="Module, such as lm_head, embed_tokens or norm; biases for all biases together.")
    how: Literal["adapter", "whole", "rows"] = Field(
        description="adapter: by low-rank matrices. whole: every weight. rows: the rows of some tokens."
    )
    weights: int = Field(description="Trained weights.")
    rows: int = Field(default=0, description="Rows of some tokens: how many.")

    @property
    def text(self) -> str:
        """Name, kind and number of the trained weights, for people."""
        where = {"adapter": f"{self.name} by an adapter", "whole": self.name}
        return f"{where.get(self.how, f'{self.rows:,} rows of {self.name}')} ({self.weights:,} weights)"


class Coverage(Record):
    """The share of the decoder layers' matrices that a run trains, by kind, and what it trains beside them."""

    kinds: tuple[KindCoverage, ...] = Field(description="In the order of the layers.")
    beyond: tuple[BeyondLayers, ...] = Field(default=(), description="Head, embeddings, norms, biases that it trains.")

    @property
    def share_text(self) -> str:
        """The share for people."""
        return _percent(sum(one.reached for one in self.kinds), sum(one.weights for one in self.kinds))

    @property
    def kinds_text(self) -> str:
        """The share of each kind for people."""
        return ", ".join(f"{one.kind} {_percent(one.reached, one.weights)}" for one in self.kinds)

    @property
    def beyond_text(self) -> str:
        """Trained weights beside the layers' matrices, for people; empty where there are none."""
        return ", ".join(one.text for one in self.beyond)

    @property
    def text(self) -> str:
        """All shares in half a sentence; empty where there are no matrices."""
        beyond = f", and {self.beyond_text}" if self.beyond else ""
        return f"{self.share_text} of the layers' weights ({self.kinds_text}){beyond}" if self.kinds else ""


def count_coverage(matrices: Iterable[tuple[Matrix, bool]], beyond: Iterable[BeyondLayers] = ()) -> Coverage:
    """Sum matrices up by kind.

    Args:
        matrices: each matrix of the decoder layers, and whether it is trained or has an adapter.
        beyond: what is trained beside these matrices.
    """
    found: dict[str, tuple[int, int]] = {}
    for matrix, reached in matrices:
        weights, before = found.get(matrix.kind, (0, 0))
        found[matrix.kind] = weights + matrix.weights, before + matrix.weights * reached
    return Coverage(
        kinds=tuple(KindCoverage(kind=kind, weights=all_, reached=part) for kind, (all_, part) in found.items()),
        beyond=tuple(beyond),
    )


def _percent(part: int, whole: int) -> str:
    """A share with one digit; 0 % and 100 % only where that is exact."""
    if part in (0, whole):
        return "100 %" if part else "0 %"
    return f"{min(max(100 * part / whole, 0.1), 99.9):.1f} %"
