"""Compute the trained model's experts a second time, independently of the writer, one matrix in memory at a time.

A fault in `weights.experts` must not hide itself: where the files hold which matrix, how MXFP4 is decoded, and which
part of PEFT's factors belongs to an expert (peft/tuners/lora/layer.py, `ParamWrapper`) is worked out here anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import torch

from burnish_engine.contract.facts.facts import ExpertSpec
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.export.weights.nf4_merge import round_trip

_ALONE: Final = re.compile(r"(model|mtp)\.layers\.(\d+)\.\w+\.experts\.(\d+)\.(\w+)\.weight")
_TOGETHER: Final = re.compile(
    r"(model|mtp)\.layers\.(\d+)\.(?:\w+\.)?experts\.(gate_up|down)_proj(_bias|_blocks|_scales|)"
)
_GRANITE: Final = re.compile(r"model\.layers\.(\d+)\.block_sparse_moe\.(input|output)_linear\.weight")
"""Stacks of the mixtures of Granite 3, by the names that its files give them."""
_WRAPPER: Final = re.compile(r"(model\.layers\.(\d+)\..*experts)(\.base_layer)*\.weight")
_KINDS: Final = {"gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "down_proj": "down", "w2": "down"}
"""Name of an expert's matrix in files to what it is."""
_PARTS: Final = {"gate_up": ("gate", "up"), "down": ("down",)}
_MAGNITUDES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # values of MXFP4's codes without their sign bit

Factors = Mapping[str, torch.Tensor]
"""Tensors of an adapter that belong to one wrapper, by part: lora_A and lora_B."""


@dataclass(frozen=True)
class ExpectedStack:
    """A tensor that a file must hold for all experts of a layer."""

    matrices: dict[int, Callable[[], torch.Tensor]] = field(default_factory=dict)
    """Functions that read the matrix of each expert [out, in], or its bias [out], in fp32."""
    is_changed: bool = False  # whether an adapter changes it
    in_mxfp4: bool = False  # whether the checkpoint stores it in MXFP4


