"""Counts the bytes that one layer of the fast engine takes at each save level. Loads no torch.

The counts add up the tensors that the layer declares (`models.decoder.layer_tensors`): bytes for each token of the
micro-batch, and inside the feed-forward for each token of a chunk. Tests compare them with the real tensors.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.shape import BYTES_OF
from burnish_engine.advise.predict.fast_experts import (
    ExpertStackShape,
    expert_sizes,
    expert_stacks,
    order_bytes,
    scale_bytes,
)
from burnish_engine.advise.predict.fast_shape import StackShape, distinct_layers, is_fused, stacks
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.recipe.memory_plan import SaveLevel
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.decoder.layer_tensors import (
    FORWARD,
    NOTHING,
    PHASES,
    LayerTensor,
    Phase,
)
from burnish_engine.models.decoder.mixers.declared import layer_tensors
from burnish_engine.models.families.experts import ExpertRole
from burnish_engine.models.families.matrices import StackName, feed_forward_width
from burnish_kernels.swiglu.adapted.tiles import backward_plan

_LAST_PRODUCTS: dict[Phase, ExpertRole] = {"feed_forward": "down", "input_gradient": "gate_up"}
"""The stack of experts that is multiplied with when a phase has the most tensors."""


@dataclass(frozen=True)
class LayerBytes:
    """The memory of a layer at one save level, bytes."""

    kept: int  # bytes that stay on the device between the layer's forward and its backward pass
    offloaded: tuple[int, ...]
    """Bytes of each tensor that is in host memory meanwhile, in the order in which they leave."""
    forward: int  # peak of the layer's forward pass, without saved activations of other layers and pool buffers
    backward: int  # peak of the layer's backward pass, without saved activations of layers below and pool buffers


class PhaseBytes(NamedTuple):
    """The bytes of one token that exist at a moment of a layer's work, by save level."""

    whole: Counter[SaveLevel | Literal["nothing"]]  # bytes for each token of the micro-batch
    by_chunk: Counter[SaveLevel | Literal["nothing"]]  # bytes for each token of a chunk of the feed-forward

    def at(self, level: SaveLevel | Literal["nothing"], tokens: int, chunk: int) -> int:
        """Return the bytes of all tokens at a level."""
        return tokens * self.whole[level] + chunk * self.by_chunk[level]


@dataclass(frozen=True)
class LayerShape:
    """The properties of a layer that its counts follow from."""

    spec: DecoderSpec  # shape of the model
    adapter: AdapterSection  # adapter section of the recipe
    width: int  # bytes of a number in the compute dtype
    cuda: bool  # whether a GPU trains; otherwise the CPU does
    layer: LayerSpec  # one layer of the kind
    nf4: bool = False  # whether the frozen weights are kept in 4 bits (NF4)
    eight_bits: str = ""  # format of the operands of products with frozen weights, where it has 8 bits

    @cached_property
    def stacks(self) -> dict[StackName, StackShape]:
        """The layer's stacked matrices, from `fast_shape.stacks`."""
        return stacks(self.spec, self.adapter, self.layer)

    @cached_property
    def experts(self) -> dict[ExpertRole, ExpertStackShape]:
        """The stacks of the layer's experts; none where its feed-forward is dense."""
        return expert_stacks(self.spec, self.adapter, self.layer)

    @property
    def wide(self) -> int:
        """The width of the feed-forward; of a mixture that of one expert."""
        return feed_forward_width(self.spec, self.layer)

    @cached_property
    def tensors(self) -> tuple[LayerTensor, ...]:
        """The tensors that the layer declares."""
        fused = is_fused(self.stacks, self.adapter, cuda=self.cuda)
        sizes = expert_sizes(self.spec, self.experts)
        declared = layer_tensors(
            self.spec, self.layer, self.stacks, experts=sizes, is_fused=fused, eight_bits=self.eight_bits
        )
        return tuple(one for one in declared if one.needed_on in {"any", "gpu" if self.cuda else "cpu"})

    @property
    def rank(self) -> int:
        """The most adapter columns that the gradient of the residual stream has to have room for."""
        return max(stack.rank for stack in self.stacks.values())

    def bytes_of(self, tensor: LayerTensor) -> int:
        """Return the bytes of one token."""
        return tensor.width * tensor.number_bytes(self.width)

    def in_phase(self, phase: Phase, *, chunked: bool) -> PhaseBytes:
        """Count the tensors that exist in a phase, without those in pool buffers."""
        key = phase, chunked
        if key not in self._phases:
            self._phases[key] = _phase_bytes(self, phase, chunked=chunked)
        return self._phases[key]

    @cached_property
    def _phases(self) -> dict[tuple[Phase, bool], PhaseBytes]:
        return {}


