"""Gated attention while text is generated: attention's cache, and the gate behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from typing_extensions import override

from burnish_engine.models.decoder.mixers.attention.cache import AttentionCache
from burnish_engine.models.decoder.mixers.attention.paged_cache import PagedAttentionCache
from burnish_engine.models.decoder.mixers.gated_attention.mixer import GatedAttentionMixer
from burnish_engine.models.decoder.mixers.mixer import Mixer, MixerCache, MixFunction, PackedPrompts, PromptChunk


@dataclass(frozen=True)
class GatedAttentionCache(MixerCache):
    """Keys and values of all layers with gated attention, of rows that grow together."""

    attention: AttentionCache

    @override
    def reading(self, prompts: PackedPrompts) -> MixFunction:
        return _Gated(self.attention.reading(prompts))

    @override
    def growing(self) -> MixFunction:
        return _Gated(self.attention.growing())

    @override
    def keep(self, rows: Sequence[int]) -> None:
        self.attention.keep(rows)


@dataclass(frozen=True)
class GatedSlotCache(PagedAttentionCache):
    """Keys and values of all layers with gated attention, of slots."""

    @override
    def reading(self, prompts: PackedPrompts) -> MixFunction:
        return _Gated(super().reading(prompts))

    @override
    def continuing(self, chunk: PromptChunk) -> MixFunction:
        return _Gated(super().continuing(chunk))

    @override
    def growing(self) -> MixFunction:
        return _Gated(super().growing())


@dataclass(frozen=True)
class _Gated(MixFunction):
    """An attention function with the gate behind it."""

    attend: MixFunction

    @override
    def __call__(self, mixer: Mixer, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor) -> None:
        assert isinstance(mixer, GatedAttentionMixer)
        *attended, gate_TNG = inputs
        self.attend(mixer.attention, tuple(attended), out_TK)
        mixer.scale(out_TK, gate_TNG, out_TK)
