"""Build Burnish's decoder from a checkpoint: every weight is written straight into its final memory.

All matrices that hold compute copies of adapters lie in one allocation, the compute buffer, so that a single kernel of
the optimizer can reach them all. Weights stream from the safetensors files through one small host buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.units import memory_size
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.weights import Checkpoint
from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.decoder_layer import DecoderLayer
from burnish_engine.models.decoder.layer_norms import stream_eps
from burnish_engine.models.decoder.layer_types import DecoderLayerShape, LayerWeights, Tensors
from burnish_engine.models.decoder.lora_adapter import NO_ADAPTER, AdaptedModule, AdapterPlan
from burnish_engine.models.decoder.mixers.build import build_mixer
from burnish_engine.models.decoder.mixers.declared import layer_tensors
from burnish_engine.models.decoder.rope_tables import position_tables
from burnish_engine.models.decoder.stacked_linear import (
    FrozenWeight,
    QuantizedWeight,
    ResidentWeight,
    StackedLinear,
    WeightPart,
)
from burnish_engine.models.families import Family, Module, family
from burnish_engine.models.families.base import ACTIVATIONS
from burnish_engine.models.families.matrices import STACK_NAMES
from burnish_engine.models.host_memory.page_lock import PageLock
from burnish_kernels.adamw.layout import Segment
from burnish_kernels.lora_linear import op as lora_linear
from burnish_kernels.nf4 import op as nf4

_ALIGNMENT = 128  # elements: matrices start at multiples of 256 bytes, as an allocation of their own would
_NF4_SUFFIX = ".quant_state.bitsandbytes__nf4"


@dataclass(frozen=True)
class DecoderOptions:
    """Settings that a decoder is built with.

    Attributes:
        dtype: dtype to compute in: fp32, bf16 or fp16.
        device: device that the weights go to.
        positions: tokens of the longest document, for which there is a rope table.
        plan: adapter to make room for.
        quantize: whether to keep the linear weights as NF4 (quantized here, unless the checkpoint already is).
        embedding_on_host: whether to keep the embeddings in page-locked host memory. Where head and embeddings are one
            matrix, it is there only if both are to be.
        head_on_host: whether to keep the head in page-locked host memory.
    """

    dtype: torch.dtype
    device: torch.device
    positions: int
    plan: AdapterPlan = NO_ADAPTER
    quantize: bool = False
    embedding_on_host: bool = False
    head_on_host: bool = False


@dataclass
class LoadedDecoder:
    """A decoder and the memory of its adapter.

    Attributes:
        decoder: model with frozen weights.
        plan: adapter plan of the model.
        compute_buffer: one tensor of the compute dtype that holds every matrix with compute copies.
        segments: position of the compute copies in the compute buffer, for A and B of each adapted module in turn.
        pages: page-locked host memory that holds some of the weights.
    """

    decoder: Decoder
    plan: AdapterPlan
    compute_buffer: torch.Tensor
    segments: list[Segment]
    pages: PageLock


class WeightSource(Protocol):
    """A source of 16-bit or NF4 weights: a `Checkpoint`, or random values for a benchmark."""

    def __contains__(self, name: str) -> bool:
        """Return whether there is such a tensor."""
        ...

    def names(self) -> list[str]:
        """Return the names of all tensors."""
        ...

    def read(self, name: str) -> torch.Tensor:
        """Return one small tensor."""
        ...

    def read_into(self, name: str, destination: torch.Tensor) -> None:
        """Fill a tensor with a stored one."""
        ...


@dataclass
class _StackSlot:
    """One stack before it is filled, and its place in the compute buffer.

    Attributes:
        stack: sizes and adapters.
        modules: modules of the checkpoint in it, top to bottom.
        adapted: modules with an adapter, in the same order as `stack.adapters`.
        offset: element of the compute buffer where its matrix starts (quantized: where A starts, and after it sB).
    """

    stack: lora_linear.Stack
    modules: list[Module]
    adapted: list[AdaptedModule]
    offset: int = 0


def load_decoder(source: ModelSource, options: DecoderOptions) -> LoadedDecoder:
    """Load the decoder of a checkpoint of a known family.

    Args:
        source: checked model folder.
        options: settings of the decoder.

    Raises:
        SetupError: Weights are missing or damaged.
        ValueError: The fast decoder does not do this family; ask `why_not_fast` first.
    """
    spec, known = source.spec, family(source.spec.family) if source.spec else None
    if spec is None or known is None:
        raise ValueError(f"the fast decoder does not do {source.config.get('model_type')}")
    with Checkpoint(source.folder, wrapper=source.wrapper) as checkpoint:
        in_nf4 = {name.removesuffix(_NF4_SUFFIX) for name in checkpoint.names() if name.endswith(_NF4_SUFFIX)}
        if in_nf4 and not options.quantize:
            raise SetupError(
                f"The weights in {source.folder} are stored in 4 bits (NF4), but its config.json does not say so.",
                "Download config.json again.",
            )
        checkpoint.require({name: shape for name, shape in known.tensors(spec).items() if name not in in_nf4})
        return build_decoder(checkpoint, spec, options)


def build_decoder(checkpoint: WeightSource, spec: DecoderSpec, options: DecoderOptions) -> LoadedDecoder:
    """Build the decoder of a specification, with weights from any source.

    Raises:
        ValueError: The fast decoder does not do this family.
    """
    known = family(spec.family)
    if known is None:
        raise ValueError(f"the fast decoder does not do {spec.family}")
    slots = _stack_slots(known.modules(spec), options.plan)
    compute_buffer = _compute_buffer(slots, options)
    builder = _Builder(checkpoint, known, spec, options, compute_buffer)
    decoder = builder.decoder(slots)
    segments = {id(adapted): pair for slot in slots.values() for adapted, pair in _segments(slot, options.quantize)}
    ordered = [segment for adapted in options.plan.modules for segment in segments[id(adapted)]]
    return LoadedDecoder(decoder, options.plan, compute_buffer, ordered, builder.pages)


def _stack_slots(modules: list[Module], plan: AdapterPlan) -> dict[tuple[int, str], _StackSlot]:
    adapted = {item.module.path: item for item in plan.modules}
    grouped: dict[tuple[int, str], list[Module]] = defaultdict(list)
    for module in modules:
        grouped[module.layer, module.stack].append(module)
    slots = {}
    for key, members in grouped.items():
        chosen = [adapted[module.path] for module in members if module.path in adapted]
        adapters = tuple(
            lora_linear.StackedAdapter(item.module.first_row, item.module.rows, item.rank, item.scale)
            for item in chosen
        )
        rows = sum(module.rows for module in members)
        slots[key] = _StackSlot(lora_linear.Stack(rows, members[0].columns, adapters), members, chosen)
    return slots


def _compute_buffer(slots: dict[tuple[int, str], _StackSlot], options: DecoderOptions) -> torch.Tensor:
    """Allocate the compute buffer and assign every stack its offset in it."""
    total = 0
    for slot in slots.values():
        stack = slot.stack
        slot.offset = total
        whole = (stack.N + stack.R) * (stack.K + stack.R)
        total += stack.R * (stack.K + stack.N) if options.quantize else whole
        total += -total % _ALIGNMENT
    return torch.empty(max(total, 1), dtype=options.dtype, device=options.device)


def _segments(slot: _StackSlot, quantize: bool) -> Iterator[tuple[AdaptedModule, tuple[Segment, Segment]]]:
    stack = slot.stack
    if quantize:
        a_start, a_stride = slot.offset, stack.K
        b_start, b_stride = slot.offset + stack.R * stack.K, stack.R
    else:
        a_stride = b_stride = stack.K + stack.R
        a_start, b_start = slot.offset + stack.N * a_stride, slot.offset + stack.K
    for item, adapter, first in zip(slot.adapted, stack.adapters, stack.firsts, strict=True):
        a = Segment(adapter.rank, stack.K, a_start + first * a_stride, a_stride)
        b = Segment(adapter.rows, adapter.rank, b_start + adapter.first_row * b_stride + first, b_stride, adapter.scale)
        yield item, (a, b)


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
        self._scratch: dict[bool, torch.Tensor] = {}
        self.pages = PageLock()
        self._stored_in_nf4 = options.quantize and any(name.endswith(_NF4_SUFFIX) for name in checkpoint.names())

    def decoder(self, slots: dict[tuple[int, str], _StackSlot]) -> Decoder:
        spec, options = self._spec, self._options
        if options.quantize:
            self._make_scratch(slots)
        tables = position_tables(spec, options.positions, self._device)
        head_path = self._family.head_path(spec)
        apart = options.embedding_on_host and (options.head_on_host or head_path is not None)
        embedding = self._matrix(self._family.embedding_path, on_host=apart)
        head = embedding if head_path is None else self._matrix(head_path, on_host=options.head_on_host)
        vectors: dict[int | None, Tensors] = defaultdict(dict)
        own: dict[int | None, Tensors] = defaultdict(dict)
        for vector in self._family.vectors(spec):
            roles = own if vector.is_of_mixer else vectors
            roles[vector.layer][vector.role] = self._vector(vector.name)
        layers = []
        for index, layer in enumerate(spec.layers):
            stacks = {name: self._stack(slots[index, name], name) for name in STACK_NAMES}
            weights = LayerWeights(**vectors[index], **stacks, own=own[index])
            mixer = build_mixer(spec, index, weights.own, tables)
            layers.append(DecoderLayer(self._shape(index), weights, mixer, layer_tensors(spec, layer.kind, stacks)))
        return Decoder(spec, embedding, head, vectors[None]["final_norm"], layers, tables.rope)

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

    def _vector(self, name: str) -> torch.Tensor:
        return self._checkpoint.read(name).to(self._device, self._dtype)

    def _make_scratch(self, slots: dict[tuple[int, str], _StackSlot]) -> None:
        """Allocate memory to dequantize NF4 into: one for gate and up, one for the others (down is used with both)."""
        for wide in (True, False):
            stacks = [slot.stack for (_, name), slot in slots.items() if (name == "gate_up") == wide]
            size = max((stack.N + stack.R) * (stack.K + stack.R) for stack in stacks)
            self._scratch[wide] = torch.zeros(size, dtype=self._dtype, device=self._device)

    def _stack(self, slot: _StackSlot, name: str) -> StackedLinear:
        stack = slot.stack
        frozen = self._quantized(slot, name) if self._options.quantize else self._resident(slot)
        bias = None
        if any(module.bias for module in slot.modules):
            bias = torch.zeros(stack.N, dtype=self._dtype, device=self._device)
            for module in slot.modules:
                if module.bias:
                    bias[module.first_row : module.first_row + module.rows] = self._vector(
                        f"{self._family.stored_path(module.path)}.bias"
                    )
        return StackedLinear(stack, frozen, bias)

    def _resident(self, slot: _StackSlot) -> FrozenWeight:
        stack = slot.stack
        shape = (stack.N + stack.R, stack.K + stack.R)
        matrix = self._compute_buffer[slot.offset : slot.offset + shape[0] * shape[1]].view(shape)
        matrix[:, stack.K :] = 0
        matrix[stack.N :] = 0
        for module in slot.modules:
            rows = matrix[module.first_row : module.first_row + module.rows, : stack.K]
            self._checkpoint.read_into(f"{self._family.stored_path(module.path)}.weight", rows)
        return ResidentWeight(matrix)

    def _quantized(self, slot: _StackSlot, name: str) -> FrozenWeight:
        stack = slot.stack
        size = stack.R * (stack.K + stack.N)
        compute_copies = self._compute_buffer[slot.offset : slot.offset + size]
        compute_copies.zero_()
        a, sb = (
            compute_copies[: stack.R * stack.K].view(stack.R, stack.K),
            compute_copies[stack.R * stack.K :].view(stack.N, stack.R),
        )
        shape = (stack.N + stack.R, stack.K + stack.R)
        scratch = self._scratch[name == "gate_up"][: shape[0] * shape[1]].view(shape)
        return QuantizedWeight([self._part(module) for module in slot.modules], a, sb, scratch)

    def _part(self, module: Module) -> WeightPart:
        """Return one module's weight in NF4, or in 16 bits where a published 4-bit checkpoint left it so."""
        name, shape = f"{self._family.stored_path(module.path)}.weight", (module.rows, module.columns)
        if f"{name}{_NF4_SUFFIX}" in self._checkpoint:
            keys = [key for key in self._checkpoint.names() if key == name or key.startswith(f"{name}.")]
            try:
                found = nf4.from_bitsandbytes({key: self._checkpoint.read(key).to(self._device) for key in keys}, name)
            except ValueError as error:
                raise SetupError(f"A 4-bit weight cannot be used: {error}.", "Download the model again.") from error
            if found.shape != shape:
                raise SetupError(
                    f"The 4-bit weight {name} has the shape {list(found.shape)}; config.json says {list(shape)}.",
                    "Download the model again: config and weights are of different models.",
                )
            return found
        # What is quantized here passes through fp32, so that no stored type loses anything on the way.
        weight = torch.empty(shape, dtype=self._dtype if self._stored_in_nf4 else torch.float32, device=self._device)
        self._checkpoint.read_into(name, weight)
        return weight if self._stored_in_nf4 else nf4.quantize(weight)
