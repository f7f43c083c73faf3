"""The fast engine's stacked matrices by size: what memory and speed of a pass are counted from. Loads no torch.

As `models.stacked_linear` has them: projections that share their input stand one under another, with a border of the
adapters' ranks, each padded to 16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from burnish_engine.advise.shape import (
    BYTES_OF,
    adapted,
    embedding_parameters,
    linear_shapes,
    parameters,
    projection_parameters,
)
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.recipe_train import AdapterSection

RANK_UNIT = 16
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Of a weight in NF4: four bits, a byte of scale for 64, and an fp32 scale for 256 of those."""
_ALIGNMENT = 128  # elements at whose multiples matrices start
_MEMBERS = {
    "qkv": ("q_proj", "k_proj", "v_proj", "qkv_proj"),
    "o": ("o_proj",),
    "gate_up": ("gate_proj", "up_proj", "gate_up_proj"),
    "down": ("down_proj",),
}
_HEAD_ROWS = 4096
"""Most rows of a chunk of the head. Fewer leave multiprocessors idle in its backward product; more only take memory."""
_HEAD_ROWS_CPU = 256  # padding costs time there, and small products nothing
_HEAD_STEP = 256
_FUSED_RANK = 64  # largest padded rank that the activation's kernel takes along


@dataclass(frozen=True)
class Stack:
    """One stacked matrix.

    Attributes:
        outputs: N.
        inputs: K.
        rank: R, the padded ranks of its adapters.
        widest: Largest padded rank of one of them.
    """

    outputs: int
    inputs: int
    rank: int
    widest: int

    @property
    def elements(self) -> int:
        """Of the matrix with its border."""
        return (self.outputs + self.rank) * (self.inputs + self.rank)

    @property
    def shadows(self) -> int:
        """Elements of the adapters' copies in the compute dtype."""
        return self.rank * (self.inputs + self.outputs)


@dataclass(frozen=True)
class Weights:
    """Frozen weights on the device, bytes.

    Attributes:
        matrices: The layers' matrices with the adapters' copies in the compute dtype, and the norms.
        tables: Scales of NF4, apart from the packed weights.
        embedding: Token embeddings, and the head where it is a matrix of its own.
        scratch: What NF4 is unpacked into: gate and up, and the largest of the others.
    """

    matrices: int
    tables: int
    embedding: int
    scratch: int

    @property
    def stored(self) -> int:
        """All but the scratch."""
        return self.matrices + self.tables + self.embedding


def stacks(spec: DecoderSpec, adapter: AdapterSection) -> dict[str, Stack]:
    """The four stacks of a layer, which are the same in all layers of the families that the engine knows."""
    shapes = linear_shapes(spec, spec.layers[0])
    chosen = {matrix.name.rpartition(".")[2] for matrix in adapted(spec, spec.layers[0], adapter)}
    padded = -(-adapter.rank // RANK_UNIT) * RANK_UNIT
    found = {}
    for name, members in _MEMBERS.items():
        own = [member for member in members if member in shapes]
        outputs, inputs = sum(shapes[member][1] for member in own), shapes[own[0]][0]
        count = sum(member in chosen for member in own)
        found[name] = Stack(outputs, inputs, padded * count, padded if count else 0)
    return found


def is_fused(made: dict[str, Stack], adapter: AdapterSection, *, cuda: bool) -> bool:
    """Whether a kernel differentiates the activation together with the adapters, so that it is never written out."""
    widest = max(made["gate_up"].widest, made["down"].widest)
    return cuda and not adapter.dropout and 0 < widest <= _FUSED_RANK


def frozen_weights(spec: DecoderSpec, adapter: AdapterSection, precision: str, *, nf4: bool) -> Weights:
    """What the frozen weights take."""
    width, made = BYTES_OF[precision], stacks(spec, adapter).values()
    embedding = embedding_parameters(spec) * (1 if spec.tied_embeddings else 2) * width
    outside = (parameters(spec) - projection_parameters(spec)) * width - embedding
    if not nf4:
        matrices = spec.num_layers * sum(_aligned(stack.elements) for stack in made) * width
        return Weights(outside + matrices, 0, embedding, 0)
    count = spec.num_layers * sum(stack.outputs * stack.inputs for stack in made)
    shadows = spec.num_layers * sum(_aligned(stack.shadows) for stack in made) * width
    by_name = stacks(spec, adapter)
    others = max(stack.elements for name, stack in by_name.items() if name != "gate_up")
    tables = math.ceil(count * (NF4_BYTES - 0.5))
    return Weights(
        outside + -(-count // 2) + shadows, tables, embedding, (by_name["gate_up"].elements + others) * width
    )


def head_rows(supervised: int, *, cuda: bool, divided: int = 1) -> int:
    """Rows of a chunk of the head: of equal size, so that few are padding in the pass that learns from the most tokens.

    Args:
        supervised: Most learned tokens of a pass.
        cuda: A GPU; else the CPU.
        divided: So many times as many chunks as it takes at least.
    """
    rows = max(supervised, 1)
    chunks = -(-rows // (_HEAD_ROWS if cuda else _HEAD_ROWS_CPU)) * divided
    return -(-rows // chunks // _HEAD_STEP) * _HEAD_STEP


def _aligned(elements: int) -> int:
    return -(-elements // _ALIGNMENT) * _ALIGNMENT
