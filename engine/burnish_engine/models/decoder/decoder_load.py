"""Build Burnish's decoder from a checkpoint: every weight is written straight into its final memory.

All matrices that hold compute copies of adapters lie in one allocation, the compute buffer, so that a single kernel of
the optimizer can reach them all. Weights stream from the safetensors files through one small host buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.eight_bit_use import NO_EIGHT_BITS, EightBitUse
from burnish_engine.contract.units import memory_size
from burnish_engine.models.checkpoint.open_checkpoint import open_checkpoint
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.decoder_layer import DecoderLayer
from burnish_engine.models.decoder.experts.expert_load import ExpertBuilder, ExpertSlots, expert_slots
from burnish_engine.models.decoder.frozen.head import Head
from burnish_engine.models.decoder.frozen.weight import FrozenWeight
from burnish_engine.models.decoder.frozen_weights import (
    NF4_SUFFIX,
    FrozenWeightReader,
    StackSlot,
    StackSlots,
)
from burnish_engine.models.decoder.layer_end.inputs import LayerInputs
from burnish_engine.models.decoder.layer_norms import stream_eps
from burnish_engine.models.decoder.layer_types import DecoderLayerShape, EndWeights, LayerWeights, Tensors
from burnish_engine.models.decoder.lora_adapter import NO_ADAPTER, AdaptedModule, AdapterPlan, LoraAdapter
from burnish_engine.models.decoder.magnitudes import Magnitudes
from burnish_engine.models.decoder.mixers.build import build_mixer
from burnish_engine.models.decoder.mixers.declared import layer_tensors
from burnish_engine.models.decoder.rope_tables import position_tables
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_engine.models.decoder.weight_source import WeightSource
from burnish_engine.models.families import Family, Module, family
from burnish_engine.models.families.matrices import StackName
from burnish_engine.models.families.record import ACTIVATIONS
from burnish_engine.models.host_memory.layer_shares import RankMemory
from burnish_engine.models.host_memory.page_lock import PageLock
from burnish_kernels.adamw.layout import Segment
from burnish_kernels.lora_linear import op as lora_linear
from burnish_kernels.xielu.reference import constants as xielu_constants

_ALIGNMENT = 128  # elements: matrices start at multiples of 256 bytes, as an allocation of their own would


@dataclass(frozen=True)
class DecoderOptions:
    """Settings that a decoder is built with.

    Attributes:
        dtype: dtype to compute in: fp32, bf16 or fp16.
        device: device that the weights go to.
        positions: tokens of the longest document, for which there is a rope table, and of the largest pass.
        plan: adapter to make room for.
        quantize: whether to keep the linear weights packed: as NF4 (quantized here, unless the checkpoint already is),
            or in the blocks of GGUF that they are stored in.
        eight_bits: what to store and to multiply in 8 bits; nothing is stored so beside NF4. Products in 8 bits
            take weights in NF4 or codes, or experts in MXFP4, and no DoRA.
        embedding_on_host: whether to keep the embeddings in page-locked host memory. Where head and embeddings are one
            matrix, it is there only if both are to be.
        head_on_host: whether to keep the head in page-locked host memory.
        layers_on_host: numbers of the layers whose frozen weights stay in host memory, page-locked as far as possible.
        layers_on_ranks: numbers of the layers whose frozen weights the ranks of the run share.
        memory: memory of all ranks; needed where a layer is shared.
        lockable: number of bytes of host memory that may be page-locked; None: as the system allows.
        progress: function that receives the number of layers loaded and the number of all layers; None: nobody asks.
    """

    dtype: torch.dtype
    device: torch.device
    positions: int
    plan: AdapterPlan = NO_ADAPTER
    quantize: bool = False
    eight_bits: EightBitUse = NO_EIGHT_BITS
    embedding_on_host: bool = False
    head_on_host: bool = False
    layers_on_host: frozenset[int] = frozenset()
    layers_on_ranks: frozenset[int] = frozenset()
    memory: RankMemory | None = None
    lockable: int | None = None
    progress: Callable[[int, int], object] | None = None


@dataclass
class LoadedDecoder:
    """A decoder and the memory of its adapter.

    Attributes:
        decoder: model with frozen weights.
        plan: adapter plan of the model.
        compute_buffer: one tensor of the compute dtype that holds every matrix with compute copies.
        segments: position of the compute copies in the compute buffer, for A, B and DoRA's magnitudes of each part of
            the plan in turn. Nothing reads the copies of the magnitudes.
        pages: page-locked host memory that holds some of the weights.
    """

    decoder: Decoder
    plan: AdapterPlan
    compute_buffer: torch.Tensor
    segments: list[Segment]
    pages: PageLock


def load_decoder(source: ModelSource, options: DecoderOptions) -> LoadedDecoder:
    """Load the decoder of a checkpoint of a known family.

    Args:
        source: checked model folder.
        options: settings of the decoder.

    Raises:
        SetupError: Weights are missing or damaged, or ranks that share them cannot read each other's memory.
        ValueError: The fast decoder does not do this family; ask `why_not_fast` first.
    """
    spec, known = source.spec, family(source.spec.family) if source.spec else None
    if spec is None or known is None:
        raise ValueError(f"the fast decoder does not do {source.config.get('model_type')}")
    with open_checkpoint(source) as checkpoint:
        in_nf4 = {name.removesuffix(NF4_SUFFIX) for name in checkpoint.names() if name.endswith(NF4_SUFFIX)}
        if in_nf4 and not options.quantize:
            raise SetupError(
                f"The weights in {source.folder} are stored in 4 bits (NF4), but its config.json does not say so.",
                "Download config.json again.",
            )
        checkpoint.require(
            {name: shape for name, shape in known.tensors(spec, checkpoint).items() if name not in in_nf4}
        )
        return build_decoder(checkpoint, spec, options)


def build_decoder(checkpoint: WeightSource, spec: DecoderSpec, options: DecoderOptions) -> LoadedDecoder:
    """Build the decoder of a specification, with weights from any source.

    Raises:
        ValueError: The fast decoder does not do this family.
    """
    known = family(spec.family)
    if known is None:
        raise ValueError(f"the fast decoder does not do {spec.family}")
    slots, experts = _stack_slots(known.modules(spec), options), expert_slots(options.plan.experts)
    compute_buffer = _compute_buffer(slots, experts, options)
    builder = _Builder(checkpoint, known, spec, options, compute_buffer)
    decoder = builder.decoder(slots, experts)
    segments: dict[int, tuple[Segment, ...]] = {
        id(adapted): own for slot in slots.values() for adapted, own in _segments(slot)
    }
    segments |= {id(slot.adapted): slot.segments for slot in experts.values()}
    ordered = [segment for adapted in options.plan.parts for segment in segments[id(adapted)]]
    decoder.ring.shares.wait_until_kept()
    decoder.measure_rows()
    return LoadedDecoder(decoder, options.plan, compute_buffer, ordered, builder.pages)


def connect_gradients(loaded: LoadedDecoder, gradients: LoraAdapter) -> None:
    """Connect the stacks with the fp32 tensors that accumulate their adapters' gradients."""
    layers = loaded.decoder.layers
    for adapted in sorted(loaded.plan.modules, key=lambda adapted: adapted.module.first_row):
        stack = layers[adapted.module.layer].weights.stacks[adapted.module.stack]
        a, b = gradients.of(adapted)[:2]
        stack.gradients.a.append(a)
        stack.gradients.b.append(b)
    for experts in loaded.plan.experts:
        weights = layers[experts.stack.layer].weights.experts
        assert weights is not None
        adapters = weights.stacks[experts.stack.role].adapters
        assert adapters is not None
        adapters.gradient_a, adapters.gradient_b = gradients.of(experts)


