"""The caches of all mixers while text is generated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.mixers.attention.cache import AttentionCache
from burnish_engine.models.decoder.mixers.attention.kv_cache import KVCache
from burnish_engine.models.decoder.mixers.attention.paged_cache import PagedAttentionCache, PagedKeys, PageTable
from burnish_engine.models.decoder.mixers.gated_attention.cache import GatedAttentionCache, GatedSlotCache
from burnish_engine.models.decoder.mixers.gated_delta.cache import GatedDeltaCache
from burnish_engine.models.decoder.mixers.mixer import MixerCache, MixFunctions, PackedPrompts, PromptChunk, SlotCache
from burnish_engine.models.decoder.mixers.short_conv.cache import ShortConvCache


@dataclass(frozen=True)
class CacheSize:
    """The room that a cache has to have.

    Attributes:
        spec: specification of the decoder.
        layers: numbers of the layers that use it.
        lengths: number of tokens of each row.
        reserve: number of tokens that each row may grow by.
        dtype: dtype of the model.
        device: device of the model.
    """

    spec: DecoderSpec
    layers: Sequence[int]
    lengths: Sequence[int]
    reserve: int
    dtype: torch.dtype
    device: torch.device


def _attention(size: CacheSize) -> AttentionCache:
    return AttentionCache(KVCache(size.spec, size.lengths, size.reserve, size.dtype, size.device, size.layers))


def _gated_attention(size: CacheSize) -> MixerCache:
    return GatedAttentionCache(_attention(size))


_CACHES: dict[str, Callable[[CacheSize], MixerCache]] = {
    "attention": _attention, "gated_attention": _gated_attention, "value_norm_attention": _attention
}  # fmt: skip
"""Caches that grow with the rows."""
_SLOT_CACHES: dict[str, Callable[[PagedKeys], SlotCache]] = {
    "attention": PagedAttentionCache, "gated_attention": GatedSlotCache, "value_norm_attention": PagedAttentionCache
}  # fmt: skip
"""The same for slots, over pages."""
_FIXED: dict[str, Callable[[int], ShortConvCache | GatedDeltaCache]] = {
    "short_conv": ShortConvCache, "gated_delta": GatedDeltaCache
}  # fmt: skip
"""Caches that have as much memory for each row whatever its length, from the number of rows or slots."""


def _own_keys(decoder: Decoder, name: str) -> list[int]:
    """List the layers with one kind of mixer, but for those that use what another layer remembers."""
    numbers = (layer.mixer.index for layer in decoder.layers if layer.mixer.name == name)
    return [number for number in numbers if decoder.spec.keys_layer(number) == number]


class MixerCaches:
    """The caches of all layers of a decoder, for replies that grow together.

    Args:
        decoder: decoder that makes the replies.
        lengths: number of tokens of each row.
        reserve: number of tokens that each row may grow by.
    """

    def __init__(self, decoder: Decoder, lengths: Sequence[int], reserve: int) -> None:
        self._caches: dict[str, MixerCache] = {}
        for name in dict.fromkeys(layer.mixer.name for layer in decoder.layers):
            layers = _own_keys(decoder, name)
            size = CacheSize(decoder.spec, layers, lengths, reserve, decoder.dtype, decoder.device)
            self._caches[name] = _FIXED[name](len(lengths)) if name in _FIXED else _CACHES[name](size)

    def reading(self, prompts: PackedPrompts) -> MixFunctions:
        """Return how prompts are mixed and remembered."""
        return {name: cache.reading(prompts) for name, cache in self._caches.items()}

    def growing(self) -> MixFunctions:
        """Make room for one more token of every row; return how these tokens are mixed and remembered."""
        return {name: cache.growing() for name, cache in self._caches.items()}

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows except these."""
        for cache in self._caches.values():
            cache.keep(rows)


class SlotCaches:
    """The caches of all layers of a decoder, for replies that come and go.

    Args:
        decoder: decoder that makes the replies.
        pages: number of pages.
        table: pages of each slot.
    """

    def __init__(self, decoder: Decoder, pages: int, table: PageTable) -> None:
        self._caches: dict[str, SlotCache] = {}
        self._keys: list[PagedKeys] = []
        for name in dict.fromkeys(layer.mixer.name for layer in decoder.layers):
            layers = _own_keys(decoder, name)
            if name in _FIXED:
                self._caches[name] = _FIXED[name](len(table.length_S))
                continue
            keys = PagedKeys(decoder.spec, layers, pages, table, decoder.dtype)
            self._keys.append(keys)
            self._caches[name] = _SLOT_CACHES[name](keys)

    def reading(self, prompts: PackedPrompts) -> MixFunctions:
        """Return how prompts are mixed and remembered; their rows are slots."""
        return {name: cache.reading(prompts) for name, cache in self._caches.items()}

    def continuing(self, chunk: PromptChunk) -> MixFunctions | None:
        """Return how a chunk of a prompt is mixed and remembered; None: this decoder reads prompts whole."""
        found = {name: cache.continuing(chunk) for name, cache in self._caches.items()}
        mixing = {name: mix for name, mix in found.items() if mix is not None}
        return mixing if len(mixing) == len(found) else None

    def growing(self) -> MixFunctions:
        """Return how the newest tokens of the first slots are mixed and remembered."""
        return {name: cache.growing() for name, cache in self._caches.items()}

    def copy(self, sources: Sequence[int], targets: Sequence[int], device: torch.device) -> None:
        """Let slots remember what others do, but for their pages."""
        for cache in self._caches.values():
            cache.copy(torch.tensor(sources, device=device), torch.tensor(targets, device=device))

    def copy_pages(self, sources: Sequence[int], targets: Sequence[int], device: torch.device) -> None:
        """Copy pages of all layers."""
        for keys in self._keys:
            keys.copy_pages(torch.tensor(sources, device=device), torch.tensor(targets, device=device))
