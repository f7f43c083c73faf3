"""Build the experts of a decoder's layers: frozen stacks, adapters in the compute buffer, router and biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from burnish_engine.contract.facts.facts import ExpertSpec
from burnish_engine.models.decoder.experts.adapted_experts import AdaptedExperts
from burnish_engine.models.decoder.experts.declared import ExpertSizes, scratch_elements
from burnish_engine.models.decoder.experts.expert_linear import ExpertAdapters, ExpertCodes, ExpertLinear, storage_of
from burnish_engine.models.decoder.experts.expert_weights import FrozenExperts
from burnish_engine.models.decoder.layer_types import ExpertWeights, Tensors
from burnish_engine.models.families.experts import NORMED_ROLES, ExpertRole
from burnish_kernels.adamw.layout import Segment
from burnish_kernels.eight_bit_linear.op import CODES
from burnish_kernels.grouped_linear.tiles import unpacking_pays
from burnish_kernels.moe_act.activation import ExpertActivation
from burnish_kernels.moe_route.router import Router
from burnish_kernels.moe_unpack.stacks import Mxfp4Experts, Nf4Experts


@dataclass
class ExpertSlot:
    """The adapters of one stack of experts, and their place in the compute buffer: A, and after it sB.

    Attributes:
        adapted: stack with adapters.
        offset: element of the compute buffer where A starts.
    """

    adapted: AdaptedExperts
    offset: int = 0

    @property
    def elements(self) -> int:
        """Number of elements in the compute buffer."""
        stack = self.adapted.stack
        return stack.experts * self.adapted.rank * (stack.rows + stack.columns)

    @property
    def segments(self) -> tuple[Segment, Segment]:
        """The segments of A and B in the flat buffer, a row for each expert: as wide as can be, for their kernel."""
        stack, rank = self.adapted.stack, self.adapted.rank
        a, b = rank * stack.columns, rank * stack.rows
        b_offset = self.offset + stack.experts * a
        return (
            Segment(stack.experts, a, self.offset, a),
            Segment(stack.experts, b, b_offset, b, self.adapted.scale),
        )

    def adapters(self, compute_buffer: torch.Tensor) -> ExpertAdapters:
        """Return the compute copies, filled with zeros."""
        stack, rank = self.adapted.stack, self.adapted.rank
        both = compute_buffer[self.offset : self.offset + self.elements].zero_()
        a, b = both.split((stack.experts * rank * stack.columns, stack.experts * stack.rows * rank))
        a_ERK, sb_ENR = a.view(stack.experts, rank, stack.columns), b.view(stack.experts, stack.rows, rank)
        return ExpertAdapters(a_ERK, sb_ENR, self.adapted.scale)


ExpertSlots = Mapping[tuple[int, ExpertRole], ExpertSlot]
"""Adapters of stacks of experts by layer and role."""


class ExpertBuilder:
    """Builds the experts of all layers of a decoder.

    Args:
        spec: experts of the model.
        slots: places of their adapters.
        compute_buffer: tensor in the compute dtype that holds every compute copy.
        tokens: most tokens of a pass.
    """

    def __init__(self, spec: ExpertSpec, slots: ExpertSlots, compute_buffer: torch.Tensor, tokens: int) -> None:
        self._spec, self._slots, self._compute_buffer = spec, slots, compute_buffer
        self._rows = tokens * spec.slots / spec.count
        self._router = Router(spec.router, spec.slots, normalize=spec.normalize, scale=spec.scale, rounded=spec.rounded)
        self._activation = ExpertActivation(
            spec.activation, interleaved=spec.layout == "interleaved", alpha=spec.alpha, limit=spec.limit
        )
        self._scratch: torch.Tensor | None = None

    def layer(self, index: int, frozen: Mapping[ExpertRole, FrozenExperts], vectors: Tensors) -> ExpertWeights:
        """Build the experts of a layer.

        Args:
            index: number of the layer.
            frozen: frozen weights of its stacks.
            vectors: its router and biases by role.
        """
        self._make_scratch(frozen)
        gate_up, down = (self._linear(index, role, frozen[role], vectors) for role in ("gate_up", "down"))
        return ExpertWeights(
            self._router,
            self._activation,
            gate_up,
            down,
            vectors["router_weight"],
            vectors.get("router_bias"),
            vectors.get("selection_bias"),
            vectors.get("shared_gate"),
            {role: vectors[role] for role in NORMED_ROLES if role in vectors},
        )

    def sizes(self, weights: ExpertWeights) -> ExpertSizes:
        """Return the sizes that a layer's tensors are declared by."""
        spec = self._spec
        return ExpertSizes(spec.count, spec.slots, spec.size, weights.gate_up.rank, weights.down.rank)

    def _linear(self, index: int, role: ExpertRole, frozen: FrozenExperts, vectors: Tensors) -> ExpertLinear:
        slot = self._slots.get((index, role))
        adapters, bias_EN = None if slot is None else slot.adapters(self._compute_buffer), vectors.get(f"{role}_bias")
        if frozen.scale_E is None:
            return ExpertLinear(frozen.weight, adapters, bias_EN, self._scratch)
        return ExpertLinear(frozen.weight, adapters, bias_EN, codes=ExpertCodes(frozen.scale_E, self._scratch))

    def _make_scratch(self, frozen: Mapping[ExpertRole, FrozenExperts]) -> None:
        """Allocate the memory that experts are unpacked into, once for all layers, where they are or that may pay."""
        device = self._compute_buffer.device
        if self._scratch is not None or device.type == "cpu":
            return
        if any(one.scale_E is not None for one in frozen.values()):
            shapes = [(one.weight.shape[-2], one.weight.shape[-1]) for one in frozen.values()]
            self._scratch = torch.empty(scratch_elements(shapes, CODES.itemsize), dtype=CODES, device=device)
            return
        packed = [one.weight for one in frozen.values() if isinstance(one.weight, (Nf4Experts, Mxfp4Experts))]
        if not packed:
            return
        if unpacking_pays(storage_of(packed[0]), self._rows, device):
            numbers = scratch_elements([weight.shape for weight in packed], self._compute_buffer.element_size())
            self._scratch = self._compute_buffer.new_empty(numbers)


def expert_slots(adapted: tuple[AdaptedExperts, ...]) -> dict[tuple[int, ExpertRole], ExpertSlot]:
    """Return a place for the adapters of each stack; offsets are still to be set."""
    return {(one.stack.layer, one.stack.role): ExpertSlot(one) for one in adapted}
