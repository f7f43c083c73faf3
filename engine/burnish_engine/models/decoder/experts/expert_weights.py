"""Read the frozen weights of experts, one expert after another, into the stacks that products read.

Beside a stack, only one expert's weights exist on the host, and one more on the device where they are quantized or
transposed on the way.

Shapes: E experts, N rows and K columns of one expert's weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.weight_source import WeightSource
from burnish_engine.models.families import Family
from burnish_engine.models.families.experts import ExpertStack, StoredExperts
from burnish_kernels.grouped_codes.op import CodedExperts, ExpertWeight, empty_codes, expert_scales, unpack_codes
from burnish_kernels.moe_unpack.op import Mxfp4Experts, Nf4Experts, empty_nf4
from burnish_kernels.nf4 import op as nf4

_NAN_SCALE = 255  # OCP Microscaling Formats specification 1.0, section 5.4.1


@dataclass(frozen=True)
class FrozenExperts:
    """The frozen weights of one map of a layer's experts.

    Attributes:
        weight: weights as products read them; of a streamed layer, views of its slot.
        scale_E: scale of each expert's codes, fp32 on the device, where products are in FP8.
    """

    weight: ExpertWeight
    scale_E: torch.Tensor | None = None


class ExpertReader:
    """Reads stacks of experts.

    Args:
        checkpoint: source of the weights.
        known: family of the model.
        spec: specification of the model.
        dtype: dtype of weights that are not packed.
        device: device that the model computes on.
        quantize: whether weights stored in floating point are kept in NF4. MXFP4 stays as it is.
        coded: whether they are kept as FP8 codes instead.
    """

    def __init__(
        self,
        checkpoint: WeightSource,
        known: Family,
        spec: DecoderSpec,
        *,
        dtype: torch.dtype,
        device: torch.device,
        quantize: bool,
        coded: bool = False,
    ) -> None:
        self._checkpoint, self._family, self._spec = checkpoint, known, spec
        self._dtype, self._device, self._quantize, self._coded = dtype, device, quantize, coded

    def like(self, stack: ExpertStack) -> ExpertWeight:
        """Return a stack of the form that `read` fills, on the meta device."""
        return self._empty(stack, self._stored(stack), torch.device("meta"))

    def read(self, stack: ExpertStack, into: ExpertWeight | None = None) -> ExpertWeight:
        """Read the weights of a stack.

        Args:
            stack: stack to read.
            into: stack to fill, on any device; None: it is allocated on the device.

        Raises:
            SetupError: The weights cannot be read.
        """
        stored = self._stored(stack)
        weight = self._empty(stack, stored, self._device) if into is None else into
        if isinstance(weight, Mxfp4Experts):
            self._read_mxfp4(weight, stored)
        elif isinstance(weight, (Nf4Experts, CodedExperts)):
            one = torch.empty((stack.rows, stack.columns), dtype=torch.float32, device=self._device)
            for expert in range(stack.experts):
                self._read_expert(stack, stored, expert, one)
                if isinstance(weight, Nf4Experts):
                    weight.put(expert, nf4.quantize(one))
                    continue
                scale = expert_scales(one[None])
                weight.codes[expert].copy_(unpack_codes(one[None], scale, 0, 1)[0])
                weight.scale[expert].copy_(scale[0])
        else:
            for expert in range(stack.experts):
                self._read_expert(stack, stored, expert, weight[expert])
        return weight

    def _stored(self, stack: ExpertStack) -> StoredExperts:
        return self._family.stored_experts(self._spec, stack, self._checkpoint)

    def _empty(self, stack: ExpertStack, stored: StoredExperts, device: torch.device) -> ExpertWeight:
        if stored.form == "mxfp4":
            return Mxfp4Experts(*(torch.empty(s, dtype=torch.uint8, device=device) for s in stored.tensors.values()))
        if self._quantize:
            return empty_nf4(stack.experts, (stack.rows, stack.columns), double=True, device=device)
        if self._coded:
            return empty_codes(stack.experts, (stack.rows, stack.columns), device)
        return torch.empty((stack.experts, stack.rows, stack.columns), dtype=self._dtype, device=device)

    def _read_expert(self, stack: ExpertStack, stored: StoredExperts, expert: int, place: torch.Tensor) -> None:
        """Fill a matrix `[N, K]` with the weights of one expert."""
        if stored.form == "each":
            parts = len(stored.tensors) // stack.experts
            names = list(stored.tensors)[expert * parts : (expert + 1) * parts]
            for name, rows in zip(names, place.chunk(parts), strict=True):
                self._checkpoint.read_into(name, rows)
            return
        (name,) = stored.tensors
        one = slice(expert, expert + 1)
        if stored.form == "stack":
            self._checkpoint.read_into(name, place[None], one)
            return
        turned = torch.empty((1, stack.columns, stack.rows), dtype=place.dtype, device=self._device)
        self._checkpoint.read_into(name, turned, one)
        place.copy_(turned[0].T)

    def _read_mxfp4(self, weight: Mxfp4Experts, stored: StoredExperts) -> None:
        for name, place in zip(stored.tensors, (weight.blocks, weight.scales), strict=True):
            for expert in range(weight.experts):
                self._checkpoint.read_into(name, place[expert : expert + 1], slice(expert, expert + 1))
        if (weight.scales == _NAN_SCALE).any():
            raise SetupError(
                f"The weights {next(iter(stored.tensors))} hold a scale that is no number.", "Download the model again."
            )


def weight_tensors(weight: ExpertWeight) -> dict[str, torch.Tensor]:
    """Return the tensors of a stack by field; a plain tensor as "weight"."""
    if isinstance(weight, torch.Tensor):
        return {"weight": weight}
    found = {field.name: getattr(weight, field.name) for field in fields(weight)}
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def placed_weight(weight: ExpertWeight, views: Iterator[torch.Tensor]) -> ExpertWeight:
    """Return a stack of the same form whose tensors are the next views."""
    if isinstance(weight, torch.Tensor):
        return next(views)
    return replace(weight, **{name: next(views) for name in weight_tensors(weight)})
