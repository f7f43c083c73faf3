"""Sizes of the fast engine's stacked matrices, from which memory and speed are counted. Loads no torch.

The layout is that of `models.decoder.stacked_linear`: projections that share their input are stacked, with a border of
the adapters' ranks, each padded to 16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from burnish_engine.advise.facts.shape import (
    BYTES_OF,
    NF4_BYTES,
    adapted,
    embedding_parameters,
    parameters,
    stored_in_layers,
)
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict.fast_experts import (
    code_scale_bytes,
    expert_bytes,
    expert_stacks,
    expert_tensor_bytes,
    is_packed,
    scratch_bytes,
    selection_bytes,
)
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.eight_bit_use import NO_EIGHT_BITS, EightBitUse
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.decoder.frozen.declared import MX_BLOCK
from burnish_engine.models.decoder.mixers.declared import declared_mixer
from burnish_engine.models.families import layer_matrices
from burnish_engine.models.families.matrices import STACK_NAMES, StackName, stack_of
from burnish_kernels.swiglu.adapted.tiles import MAX_RANK

RANK_UNIT = 16
_ALIGNMENT = 128  # elements; matrices start at multiples of it
_BLOCK_ALIGNMENT = 256  # bytes; tensors in a layer's block in host memory start at multiples of it
_NF4_CONSTANTS = (256 * 4, 4)  # bytes of the levels of the scales, and of their mean
_HEAD_CHUNK_TOKENS = 4096
"""Most tokens of a chunk of the head. Fewer leave multiprocessors idle in its backward product; more only take
memory."""
_HEAD_CHUNK_TOKENS_CPU = 256  # padding costs time there, and small products nothing
_HEAD_STEP = 256
# Time of attention's backward pass on a GPU by that of the forward pass: seven products instead of two, at a higher
# rate; where the keys' gradients take most of it; and of the queries' gradients alone.
_BACKWARD, _SLOW_BACKWARD, _BACKWARD_QUERIES = 3.0, 6.0, 1.2
_NARROW_HEAD, _WIDE_HEAD = 64, 128
# Operations of the forward pass in the time that one program for keys' gradients takes for a row of one query head.
# By a 0.5B: 3.4 us for 64 rows on an H200, 4.1 us on a full H100; heads that share a program take half of it.
_ROW_OPERATIONS = 13.9e6
_WIDE_ROW_OPERATIONS = 56e6  # heads of 256, whose queries come in blocks of 16


@dataclass(frozen=True)
class StackShape:
    """One stacked matrix."""

    outputs: int  # number of outputs, N
    inputs: int  # number of inputs, K
    rank: int  # sum of the adapters' padded ranks, R
    widest: int  # largest padded rank of one adapter
    is_dora: bool = False  # whether magnitudes scale its outputs

    @property
    def elements(self) -> int:
        """The number of elements of the matrix with its border."""
        return (self.outputs + self.rank) * (self.inputs + self.rank)

    @property
    def compute_copies(self) -> int:
        """The number of elements of the adapters' copies in the compute dtype."""
        return self.rank * (self.inputs + self.outputs)


@dataclass(frozen=True)
class FrozenWeightBytes:
    """The memory of the frozen weights on the device, bytes."""

    matrices: int  # bytes of the layers' matrices, the adapters' copies in the compute dtype, and the norms
    tables: int  # bytes of the scales of NF4 and of codes
    embedding: int  # bytes of the token embeddings, and of the head where it is a matrix of its own
    scratch: int
    """Bytes that weights are unpacked or transposed into: gate and up, and the largest other stack; and groups of
    experts."""
    experts: int = 0  # bytes of the experts' weights with their scales

    @property
    def stored(self) -> int:
        """The bytes of the stored weights: all but the scratch."""
        return self.matrices + self.tables + self.embedding + self.experts


