"""The products of experts that `products_choice` times: random ones, held as a run's would be, under an even router."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

from burnish_engine.advise.predict.fast_experts import ExpertStackShape, expert_stacks
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.decoder.experts.declared import scratch_elements
from burnish_engine.models.decoder.experts.expert_linear import ExpertAdapters, ExpertCodes, ExpertLinear
from burnish_engine.models.decoder.experts.expert_weights import ExpertWeight
from burnish_engine.models.families.experts import ExpertRole
from burnish_kernels.eight_bit_linear.op import CODES
from burnish_kernels.grouped_codes.op import CodedExperts, expert_scales
from burnish_kernels.moe_sort.op import sort_by_expert
from burnish_kernels.moe_sort.order import TILE_ROWS
from burnish_kernels.moe_unpack.op import Mxfp4Experts, empty_nf4
from burnish_kernels.moe_unpack.stacks import MXFP4_BLOCK
from burnish_kernels.nf4 import op as nf4

_MXFP4_EXPONENT = 120


@dataclass(frozen=True)
class TimingConditions:
    """Conditions of a timing.

    Attributes:
        storage: value of model.quantize, or "nf4" where the checkpoint is so.
        dtype: dtype of the operands.
        tokens: tokens of a product, or that pass the experts.
        device: device that is timed.
    """

    storage: str
    dtype: torch.dtype
    tokens: int
    device: torch.device

    def random(self, *shape: int) -> torch.Tensor:
        """Draw a tensor; the run's own generators stay as they are."""
        drawn = torch.Generator(self.device).manual_seed(0)
        return torch.randn(shape, generator=drawn, device=self.device, dtype=self.dtype)


def expert_maps(spec: DecoderSpec, adapter: AdapterSection) -> Counter[tuple[ExpertRole, ExpertStackShape, int]]:
    """Count the maps of experts of each shape in a model, with the number of a token's experts; none in a dense one."""
    maps = (one for layer in spec.layers for one in expert_stacks(spec, adapter, layer).items())
    return Counter((role, shape, spec.experts_per_token) for role, shape in maps)


def expert_products(
    role: ExpertRole, shape: ExpertStackShape, slots: int, given: TimingConditions, *, mxfp4: bool, coded: bool
) -> Callable[[], object]:
    """Make operands of one map of experts, and return what multiplies with them forward and backward.

    Args:
        role: map of the experts.
        shape: shape of the map.
        slots: number of a token's experts.
        given: conditions of the timing.
        mxfp4: whether they are kept in MXFP4, whatever the storage of others.
        coded: whether products are in FP8.
    """
    experts, width = shape.experts, given.dtype.itemsize
    ids = torch.arange(given.tokens * slots, device=given.device).remainder_(experts).view(-1, slots).int()
    order = sort_by_expert(ids, experts, tile_rows=TILE_ROWS)
    weight, adapters = _weight(shape, given, mxfp4=mxfp4, coded=coded), None
    if shape.rank:
        a_ERK, sb_ENR = (
            given.random(experts, shape.rank, shape.inputs), given.random(experts, shape.outputs, shape.rank)
        )  # fmt: skip
        adapters = ExpertAdapters(a_ERK, sb_ENR, 1.0)
    size = [(shape.outputs, shape.inputs)]
    if coded:
        scratch = torch.empty(scratch_elements(size, CODES.itemsize), dtype=CODES, device=given.device)
        linear = ExpertLinear(weight, adapters, codes=ExpertCodes(expert_scales(weight), scratch))
    else:
        packed = not isinstance(weight, torch.Tensor)
        room = ids.new_empty(scratch_elements(size, width), dtype=given.dtype) if packed else None
        linear = ExpertLinear(weight, adapters, scratch=room)
    first = role == "gate_up"
    x = given.random(given.tokens if first else order.positions, shape.inputs)
    dy = given.random(order.positions if first else given.tokens, shape.outputs)

    def run() -> None:
        linear.forward(x, order, by_token=first)
        linear.input_gradient(dy, order, by_token=not first)

    return run


def _weight(shape: ExpertStackShape, given: TimingConditions, *, mxfp4: bool, coded: bool) -> ExpertWeight:
    """Make experts that are all alike but in 16 bits, as they would be held."""
    experts, rows, columns = shape.experts, shape.outputs, shape.inputs
    if mxfp4:
        blocks = torch.empty(experts, rows, columns // MXFP4_BLOCK, MXFP4_BLOCK // 2, dtype=torch.uint8)
        blocks = blocks.to(given.device).random_(0, 256)
        return Mxfp4Experts(blocks, torch.full_like(blocks[..., 0], _MXFP4_EXPONENT))
    if given.storage != "nf4" and coded:
        scale = torch.ones(experts, device=given.device)
        return CodedExperts(given.random(experts, rows, columns).to(CODES), scale)
    if given.storage != "nf4":
        return given.random(experts, rows, columns)
    made = empty_nf4(experts, (rows, columns), double=True, device=given.device)
    one = nf4.quantize(given.random(rows, columns).float())
    for expert in range(experts):
        made.put(expert, one)
    return made
