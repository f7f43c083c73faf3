"""Counts the bytes of the experts of a mixture on the fast engine, packed or not. Loads no torch.

The layout is that of `models.decoder.experts`: all experts of a layer and map in one stack, in the compute dtype, in
NF4 with quantized scales, or in MXFP4 as published; adapters for each expert, A and sB in the compute dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from burnish_engine.advise.facts.shape import adapted, rank_of
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.decoder.experts.declared import ExpertSizes, scratch_elements
from burnish_engine.models.families import layer_matrices
from burnish_engine.models.families.experts import MXFP4_BLOCK, ExpertRole
from burnish_engine.models.families.matrices import stack_of
from burnish_engine.models.families.record import NF4_BLOCK

TILE_ROWS = 128
"""Most sorted rows of a tile of the grouped products (`burnish_kernels.moe_sort.order`)."""
UNPACK_ROWS = {"nf4": 192, "mxfp4": 320}
"""Rows of an expert from which groups of experts are unpacked before (`burnish_kernels.grouped_linear.tiles`)."""
_CODE_BYTES = 1
_NESTED_BLOCK, _LEVELS = 256, 256


@dataclass(frozen=True)
class ExpertStackShape:
    """The stack of all experts of a layer for one of their two maps."""

    experts: int  # number of experts
    outputs: int  # number of outputs of one
    inputs: int  # number of inputs of one
    rank: int  # rank of each one's adapter; 0: none

    @property
    def weights(self) -> int:
        """The number of weights."""
        return self.experts * self.outputs * self.inputs

    @property
    def compute_copies(self) -> int:
        """The number of elements of the adapters' copies in the compute dtype."""
        return self.experts * self.rank * (self.inputs + self.outputs)


ExpertStackShapes = Mapping[ExpertRole, ExpertStackShape]


def expert_stacks(spec: DecoderSpec, adapter: AdapterSection, layer: LayerSpec) -> dict[ExpertRole, ExpertStackShape]:
    """Return the stacks of a layer's experts; none of a dense layer."""
    chosen = {matrix.name for matrix in adapted(spec, layer, adapter)}
    roles: dict[str, ExpertRole] = {"gate_up": "gate_up", "down": "down"}
    return {
        roles[stack_of(matrix)]: ExpertStackShape(
            matrix.count, matrix.rows, matrix.columns, rank_of(spec, matrix, adapter) if matrix.name in chosen else 0
        )
        for matrix in layer_matrices(spec, layer)
        if matrix.form == "stacked"
    }


def expert_sizes(spec: DecoderSpec, made: ExpertStackShapes) -> ExpertSizes | None:
    """Return the sizes that a layer's tensors are declared by; None for a dense layer."""
    if not made:
        return None
    gate_up, down = made["gate_up"], made["down"]
    return ExpertSizes(gate_up.experts, spec.experts_per_token, down.inputs, gate_up.rank, down.rank)