class TrainedExperts:
    """Read experts of the trained model on demand.

    Args:
        base: base model without an adapter.
        experts: specification of the experts; None of a dense model.
        updates: tensors of the adapter, by the name of their wrapper with `.weight` behind it.
        scale: function from the name of a stack in transformers' model to the factor on B·A.
    """

    def __init__(
        self,
        base: MergedWeights,
        experts: ExpertSpec | None,
        updates: Mapping[str, Factors],
        scale: Callable[[str], float],
    ) -> None:
        self._base = base
        self._oss = base.source.config.get("model_type") == "gpt_oss"
        self._updates: dict[tuple[int, str], tuple[Factors, float]] = {}
        for name, factors in updates.items():
            if (found := _WRAPPER.fullmatch(name)) and experts is not None:
                hidden = base.shape("model.embed_tokens.weight")[1]
                is_down = (len(factors["lora_B"]), factors["lora_A"].shape[1]) == (hidden, experts.size)
                stack = "down" if is_down else "gate_up"
                self._updates[int(found[2]), stack] = factors, scale(f"{found[1]}.{stack}_proj")
        self._count = experts.count if experts is not None else 0

    def is_expert(self, name: str) -> bool:
        """Whether a tensor of the files holds matrices or biases of experts."""
        return self._count > 0 and any(form.fullmatch(name) for form in (_ALONE, _TOGETHER, _GRANITE))

    def expected(self) -> dict[str, ExpectedStack]:
        """List the tensors of all experts by GGUF name, without reading them."""
        found: dict[str, ExpectedStack] = {}
        for name in (*self._base.names, *self._base.others) if self._count else ():
            if alone := _ALONE.fullmatch(name):
                layer, expert, kind = self._layer(alone), int(alone[3]), _KINDS[alone[4]]
                stack = found.setdefault(f"blk.{layer}.ffn_{kind}_exps.weight", self._empty(layer, kind))
                stack.matrices[expert] = partial(self._from_matrix, name, layer, kind, expert)
            elif together := _TOGETHER.fullmatch(name):
                found |= self._together(name, self._layer(together), together[3], together[4])
            elif granite := _GRANITE.fullmatch(name):
                stack_name = {"input": "gate_up", "output": "down"}[granite[2]]
                found |= self._together(name, int(granite[1]), stack_name, "")
        return found

    def _layer(self, match: re.Match[str]) -> int:
        """The number of the block in a file, where layers for multi-token prediction come behind the model's own."""
        spec = self._base.source.spec
        return int(match[2]) + (spec.num_layers if spec is not None and match[1] == "mtp" else 0)

    def _empty(self, layer: int, kind: str, *, in_mxfp4: bool = False) -> ExpectedStack:
        return ExpectedStack({}, (layer, "down" if kind == "down" else "gate_up") in self._updates, in_mxfp4)

    def _together(self, name: str, layer: int, stack: str, ending: str) -> dict[str, ExpectedStack]:
        """List what one tensor, or a pair in MXFP4, holds."""
        found = {}
        for kind in _PARTS[stack] if ending != "_scales" else ():
            if ending == "_bias":
                made = ExpectedStack()
                read: Callable[..., torch.Tensor] = self._bias
            else:
                made = self._empty(layer, kind, in_mxfp4=ending == "_blocks")
                read = self._from_stack
            made.matrices.update({expert: partial(read, name, layer, kind, expert) for expert in range(self._count)})
            found[f"blk.{layer}.ffn_{kind}_exps.{'bias' if ending == '_bias' else 'weight'}"] = made
        return found

    def _from_matrix(self, name: str, layer: int, kind: str, expert: int) -> torch.Tensor:
        return self._with_update(self._base.load(name), layer, kind, expert)

    def _bias(self, name: str, _layer: int, kind: str, expert: int) -> torch.Tensor:
        return self._part(self._base.load_slice(name, expert).float(), kind)

    def _from_stack(self, name: str, layer: int, kind: str, expert: int) -> torch.Tensor:
        held = self._base.load_slice(name, expert)
        if name.endswith("_blocks"):
            exponents = self._base.load_slice(name.replace("_blocks", "_scales"), expert)
            matrix = _decoded(held, exponents)
        else:
            matrix = held.float().T if self._oss else held.float()
        if self._base.is_rounded(name):
            matrix = round_trip(matrix.contiguous())
        return self._with_update(self._part(matrix, kind), layer, kind, expert)

    def _part(self, rows: torch.Tensor, kind: str) -> torch.Tensor:
        """Return the rows of one matrix in a stack; gpt-oss has gates and ups in turns, others one after the other."""
        if kind == "down":
            return rows
        place = ("gate", "up").index(kind)
        return rows[place::2] if self._oss else rows.chunk(2)[place]

    def _with_update(self, matrix: torch.Tensor, layer: int, kind: str, expert: int) -> torch.Tensor:
        factors, scale = self._updates.get((layer, "down" if kind == "down" else "gate_up"), (None, 0.0))
        if factors is None:
            return matrix
        a = factors["lora_A"].unflatten(0, (self._count, -1))
        b = factors["lora_B"].unflatten(1, (-1, self._count))
        return matrix + scale * self._part(b[:, :, expert] @ a[expert], kind)


def _decoded(blocks: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """Decode MXFP4: each byte holds two codes of a sign and a magnitude, the first in its low bits."""
    numbers = torch.tensor([(-1.0 if code & 8 else 1.0) * _MAGNITUDES[code & 7] for code in range(16)]).double()
    pairs = torch.stack([numbers[(blocks & 15).long()], numbers[(blocks >> 4).long()]], dim=-1)
    factors = torch.exp2(exponents.double() - 127)
    return (pairs.flatten(-2) * factors[..., None]).flatten(-2).float()