def connect_magnitudes(loaded: LoadedDecoder, adapter: LoraAdapter, gradients: LoraAdapter | None = None) -> None:
    """Connect the stacks with DoRA's magnitudes, and with their gradients where it is trained; else nothing."""
    for adapted in sorted(loaded.plan.modules, key=lambda adapted: adapted.module.first_row):
        if adapted.dora:
            stack = loaded.decoder.layers[adapted.module.layer].weights.stacks[adapted.module.stack]
            assert stack.magnitudes is not None
            stack.magnitudes.masters.append(adapter.of(adapted)[2])
            if gradients is not None:
                stack.magnitudes.gradients.append(gradients.of(adapted)[2])


def _stack_slots(modules: list[Module], options: DecoderOptions) -> StackSlots:
    adapted = {item.module.path: item for item in options.plan.modules}
    grouped: dict[tuple[int, StackName], list[Module]] = defaultdict(list)
    for module in modules:
        grouped[module.layer, module.stack].append(module)
    slots = {}
    for key, members in grouped.items():
        chosen = [adapted[module.path] for module in members if module.path in adapted]
        adapters = tuple(
            lora_linear.StackedAdapter(item.module.first_row, item.module.rows, item.rank, item.scale)
            for item in chosen
        )
        stack = lora_linear.Stack(sum(module.rows for module in members), members[0].columns, adapters)
        is_streamed = key[0] in options.layers_on_host or key[0] in options.layers_on_ranks
        is_apart = options.quantize or bool(options.eight_bits.stored) or is_streamed
        slots[key] = StackSlot(stack, members, chosen, is_apart)
    return slots