def expert_tensor_bytes(
    spec: DecoderSpec, made: ExpertStackShapes, width: int, *, nf4: bool, coded: bool = False
) -> list[int]:
    """List the bytes of each tensor that holds a layer's experts.

    Args:
        spec: shape of the model.
        made: stacks of the layer.
        width: bytes of a number in the compute dtype.
        nf4: whether weights that are not in MXFP4 are kept in NF4.
        coded: whether they are kept as FP8 codes instead.
    """
    found: list[int] = []
    for stack in made.values():
        if spec.has_mxfp4_experts:
            found += [stack.weights // 2, stack.weights // MXFP4_BLOCK]
        elif nf4:
            blocks = stack.outputs * stack.inputs // NF4_BLOCK
            nested = 4 * -(-blocks // _NESTED_BLOCK)
            found += [
                stack.weights // 2,
                stack.experts * blocks,
                stack.experts * nested,
                4 * _LEVELS,
                4 * stack.experts,
            ]
        elif coded:
            found += [stack.weights * _CODE_BYTES, 4 * stack.experts]
        else:
            found.append(stack.weights * width)
    return found


def expert_bytes(spec: DecoderSpec, made: ExpertStackShapes, width: int, *, nf4: bool, coded: bool = False) -> int:
    """Count the bytes of a layer's experts; arguments as for `expert_tensor_bytes`."""
    return sum(expert_tensor_bytes(spec, made, width, nf4=nf4, coded=coded))


def scratch_bytes(
    spec: DecoderSpec,
    made: Sequence[ExpertStackShape],
    width: int,
    *,
    nf4: bool,
    coded: bool = False,
    tokens: int | None = None,
) -> int:
    """Count the memory that groups of experts are unpacked into on a GPU.

    Args:
        spec: shape of the model.
        made: stacks of all layers.
        width: bytes of a number in the compute dtype.
        nf4: whether weights that are not in MXFP4 are kept in NF4.
        coded: whether products are in FP8: then all experts are made codes, however many tokens there are.
        tokens: most tokens of a pass; None: so many that unpacking pays.
    """
    shapes = [(stack.outputs, stack.inputs) for stack in made]
    if coded:
        return scratch_elements(shapes, _CODE_BYTES)
    if not is_packed(spec, nf4=nf4):
        return 0
    rows = UNPACK_ROWS["mxfp4" if spec.has_mxfp4_experts else "nf4"]
    if tokens is not None and tokens * spec.experts_per_token < rows * spec.num_experts:
        return 0
    return scratch_elements(shapes, width) * width


def code_scale_bytes(made: ExpertStackShapes) -> int:
    """Count the bytes of the scales with which a layer's packed experts become FP8 codes; always on the device."""
    return sum(4 * stack.experts for stack in made.values())


def scale_bytes(
    spec: DecoderSpec, stack: ExpertStackShape, tokens: int, width: int, *, nf4: bool, coded: bool = False
) -> int:
    """Count the fp32 scales of NF4 that exist on a GPU while a stack is multiplied with: of all experts, or of a group.

    Args:
        spec: shape of the model.
        stack: stack of the layer.
        tokens: number of tokens that pass the experts at once.
        width: bytes of a number in the compute dtype.
        nf4: whether weights that are not in MXFP4 are kept in NF4.
        coded: whether products are in FP8.
    """
    if not nf4 or spec.has_mxfp4_experts:
        return 0
    size, experts = stack.outputs * stack.inputs, stack.experts
    width = _CODE_BYTES if coded else width
    if coded or tokens * spec.experts_per_token >= UNPACK_ROWS["nf4"] * experts:
        experts = min(scratch_elements([(stack.outputs, stack.inputs)], width) // size, experts)
    return 4 * experts * size // NF4_BLOCK


def cpu_bytes(spec: DecoderSpec, made: ExpertStackShapes, tokens: int, width: int, *, nf4: bool) -> int:
    """Count what a processor has beside a layer's tensors while it multiplies with experts.

    All experts of a map are unpacked at once, each alone before they are one stack; a token's rows are copied for each
    of its experts.

    Args:
        spec: shape of the model.
        made: stacks of the layer.
        tokens: number of tokens that pass the experts at once.
        width: bytes of a number in the compute dtype.
        nf4: whether weights that are not in MXFP4 are kept in NF4.
    """
    if not made:
        return 0
    unpacked = 2 * max(stack.weights for stack in made.values()) * width if is_packed(spec, nf4=nf4) else 0
    return unpacked + tokens * spec.experts_per_token * spec.hidden_size * width


def order_bytes(sizes: ExpertSizes, tokens: int, chunk: int) -> int:
    """Count the bytes of the tables beside the sorted rows: where experts and tiles begin (`moe_sort.order`).

    Args:
        sizes: sizes of the layer's experts.
        tokens: number of tokens of the micro-batch.
        chunk: number of tokens that pass the experts at once.
    """
    total = 0
    for first in range(0, tokens, chunk):
        rows = min(chunk, tokens - first) * sizes.slots
        tiles = rows // TILE_ROWS + min(sizes.experts, rows)
        total += 4 * (2 * (sizes.experts + 1) + 2 * tiles)
    return total


def selection_bytes(spec: DecoderSpec) -> int:
    """Count the bytes of the bias that helps to choose experts, which is no weight of the model."""
    return 4 * spec.experts.count if spec.experts is not None and spec.experts.selection_bias else 0


def is_packed(spec: DecoderSpec, *, nf4: bool) -> bool:
    """Whether the experts are kept in four bits."""
    return nf4 or spec.has_mxfp4_experts