def layer_shapes(run: FastRun) -> tuple[list[LayerShape], list[int]]:
    """Return the shape of each kind of layer of a run's model, and for each layer the number of its kind."""
    layers, numbers = distinct_layers(run.spec)
    width = BYTES_OF[run.precision]
    section, products = run.recipe.adapter, run.eight_bits.products
    shapes = [LayerShape(run.spec, section, width, run.cuda, layer, run.nf4, products) for layer in layers]
    return shapes, numbers


def layer_bytes(shape: LayerShape, level: SaveLevel, tokens: int, mlp_chunk_tokens: int, rank: int) -> LayerBytes:
    """Count the memory of a layer.

    Args:
        shape: shape of the layer.
        level: save level of the layer.
        tokens: number of tokens of the micro-batch, padding included.
        mlp_chunk_tokens: number of tokens that pass the feed-forward at once; 0: all.
        rank: most adapter columns of any layer (`LayerShape.rank`).
    """
    chunked = 0 < mlp_chunk_tokens < tokens
    chunk = mlp_chunk_tokens if chunked else tokens
    phases = {phase: shape.in_phase(phase, chunked=chunked).at(level, tokens, chunk) for phase in PHASES}
    phases["feed_forward_backward"] += parts_bytes(shape, chunk)
    if shape.cuda and shape.experts:  # in the other phase the products are done before the widest gradient is made
        for phase, role in _LAST_PRODUCTS.items():
            stack = shape.experts[role]
            coded = bool(shape.eight_bits)
            phases[phase] += scale_bytes(shape.spec, stack, chunk, shape.width, nf4=shape.nf4, coded=coded)
    sizes = expert_sizes(shape.spec, shape.experts)
    return LayerBytes(
        kept=tokens * kept_bytes(shape, level, tiled=chunked) + (order_bytes(sizes, tokens, chunk) if sizes else 0),
        offloaded=tuple(tokens * size for size in offloaded_bytes(shape, level)),
        forward=max(phases[phase] for phase in FORWARD),
        backward=tokens * (shape.spec.hidden_size + rank) * shape.width + max(phases[phase] for phase in PHASES[2:]),
    )


def kept_bytes(shape: LayerShape, level: SaveLevel, *, tiled: bool) -> int:
    """Count the bytes that a layer keeps of one token on the device.

    Args:
        shape: shape of the layer.
        level: save level of the layer.
        tiled: whether the feed-forward is done in chunks; then no save level keeps its inputs.
    """
    return sum(
        shape.bytes_of(one) for one in shape.tensors if one.is_kept(level, chunked=tiled) and level not in one.host
    )


def offloaded_bytes(shape: LayerShape, level: SaveLevel) -> tuple[int, ...]:
    """Count the bytes that a layer keeps of one token in host memory, for each tensor in the order they leave."""
    return tuple(shape.bytes_of(tensor) for tensor in shape.tensors if level in tensor.host)


def evaluated_bytes(shape: LayerShape, tokens: int, mlp_chunk_tokens: int) -> int:
    """The peak of a layer's forward pass that keeps nothing for a backward pass, bytes."""
    chunk = min(mlp_chunk_tokens or tokens, tokens)
    return max(shape.in_phase(phase, chunked=chunk < tokens).at(NOTHING, tokens, chunk) for phase in FORWARD)


def parts_bytes(shape: LayerShape, tokens: int) -> int:
    """Count the fp32 partial sums of the fused activation's backward pass over a number of tokens, bytes.

    Those of an expert that sees every token are gone when the other experts have the most tensors.
    """
    made = shape.stacks
    if shape.experts or not is_fused(made, shape.adapter, cuda=shape.cuda):
        return 0
    widest, size = max(made["gate_up"].widest, made["down"].widest), made["down"].inputs
    plan = backward_plan(tokens, size, shape.width, [widest], largest=shape.eight_bits in {"fp8", "int8"})
    return 4 * plan.splits * size * (made["gate_up"].rank + made["down"].rank)


def _phase_bytes(shape: LayerShape, phase: Phase, *, chunked: bool) -> PhaseBytes:
    whole: Counter[SaveLevel | Literal["nothing"]] = Counter()
    by_chunk: Counter[SaveLevel | Literal["nothing"]] = Counter()
    for tensor in shape.tensors:
        # In the forward pass the layer's input is still the residual stream.
        pooled = tensor.host & tensor.placed if phase in FORWARD else tensor.host
        kept, size = tensor.kept.at(chunked=chunked), shape.bytes_of(tensor)
        for level in tensor.alive(phase, chunked=chunked) - pooled:
            counts = by_chunk if tensor.by_chunk and level not in kept else whole
            counts[level] += size
    return PhaseBytes(whole, by_chunk)