def _compute_buffer(slots: StackSlots, experts: ExpertSlots, options: DecoderOptions) -> torch.Tensor:
    """Allocate the compute buffer and assign every stack its offset in it."""
    total = 0
    for slot in slots.values():
        slot.offset = total
        total += slot.elements
        total += -total % _ALIGNMENT
        if slot.is_dora:
            slot.magnitude_offset = total
            total += slot.stack.N + -slot.stack.N % _ALIGNMENT
    for own in experts.values():
        own.offset = total
        total += own.elements + -own.elements % _ALIGNMENT
    return torch.empty(max(total, 1), dtype=options.dtype, device=options.device)


def _segments(slot: StackSlot) -> Iterator[tuple[AdaptedModule, tuple[Segment, ...]]]:
    stack = slot.stack
    if slot.is_apart:
        a_start, a_stride = slot.offset, stack.K
        b_start, b_stride = slot.offset + stack.R * stack.K, stack.R
    else:
        a_stride = b_stride = stack.K + stack.R
        a_start, b_start = slot.offset + stack.N * a_stride, slot.offset + stack.K
    for item, adapter, first in zip(slot.adapted, stack.adapters, stack.firsts, strict=True):
        a = Segment(adapter.rank, stack.K, a_start + first * a_stride, a_stride)
        b = Segment(adapter.rows, adapter.rank, b_start + adapter.first_row * b_stride + first, b_stride, adapter.scale)
        if not item.dora:
            yield item, (a, b)
            continue
        start = slot.magnitude_offset + adapter.first_row
        yield item, (a, b, Segment(1, adapter.rows, start, adapter.rows, decay=False))


def _end_weights(weights: Tensors) -> EndWeights:
    """Sort the parameters of a layer behind its feed-forward."""
    parts = (weights.get(role) for role in ("per_layer_gate", "per_layer_projection", "per_layer_norm"))
    return EndWeights(weights["layer_scale"], *parts)


