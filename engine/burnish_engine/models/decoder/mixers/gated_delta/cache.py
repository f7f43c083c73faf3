"""Gated delta nets while text is generated: a row's states, and the inputs of its convolution's last tokens, are kept.

Shapes as in `gated_delta.mixer`, and B rows (replies), R prompts, P = L - 1 earlier tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.mixers.gated_delta.mixer import GatedDeltaMixer, ProjectedParts
from burnish_engine.models.decoder.mixers.mixer import (
    Mixer,
    MixerCache,
    MixFunction,
    PackedPrompts,
    PromptChunk,
    SlotCache,
)
from burnish_kernels.conv_silu import op as conv_silu
from burnish_kernels.delta_rule import op as delta_rule
from burnish_kernels.gated_norm import op as gated_norm


class DeltaMemory(NamedTuple):
    """Memory of one layer, of every row.

    Attributes:
        earlier_BPX: inputs of the convolution, the newest last; zeros before a row's first token.
        state_BVDE: states, in at least fp32; zeros before a row's first token.
    """

    earlier_BPX: torch.Tensor
    state_BVDE: torch.Tensor


@dataclass(frozen=True)
class GatedDeltaCache(MixerCache, SlotCache):
    """The memory of all layers with gated delta nets, of rows that grow together or of slots.

    Attributes:
        rows: number of rows.
        memory: memory of each layer.
    """

    rows: int
    memory: dict[int, DeltaMemory] = field(default_factory=dict)

    @override
    def reading(self, prompts: PackedPrompts) -> MixFunction:
        return _Storing(self, prompts)

    @override
    def continuing(self, chunk: PromptChunk) -> None:
        return None

    @override
    def growing(self) -> MixFunction:
        return _Continuing(self)

    @override
    def keep(self, rows: Sequence[int]) -> None:
        for layer, memory in self.memory.items():
            kept = torch.tensor(list(rows), device=memory.state_BVDE.device)
            self.memory[layer] = DeltaMemory(*(tensor[kept] for tensor in memory))

    @override
    def copy(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        for memory in self.memory.values():
            for tensor in memory:
                tensor[targets] = tensor[sources]

    def of_layer(self, mixer: GatedDeltaMixer, like: torch.Tensor) -> DeltaMemory:
        """Return a layer's memory; zeros the first time."""
        if mixer.index not in self.memory:
            s, taps = mixer.sizes, mixer.weight_XL.shape[1]
            self.memory[mixer.index] = DeltaMemory(
                like.new_zeros(self.rows, taps - 1, s.width),
                mixer.a_log_V.new_zeros(self.rows, s.value_heads, s.key_size, s.value_size),
            )
        return self.memory[mixer.index]


def row_bytes(spec: DecoderSpec, dtype: torch.dtype) -> int:
    """Return the bytes that the gated delta nets of a model remember of a row."""
    delta, layers = spec.delta, sum(layer.kind == "gated_delta" for layer in spec.layers)
    if delta is None:
        return 0
    states = delta.state * torch.promote_types(dtype, torch.float32).itemsize
    return layers * (states + (spec.conv_width - 1) * delta.convolved * dtype.itemsize)


@dataclass(frozen=True)
class _Storing(MixFunction):
    """Mixing of packed prompts that also stores their states and last inputs."""

    cache: GatedDeltaCache
    prompts: PackedPrompts

    @override
    def __call__(self, mixer: Mixer, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor) -> None:
        assert isinstance(mixer, GatedDeltaMixer)
        found, start_T = ProjectedParts(*inputs), self.prompts.documents.start_T
        memory, device = self.cache.of_layer(mixer, out_TK), out_TK.device
        rows, firsts, ends = (
            torch.tensor(list(some), device=device)
            for some in (self.prompts.rows, self.prompts.edges[:-1], self.prompts.edges[1:])
        )
        state_RVDE = memory.state_BVDE.new_empty(len(rows), *memory.state_BVDE.shape[1:])
        read_TJ = delta_rule.forward(
            conv_silu.forward(found.qkv_TX, mixer.weight_XL, start_T),
            found.b_TV,
            found.a_TV,
            mixer.a_log_V,
            mixer.dt_bias_V,
            start_T,
            mixer.sizes,
            last_R=(ends - 1).int(),
            states_RVDE=state_RVDE,
        )
        gated_norm.forward(read_TJ, found.z_TJ, mixer.norm_E, eps=mixer.eps, out=out_TK)
        memory.state_BVDE[rows] = state_RVDE
        token_RP = ends[:, None] - torch.arange(memory.earlier_BPX.shape[1], 0, -1, device=device)
        earlier_RPX = found.qkv_TX[token_RP.clamp_min(0)]
        memory.earlier_BPX[rows] = earlier_RPX.masked_fill((token_RP < firsts[:, None])[..., None], 0.0)


@dataclass(frozen=True)
class _Continuing(MixFunction):
    """Mixing of each row's newest token with what is remembered of the row."""

    cache: GatedDeltaCache

    @override
    def __call__(self, mixer: Mixer, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor) -> None:
        assert isinstance(mixer, GatedDeltaMixer)
        found, count = ProjectedParts(*inputs), len(out_TK)
        memory = self.cache.of_layer(mixer, out_TK)
        read_BJ = delta_rule.step(
            conv_silu.step(found.qkv_TX, memory.earlier_BPX[:count], mixer.weight_XL),
            found.b_TV,
            found.a_TV,
            mixer.a_log_V,
            mixer.dt_bias_V,
            memory.state_BVDE[:count],
            mixer.sizes,
        )
        gated_norm.forward(read_BJ, found.z_TJ, mixer.norm_E, eps=mixer.eps, out=out_TK)
