"""Read the frozen weights of a decoder's stacks: to the device, or for some layers to where they are streamed from.

A streamed layer is one block in host memory, or shared by ranks (`host_memory.weight_ring`). Its stacks multiply with
views of the slot that the block is copied to; the adapters' compute copies are always on the device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.eight_bit_use import NO_EIGHT_BITS, EightBitUse
from burnish_engine.models.checkpoint.stored_fp8 import row_scales as row_scales_of
from burnish_engine.models.checkpoint.stored_fp8 import scale_name
from burnish_engine.models.decoder.experts.expert_weights import (
    ExpertReader,
    FrozenExperts,
    placed_weight,
    weight_tensors,
)
from burnish_engine.models.decoder.frozen.code_format import CodeFormat
from burnish_engine.models.decoder.frozen.code_formats import CODE_FORMATS, code_format
from burnish_engine.models.decoder.frozen.coded_weights import CodeScratch, Nf4CodedWeight, StoredCodedWeight
from burnish_engine.models.decoder.frozen.matrix_weights import QuantizedWeight, ResidentWeight, StreamedWeight
from burnish_engine.models.decoder.frozen.parts import CODED, CodedPart, WeightPart, part_tensors, placed
from burnish_engine.models.decoder.frozen.weight import FrozenWeight
from burnish_engine.models.decoder.lora_adapter import AdaptedModule
from burnish_engine.models.decoder.weight_source import WeightSource
from burnish_engine.models.families import Family, Module
from burnish_engine.models.families.experts import ExpertRole
from burnish_engine.models.families.matrices import STACK_NAMES, StackName
from burnish_engine.models.host_memory.layer_shares import RankMemory
from burnish_engine.models.host_memory.page_lock import PageLock
from burnish_engine.models.host_memory.weight_ring import WeightRing, block_bytes, carve
from burnish_kernels.eight_bit_linear.op import EightBitRows
from burnish_kernels.gguf_blocks import op as gguf_blocks
from burnish_kernels.grouped_codes.op import ExpertWeight, expert_scales
from burnish_kernels.lora_linear import op as lora_linear
from burnish_kernels.nf4 import op as nf4

NF4_SUFFIX = ".quant_state.bitsandbytes__nf4"
"""Ending of the name of a tensor that a checkpoint has for each of its 4-bit weights."""


@dataclass
class StackSlot:
    """One stack before it is filled, and its place in the compute buffer.

    Attributes:
        stack: sizes and adapters.
        modules: modules of the checkpoint in it, top to bottom.
        adapted: modules with an adapter, in the same order as `stack.adapters`.
        is_apart: whether the compute buffer holds the adapters alone, A and after it sB; otherwise the whole matrix.
        offset: element of the compute buffer where that starts.
        magnitude_offset: element of the compute buffer where the copies of its magnitudes start (DoRA).
    """

    stack: lora_linear.Stack
    modules: list[Module]
    adapted: list[AdaptedModule]
    is_apart: bool
    offset: int = 0
    magnitude_offset: int = 0

    @property
    def is_dora(self) -> bool:
        """Whether its adapters have magnitudes."""
        return any(item.dora for item in self.adapted)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole matrix."""
        return self.stack.N + self.stack.R, self.stack.K + self.stack.R

    @property
    def elements(self) -> int:
        """Number of elements in the compute buffer."""
        return self.stack.R * (self.stack.K + self.stack.N) if self.is_apart else self.shape[0] * self.shape[1]


StackSlots = Mapping[tuple[int, StackName], StackSlot]
"""Stacks by layer and name."""