def distinct_layers(spec: DecoderSpec) -> tuple[list[LayerSpec], list[int]]:
    """Return a layer of each kind (mixer, feed-forward, sizes), and for each layer of the model its kind's number."""
    kinds = [
        (one.kind, one.feed_forward, one.head_dim, one.kv_heads, one.width, one.keys, one.projects_values, one.blocks)
        for one in spec.layers
    ]
    first: dict[tuple[object, ...], LayerSpec] = {}
    for kind, layer in zip(kinds, spec.layers, strict=True):
        first.setdefault(kind, layer)
    numbers = {kind: number for number, kind in enumerate(first)}
    return list(first.values()), [numbers[kind] for kind in kinds]


def stacks(spec: DecoderSpec, adapter: AdapterSection, layer: LayerSpec) -> dict[StackName, StackShape]:
    """The stacks of a layer: four, or in a mixture those of its mixer and of an expert that sees every token."""
    padded = -(-adapter.rank // RANK_UNIT) * RANK_UNIT
    chosen, found = {matrix.name for matrix in adapted(spec, layer, adapter)}, {}
    members = [matrix for matrix in layer_matrices(spec, layer) if matrix.form == "linear"]
    for name in STACK_NAMES:
        own = [matrix for matrix in members if stack_of(matrix) == name]
        if not own:
            continue
        count = sum(matrix.name in chosen for matrix in own)
        found[name] = StackShape(
            sum(matrix.rows for matrix in own),
            own[0].columns,
            padded * count,
            padded if count else 0,
            is_dora=bool(count) and adapter.method == "dora",
        )
    return found


def is_fused(made: Mapping[StackName, StackShape], adapter: AdapterSection, *, cuda: bool) -> bool:
    """Whether a kernel differentiates the activation together with the adapters, so that it is never written out."""
    if "gate_up" not in made or made["gate_up"].outputs == made["down"].inputs:  # experts alone; no gate
        return False
    widest = max(made["gate_up"].widest, made["down"].widest)
    return cuda and not adapter.dropout and adapter.method != "dora" and 0 < widest <= MAX_RANK


def frozen_weights(
    spec: DecoderSpec,
    adapter: AdapterSection,
    precision: str,
    *,
    nf4: bool,
    eight_bits: EightBitUse = NO_EIGHT_BITS,
    tokens: int | None = None,
) -> FrozenWeightBytes:
    """Count the memory of the frozen weights.

    Args:
        spec: shape of the model.
        adapter: the recipe's adapter section.
        precision: "fp32", "bf16" or "fp16".
        nf4: whether they are held in 4 bits, or in the blocks of their GGUF.
        eight_bits: what is held and multiplied in 8 bits.
        tokens: most tokens of a pass, on which it depends whether experts are unpacked; None: they are.
    """
    width = BYTES_OF[precision]
    layers, numbers = distinct_layers(spec)
    counted = [(stacks(spec, adapter, layer), numbers.count(number)) for number, layer in enumerate(layers)]
    made = [(stack, count) for found, count in counted for stack in found.values()]
    embedding = embedding_parameters(spec) * (1 if spec.tied_embeddings else 2) * width
    in_stacks = stored_in_layers(spec, "linear") + stored_in_layers(spec, "stacked")
    outside = (parameters(spec) - in_stacks) * width - embedding
    experts = [(expert_stacks(spec, adapter, layer), numbers.count(number)) for number, layer in enumerate(layers)]
    coded, stored = bool(eight_bits.products), eight_bits.stores_experts
    if not spec.mlp_gate:
        alphas = 2 if spec.activation == "xielu" else 0
        outside += spec.num_layers * (16 - alphas * width)  # four constants in fp32 instead of xIELU's two alphas
    if spec.delta is not None:  # rates and biases of the decay stay in fp32
        delta_layers = sum(layer.kind == "gated_delta" for layer in spec.layers)
        outside += delta_layers * 2 * spec.delta.value_heads * (4 - width)
    packed = sum(count * expert_bytes(spec, one, width, nf4=nf4, coded=stored) for one, count in experts)
    for one, count in experts:
        outside += count * code_scale_bytes(one) * (coded and is_packed(spec, nf4=nf4))
        outside += count * sum(_aligned(stack.compute_copies) for stack in one.values()) * width
        outside += count * selection_bytes(spec) * bool(one)
    unpacked = scratch_bytes(
        spec, [stack for one, _ in experts for stack in one.values()], width, nf4=nf4, coded=coded, tokens=tokens
    )
    for stack, count in made:
        if stack.is_dora:  # copies of the magnitudes that nothing reads, lengths of rows, factors
            outside += count * (_aligned(stack.outputs) * width + 8 * stack.outputs)
    if not nf4 and not eight_bits.stored:
        matrices = sum(count * _aligned(stack.elements) for stack, count in made) * width
        return FrozenWeightBytes(outside + matrices, 0, embedding, unpacked, packed)
    weights = sum(count * stack.outputs * stack.inputs for stack, count in made)
    compute_copies = sum(count * _aligned(stack.compute_copies) for stack, count in made) * width
    # Codes are read both ways: NF4 is unpacked into both, stored codes are transposed into one.
    unpacked += _scratch([found for found, _ in counted], eight_bits, 2 if nf4 else 1, width)
    scales = sum(count * scale_bytes(eight_bits, stack) for stack, count in made)
    if eight_bits.stored:
        return FrozenWeightBytes(outside + weights + compute_copies, scales, embedding, unpacked, packed)
    if blocks := sum(sum(layer.blocks) for layer in spec.layers):
        return FrozenWeightBytes(outside + blocks + compute_copies, 0, embedding, unpacked, packed)
    tables = math.ceil(weights * (NF4_BYTES - 0.5)) + (scales if eight_bits.products else 0)
    matrices = outside + -(-weights // 2) + compute_copies
    return FrozenWeightBytes(matrices, tables, embedding, unpacked, packed)


def scale_bytes(eight_bits: EightBitUse, stack: StackShape) -> int:
    """Count the bytes of the scales of a stack's codes: fp32 for a row, in MXFP8 a byte for each block."""
    if (eight_bits.stored or eight_bits.products) == "mxfp8":
        return (stack.outputs // MX_BLOCK) * (stack.inputs // MX_BLOCK)
    return 4 * stack.outputs


def _scratch(
    kinds: Sequence[Mapping[StackName, StackShape]], eight_bits: EightBitUse, orientations: int, width: int
) -> int:
    """Count the memory that dense stacks share: one for gate and up, one for the largest other, bytes."""

    def size(stack: StackShape) -> int:
        return orientations * stack.outputs * stack.inputs if eight_bits.products else stack.elements * width

    wide = max((size(found["gate_up"]) for found in kinds if "gate_up" in found), default=0)
    return wide + max(size(stack) for found in kinds for name, stack in found.items() if name != "gate_up")


@dataclass(frozen=True)
class HostedLayer:
    """The memory of a layer whose frozen weights are in host memory, bytes."""

    block: int  # bytes in host memory, and of a slot on the device that they are copied to
    freed: int  # bytes that the layer itself takes less on the device, without those of its experts
    experts: int = 0  # bytes that its experts take less there

    @property
    def all_freed(self) -> int:
        """The bytes that the layer takes less on the device."""
        return self.freed + self.experts


def hosted_layer(
    spec: DecoderSpec,
    adapter: AdapterSection,
    layer: LayerSpec,
    precision: str,
    *,
    nf4: bool,
    eight_bits: EightBitUse = NO_EIGHT_BITS,
) -> HostedLayer:
    """Count what a layer takes in host memory; the adapters' copies in the compute dtype stay on the device.

    So do the scales with which NF4 is multiplied in 8 bits.
    """
    width, made = BYTES_OF[precision], stacks(spec, adapter, layer).values()
    own = expert_stacks(spec, adapter, layer)
    held = expert_tensor_bytes(spec, own, width, nf4=nf4, coded=eight_bits.stores_experts)
    experts, block = sum(held), sum(map(_in_block, held))
    if eight_bits.stored:
        sizes = [size for stack in made for size in (stack.outputs * stack.inputs, scale_bytes(eight_bits, stack))]
        return HostedLayer(block + sum(map(_in_block, sizes)), sum(sizes), experts)
    if not nf4:
        freed = sum(_aligned(stack.elements) - _aligned(stack.compute_copies) for stack in made) * width
        return HostedLayer(block + sum(_in_block(stack.elements * width) for stack in made), freed, experts)
    if layer.blocks:
        return HostedLayer(block + sum(map(_in_block, layer.blocks)), sum(layer.blocks), experts)
    weights = [matrix.rows * matrix.columns for matrix in layer_matrices(spec, layer) if matrix.form == "linear"]
    blocks = [-(-count // 64) for count in weights]
    sizes = [size for count in weights for size in (-(-count // 2), *_NF4_CONSTANTS)]
    sizes += [size for count in blocks for size in (count, 4 * -(-count // 256))]
    return HostedLayer(block + sum(map(_in_block, sizes)), math.floor(sum(weights) * NF4_BYTES), experts)


def head_chunk_tokens(supervised_tokens: int, *, cuda: bool, divided: int = 1) -> int:
    """The number of tokens in a chunk of the head; chunks are of equal size, so that little is padding.

    Args:
        supervised_tokens: most supervised tokens of a micro-batch.
        cuda: whether a GPU trains; otherwise the CPU does.
        divided: factor on the least number of chunks.
    """
    rows = max(supervised_tokens, 1)
    chunks = -(-rows // (_HEAD_CHUNK_TOKENS if cuda else _HEAD_CHUNK_TOKENS_CPU)) * divided
    return -(-rows // chunks // _HEAD_STEP) * _HEAD_STEP


def _in_block(size: int) -> int:
    return -(-size // _BLOCK_ALIGNMENT) * _BLOCK_ALIGNMENT


def _aligned(elements: int) -> int:
    return -(-elements // _ALIGNMENT) * _ALIGNMENT


def attention_operations(spec: DecoderSpec, micro_batch: MicroBatchSize, edge: float) -> list[float]:
    """Count the operations of each layer's attention (or other mixer), forward.

    Args:
        spec: shape of the model.
        micro_batch: size of the micro-batch.
        edge: number of tokens by which a document counts as longer.
    """
    span = micro_batch.span or micro_batch.tokens
    return [
        declared_mixer(spec, layer).operations(spec.of_layer(layer), layer, micro_batch.tokens, span, edge)
        for layer in spec.layers
    ]


def backward_operations(spec: DecoderSpec, micro_batch: MicroBatchSize, forward: list[float]) -> list[float]:
    """Count each layer's backward attention on a GPU in operations at the forward pass's rate.

    The kernel for keys' and values' gradients sums over a group's heads. Narrow heads in odd groups it takes one by one
    (`burnish_kernels.attention.config`), and wide heads in blocks of few queries: both reach less than half the rate.
    The program of a document's first keys walks all its queries, head after head: the kernel takes at least as long.

    Args:
        spec: shape of the model.
        micro_batch: size of the micro-batch; packs hold documents of like lengths, so its span is that of the longest.
        forward: operations of each layer's forward pass.
    """
    found, span = [], micro_batch.span or micro_batch.tokens
    for layer, operations in zip(spec.layers, forward, strict=True):
        own = spec.of_layer(layer)
        group, wide = own.num_heads // own.num_kv_heads, own.head_dim > _WIDE_HEAD
        slow = (group % 2 == 1 and own.head_dim <= _NARROW_HEAD) or wide
        share, row = (_SLOW_BACKWARD, 2 * _ROW_OPERATIONS) if slow else (_BACKWARD, _ROW_OPERATIONS)
        row = _WIDE_ROW_OPERATIONS if wide else row
        keys = (share - _BACKWARD_QUERIES) * operations
        if layer.kind.endswith("attention"):
            window = spec.sliding_window if layer.kind == "sliding_attention" else None
            keys = max(keys, min(span, window or span) * group * row)
        found.append(_BACKWARD_QUERIES * operations + keys)
    return found