class _Builder:
    """Builds the layers of a decoder and fills them from a checkpoint."""

    def __init__(
        self,
        checkpoint: WeightSource,
        known: Family,
        spec: DecoderSpec,
        options: DecoderOptions,
        compute_buffer: torch.Tensor,
    ) -> None:
        self._checkpoint, self._family, self._spec, self._options = checkpoint, known, spec, options
        self._dtype, self._device, self._compute_buffer = options.dtype, options.device, compute_buffer
        self.pages = PageLock(options.lockable)

    def decoder(self, slots: StackSlots, expert_slots: ExpertSlots) -> Decoder:
        spec, options = self._spec, self._options
        reader = FrozenWeightReader(
            self._checkpoint,
            self._family,
            spec,
            slots,
            self._compute_buffer,
            quantize=options.quantize,
            eight_bits=options.eight_bits,
            on_host=options.layers_on_host,
            on_ranks=options.layers_on_ranks,
            memory=options.memory,
            pages=self.pages,
        )
        tables = position_tables(spec, options.positions, self._device)
        head_path = self._family.head_path(spec)
        apart = options.embedding_on_host and (options.head_on_host or head_path is not None)
        embedding = self._matrix(self._family.embedding_path, on_host=apart)
        head = embedding if head_path is None else self._matrix(head_path, on_host=options.head_on_host)
        vectors: dict[tuple[str, int | None], Tensors] = defaultdict(dict)
        for vector in self._family.vectors(spec):
            vectors[vector.part, vector.layer][vector.role] = self._vector(vector.name, is_fp32=vector.is_fp32)
        experts = None
        if spec.experts:
            experts = ExpertBuilder(spec.experts, expert_slots, self._compute_buffer, options.positions)
        layers = []
        for index, layer in enumerate(spec.layers):
            stacks: dict[str, Any] = {
                name: self._stack(slots[index, name], frozen) for name, frozen in reader.layer(index).items()
            }
            weights, sizes = LayerWeights(**vectors["norms", index], **stacks, own=vectors["mixer", index]), None
            if constants := vectors["activation", index]:
                weights.xielu_4 = xielu_constants(**constants)
            elif spec.activation == "relu2":  # xIELU with a square alone
                weights.xielu_4 = torch.tensor([1.0, 0.0, 0.0, 0.0], device=self._device)
            if ends := vectors["layer", index]:
                weights.end = _end_weights(ends)
            if layer.is_mixture and experts is not None:
                weights.experts = experts.layer(index, reader.experts(index), vectors["experts", index])
                sizes = experts.sizes(weights.experts)
            reader.finish(index)
            mixer = build_mixer(spec, index, weights.own, tables)
            tensors = layer_tensors(spec, layer, weights.stacks, experts=sizes)
            layers.append(DecoderLayer(self._shape(index), weights, mixer, tensors))
            if options.progress is not None:
                options.progress(len(layers), len(spec.layers))
        norm, in_int8 = vectors["norms", None]["final_norm"], options.eight_bits.logits_in_int8
        projection = Head(head, norm.device, divisor=spec.logit_divisor, in_int8=in_int8)
        inputs = self._layer_inputs(vectors["layer", None])
        return Decoder(spec, embedding, projection, norm, layers, tables.rope, reader.ring, inputs)

    def _layer_inputs(self, weights: Tensors) -> LayerInputs | None:
        """Return what inputs of the layers' own are made with; their table stays in host memory."""
        path = self._family.per_layer_path(self._spec)
        if path is None:
            return None
        table, eps = self._matrix(path, on_host=True), self._spec.rms_norm_eps
        return LayerInputs(table, weights["per_layer_inputs"], weights["per_layer_inputs_norm"], eps)

    def _shape(self, index: int) -> DecoderLayerShape:
        spec = self._spec
        return DecoderLayerShape(index, stream_eps(spec), spec.norm_one_plus, ACTIVATIONS[spec.activation])

    def _matrix(self, name: str, *, on_host: bool) -> torch.Tensor:
        shape = self._family.tensors(self._spec)[name]
        away = on_host and self._device.type == "cuda"
        matrix = torch.empty(shape, dtype=self._dtype, device="cpu" if away else self._device)
        if away:
            code = self.pages.lock(matrix)
            if code:
                raise SetupError(
                    f"{memory_size(matrix.nbytes)} of host memory for {name} could not be page-locked (CUDA error "
                    f"{code}).",
                    "Close other programs, or give the run more of the device's memory.",
                )
        self._checkpoint.read_into(name, matrix)
        return matrix

    def _vector(self, name: str, *, is_fp32: bool = False) -> torch.Tensor:
        dtype = torch.promote_types(self._dtype, torch.float32) if is_fp32 else self._dtype
        return self._checkpoint.read(name).to(self._device, dtype)

    def _stack(self, slot: StackSlot, frozen: FrozenWeight) -> StackedLinear:
        stack = slot.stack
        bias = None
        if any(module.bias for module in slot.modules):
            bias = torch.zeros(stack.N, dtype=self._dtype, device=self._device)
            for module in slot.modules:
                if module.bias:
                    bias[module.first_row : module.first_row + module.rows] = self._vector(
                        f"{self._family.stored_path(module.path)}.bias"
                    )
        magnitudes = Magnitudes(stack, self._compute_buffer) if slot.is_dora else None
        return StackedLinear(stack, frozen, bias, magnitudes)