class FrozenWeightReader:
    """Reads frozen weights into their final memory, which it allocates where it is not the compute buffer.

    Args:
        checkpoint: source of the weights.
        known: family of the model.
        spec: specification of the model.
        slots: all stacks but the experts'.
        compute_buffer: tensor in the compute dtype on the device.
        quantize: whether weights are kept in NF4, or in blocks of GGUF where they are stored so.
        eight_bits: what is stored and multiplied in 8 bits; never stored where weights are kept in NF4.
        on_host: numbers of the layers whose weights stay in host memory.
        on_ranks: numbers of the layers whose weights the ranks share.
        memory: memory of all ranks; needed where a layer is shared.
        pages: page locks of host memory.

    Attributes:
        ring: owner of the streamed weights.
    """

    def __init__(
        self,
        checkpoint: WeightSource,
        known: Family,
        spec: DecoderSpec,
        slots: StackSlots,
        compute_buffer: torch.Tensor,
        *,
        quantize: bool,
        eight_bits: EightBitUse = NO_EIGHT_BITS,
        on_host: Collection[int],
        on_ranks: Collection[int] = (),
        memory: RankMemory | None = None,
        pages: PageLock,
    ) -> None:
        self._checkpoint, self._family, self._slots, self._compute_buffer = checkpoint, known, slots, compute_buffer
        self._layers = spec.layers
        self._quantize, self._device, self._dtype = quantize, compute_buffer.device, compute_buffer.dtype
        self._eight_bits, self._is_packed = eight_bits, quantize or bool(eight_bits.stored)
        self._stored_in_nf4 = quantize and any(name.endswith(NF4_SUFFIX) for name in checkpoint.names())
        self._stored_in_blocks = quantize and any(checkpoint.block_type(name) for name in checkpoint.names())
        self._scratch = self._make_scratch() if self._is_packed and not eight_bits.products else {}
        self._code_scratch = self._make_code_scratch() if eight_bits.products else {}
        self._expert_stacks = [known.expert_stacks(spec, index) for index in range(spec.num_layers)]
        self._experts = ExpertReader(
            checkpoint,
            known,
            spec,
            dtype=self._dtype,
            device=self._device,
            quantize=quantize,
            coded=eight_bits.stores_experts,
        )
        streamed = sorted({*on_host, *on_ranks})
        self._parts = {index: self._like_layer(index) for index in streamed}
        self._expert_parts = {
            index: {stack.role: self._experts.like(stack) for stack in self._expert_stacks[index]} for index in streamed
        }
        sizes = [{index: block_bytes(self._block(index)) for index in one} for one in (on_host, on_ranks)]
        self.ring = WeightRing(self._device, sizes[0], pages, sizes[1], memory)

    def layer(self, index: int) -> dict[StackName, FrozenWeight]:
        """Read the frozen weights of a layer's stacks; those of experts apart (`experts`). `finish` follows."""
        if index in self._parts:
            return self._streamed(index)
        read = self._packed if self._is_packed else self._resident
        return {name: read(self._slots[index, name], name) for name in STACK_NAMES if (index, name) in self._slots}

    def experts(self, index: int) -> dict[ExpertRole, FrozenExperts]:
        """Read the experts of a layer; empty for a dense layer."""
        if index not in self._parts:
            read = {stack.role: self._experts.read(stack) for stack in self._expert_stacks[index]}
            return {role: FrozenExperts(weight, self._expert_scales(weight)) for role, weight in read.items()}
        like, found = self._expert_parts[index], dict[ExpertRole, FrozenExperts]()
        before = sum(1 for _ in _tensors(self._parts[index].values()))
        stored_views, slot_views = (islice(views, before, None) for views in self._views(index))
        for stack in self._expert_stacks[index]:
            stored = self._experts.read(stack, into=placed_weight(like[stack.role], stored_views))
            used = placed_weight(like[stack.role], slot_views)
            found[stack.role] = FrozenExperts(used, self._expert_scales(stored))
        return found

    def _expert_scales(self, stored: ExpertWeight) -> torch.Tensor | None:
        """Return the scales of experts' codes; None where products with them are in the compute dtype."""
        return expert_scales(stored, self._device) if self._eight_bits.products else None

    def finish(self, index: int) -> None:
        """Keep what was read of a layer, before the next one is."""
        self.ring.keep(index)

    def _like_layer(self, index: int) -> dict[StackName, list[WeightPart]]:
        return {name: self._like(self._slots[index, name]) for name in STACK_NAMES if (index, name) in self._slots}

    def _block(self, index: int) -> Iterator[torch.Tensor]:
        """Yield the tensors of a streamed layer, in the order in which they lie in its block: stacks, then experts."""
        yield from _tensors(self._parts[index].values())
        for weight in self._expert_parts[index].values():
            yield from weight_tensors(weight).values()

    def _views(self, index: int) -> tuple[Iterator[torch.Tensor], Iterator[torch.Tensor]]:
        """Return a layer's tensors where they are read into, and in the slot that they are copied to."""
        stored, slot = self.ring.storage(index), self.ring.slot(index)
        return carve(stored, self._block(index)), carve(slot, self._block(index))

    def _streamed(self, index: int) -> dict[StackName, FrozenWeight]:
        like, found = self._parts[index], dict[StackName, FrozenWeight]()
        stored_views, slot_views = self._views(index)
        for name, parts in like.items():
            slot = self._slots[index, name]
            stored = [placed(part, stored_views) for part in parts]
            used = [placed(part, slot_views) for part in parts]
            if self._is_packed:
                self._read_parts(slot, stored)
                found[name] = self._packed_of(slot, name, used, stored)
            else:
                (matrix,), (place,) = stored, used
                assert isinstance(matrix, torch.Tensor)
                assert isinstance(place, torch.Tensor)
                self._fill(slot, matrix)
                found[name] = StreamedWeight(place, *self._compute_copies(slot))
        return found

    def _resident(self, slot: StackSlot, _name: StackName) -> FrozenWeight:
        matrix = self._compute_buffer[slot.offset : slot.offset + slot.elements].view(slot.shape)
        self._fill(slot, matrix)
        return ResidentWeight(matrix)

    def _fill(self, slot: StackSlot, matrix: torch.Tensor) -> None:
        """Read a stack's weights into its matrix, with zeros for the adapters."""
        matrix[:, slot.stack.K :] = 0
        matrix[slot.stack.N :] = 0
        for module in slot.modules:
            rows = matrix[module.first_row : module.first_row + module.rows, : slot.stack.K]
            self._checkpoint.read_into(self._name(module), rows)

    def _packed(self, slot: StackSlot, name: StackName) -> FrozenWeight:
        if self._eight_bits.stored:
            rows = CODE_FORMATS[self._eight_bits.stored].empty(slot.stack.N, slot.stack.K, self._device)
            self._read_codes(slot, rows)
            parts: list[WeightPart] = [rows]
        else:
            parts = [self._part(module, self._device) for module in slot.modules]
        return self._packed_of(slot, name, parts, parts)

    def _packed_of(
        self, slot: StackSlot, name: StackName, parts: list[WeightPart], stored: list[WeightPart]
    ) -> FrozenWeight:
        """Return the weight of a stack.

        Args:
            slot: the stack.
            name: name of the stack.
            parts: parts as products read them; where the layer is streamed, they may not be filled yet.
            stored: the same parts where they are filled.
        """
        a_RK, sb_NR = self._compute_copies(slot)
        if not self._eight_bits.products:
            shape = slot.shape
            matrix = self._scratch[name == "gate_up"][: shape[0] * shape[1]].view(shape)
            return QuantizedWeight(parts, a_RK, sb_NR, matrix)
        form = self._form(self._eight_bits.products, slot.modules[0])
        scratch = self._code_scratch[name == "gate_up"]
        if self._eight_bits.stored:
            (rows,) = parts
            assert isinstance(rows, CODED)
            return StoredCodedWeight(form, a_RK, sb_NR, scratch, rows)
        return Nf4CodedWeight(form, a_RK, sb_NR, scratch, parts, form.scales(stored, self._device))

    def _form(self, name: str, module: Module) -> CodeFormat:
        """Return the format of the codes of a module and of the others of its stack."""
        return code_format(name, module.stack, self._layers[module.layer].kind)

    def _compute_copies(self, slot: StackSlot) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the places of A and sB in the compute buffer, filled with zeros."""
        stack = slot.stack
        both = self._compute_buffer[slot.offset : slot.offset + slot.elements].zero_()
        return both[: stack.R * stack.K].view(stack.R, stack.K), both[stack.R * stack.K :].view(stack.N, stack.R)

    def _make_scratch(self) -> dict[bool, torch.Tensor]:
        """Allocate memory to dequantize NF4 into: one for gate and up, one for the others (down is used with both)."""
        sizes = {True: 0, False: 0}
        for (_, name), slot in self._slots.items():
            sizes[name == "gate_up"] = max(sizes[name == "gate_up"], slot.shape[0] * slot.shape[1])
        return {wide: torch.zeros(size, dtype=self._dtype, device=self._device) for wide, size in sizes.items()}

    def _make_code_scratch(self) -> dict[bool, CodeScratch]:
        """Allocate memory for codes: one for gate and up, one for the others, as `_make_scratch`."""
        sizes = {True: 0, False: 0}
        for (_, name), slot in self._slots.items():
            sizes[name == "gate_up"] = max(sizes[name == "gate_up"], slot.stack.N * slot.stack.K)
        dtype = CODE_FORMATS[self._eight_bits.products].dtype
        return {
            wide: CodeScratch(*(torch.empty(count, dtype=dtype, device=self._device) for count in counts))
            for wide, size in sizes.items()
            for counts in [(0 if self._eight_bits.stored else size, size)]
        }

    def _like(self, slot: StackSlot) -> list[WeightPart]:
        """Return the parts of a stack's weight on the meta device: each module's packed, or the whole one."""
        if self._eight_bits.stored:
            return [CODE_FORMATS[self._eight_bits.stored].empty(slot.stack.N, slot.stack.K, "meta")]
        if not self._quantize:
            return [torch.empty(slot.shape, dtype=self._dtype, device="meta")]
        found: list[WeightPart] = []
        for module in slot.modules:
            name, shape = self._name(module), (module.rows, module.columns)
            if kind := self._checkpoint.block_type(name):
                found.append(gguf_blocks.empty(shape, kind, "meta"))
            elif self._stored_in_blocks or (self._stored_in_nf4 and f"{name}{NF4_SUFFIX}" not in self._checkpoint):
                found.append(torch.empty(shape, dtype=self._dtype, device="meta"))
            else:
                double = not self._stored_in_nf4 or f"{name}.nested_absmax" in self._checkpoint
                found.append(nf4.empty(shape, double=double, device="meta"))
        return found

    def _read_parts(self, slot: StackSlot, places: list[WeightPart]) -> None:
        """Read a stack's weights into the memory given."""
        if self._eight_bits.stored:
            (rows,) = places
            assert isinstance(rows, CODED)
            self._read_codes(slot, rows)
            return
        for module, place in zip(slot.modules, places, strict=True):
            self._read_part(module, place)

    def _read_codes(self, slot: StackSlot, rows: CodedPart) -> None:
        """Read a stack's weights as codes into the memory given."""
        if isinstance(rows, EightBitRows):
            for module in slot.modules:
                own = slice(module.first_row, module.first_row + module.rows)
                found = self._coded_rows(module, rows.codes.dtype)
                rows.codes[own].copy_(found.codes)
                rows.scale[own].copy_(found.scale)
            return
        # Rows of several modules may share a scale.
        weight = torch.empty(slot.stack.N, slot.stack.K, dtype=torch.float32, device=self._device)
        for module in slot.modules:
            self._checkpoint.read_into(self._name(module), weight[module.first_row : module.first_row + module.rows])
        made = self._form(self._eight_bits.stored, slot.modules[0]).quantize(weight)
        rows.codes.copy_(made.codes)
        rows.scale.copy_(made.scale)

    def _coded_rows(self, module: Module, codes: torch.dtype) -> EightBitRows:
        """Return one module's weight in codes: as published if that is FP8 with a scale a row, else quantized here."""
        name, shape = self._name(module), (module.rows, module.columns)
        if scales := scale_name(name, self._checkpoint):
            stored = self._checkpoint.read(name)
            if stored.dtype == codes and stored.shape == shape:
                scale = row_scales_of(name, stored, self._checkpoint.read(scales))
                if scale is not None:
                    return EightBitRows(stored, scale)
        weight = torch.empty(shape, dtype=torch.float32, device=self._device)
        self._checkpoint.read_into(name, weight)
        made = self._form(self._eight_bits.stored, module).quantize(weight)
        assert isinstance(made, EightBitRows)
        return made

    def _read_part(self, module: Module, place: WeightPart) -> None:
        """Read one module's weight into the memory given. What is stored in its final form does not pass the device."""
        if isinstance(place, torch.Tensor):
            self._checkpoint.read_into(self._name(module), place)
            return
        is_stored = self._stored_in_nf4 or self._stored_in_blocks
        found = part_tensors(self._part(module, torch.device("cpu") if is_stored else self._device))
        for name, tensor in part_tensors(place).items():
            tensor.copy_(found[name])

    def _part(self, module: Module, device: torch.device) -> WeightPart:
        """Return one module's weight in NF4 or blocks, or in 16 bits where a published 4-bit checkpoint left it so."""
        name, shape = self._name(module), (module.rows, module.columns)
        if self._checkpoint.block_type(name):
            blocks = self._checkpoint.read_blocks(name)
            return replace(blocks, data=blocks.data.to(device))
        if f"{name}{NF4_SUFFIX}" in self._checkpoint:
            keys = [key for key in self._checkpoint.names() if key == name or key.startswith(f"{name}.")]
            try:
                found = nf4.from_bitsandbytes({key: self._checkpoint.read(key).to(device) for key in keys}, name)
            except ValueError as error:
                raise SetupError(f"A 4-bit weight cannot be used: {error}.", "Download the model again.") from error
            if found.shape != shape:
                raise SetupError(
                    f"The 4-bit weight {name} has the shape {list(found.shape)}; config.json says {list(shape)}.",
                    "Download the model again: config and weights are of different models.",
                )
            return found
        # What is quantized here passes through fp32, so that no stored type loses anything on the way.
        is_stored = self._stored_in_nf4 or self._stored_in_blocks
        weight = torch.empty(shape, dtype=self._dtype if is_stored else torch.float32, device=device)
        self._checkpoint.read_into(name, weight)
        return weight if is_stored else nf4.quantize(weight)

    def _name(self, module: Module) -> str:
        return f"{self._family.stored_path(module.path)}.weight"


def _tensors(stacks: Iterable[Sequence[WeightPart]]) -> Iterator[torch.Tensor]:
    """Yield the tensors of all parts of all stacks, in order."""
    for parts in stacks:
        for part in parts:
            yield from part_tensors(part).values()
