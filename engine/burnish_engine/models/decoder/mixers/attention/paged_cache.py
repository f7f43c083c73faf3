"""Keys and values of replies in pages, which slots find in a table: `burnish_kernels.paged_attention` reads them.

Shapes: S slots, P pages, M key and value heads, L tokens of a page, D head dimension, T tokens of packed prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from typing_extensions import override

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.decoder.mixers.attention.cache import StoringAttention, attend_on_cpu
from burnish_engine.models.decoder.mixers.attention.mixer import AttentionMixer
from burnish_engine.models.decoder.mixers.mixer import Mixer, MixFunction, PackedPrompts, PromptChunk, SlotCache
from burnish_kernels.attention import op as attention
from burnish_kernels.attention.documents import Documents
from burnish_kernels.dispatch import use_kernels
from burnish_kernels.paged_attention import op as paged_attention
from burnish_kernels.paged_attention.op import PAGE


@dataclass(frozen=True)
class PageTable:
    """The pages of each slot, the same for all layers.

    Attributes:
        table_SP: int32 number of each page, in the order of the slot's tokens.
        length_S: int32 tokens of each slot, the newest included; 0: it rests.
        split: number of programs that share the keys of a slot; None: chosen by the number of slots and pages.
    """

    table_SP: torch.Tensor
    length_S: torch.Tensor
    split: int | None = None


class PagedKeys:
    """The pages of some layers.

    Args:
        spec: specification of the decoder.
        layers: numbers of the layers.
        pages: number of pages; page 0 takes what no slot wants.
        table: pages of each slot.
        dtype: dtype of the model.
    """

    def __init__(
        self, spec: DecoderSpec, layers: Sequence[int], pages: int, table: PageTable, dtype: torch.dtype
    ) -> None:
        self.table, device = table, table.table_SP.device
        self.of_layer = {}
        for layer in layers:
            own = spec.of_layer(spec.layers[layer])
            shape = (pages, own.num_kv_heads, PAGE, own.head_dim)
            self.of_layer[layer] = (
                torch.empty(shape, dtype=dtype, device=device), torch.empty(shape, dtype=dtype, device=device)
            )  # fmt: skip

    def write(
        self, layer: int, k_TMD: torch.Tensor, v_TMD: torch.Tensor, *, page_T: torch.Tensor, place_T: torch.Tensor
    ) -> None:
        """Write tokens of a layer.

        Args:
            layer: number of the layer.
            k_TMD: keys, rotated.
            v_TMD: values.
            page_T: page of each token.
            place_T: place of each token in its page.
        """
        for pool_PMLD, new_TMD in zip(self.of_layer[layer], (k_TMD, v_TMD), strict=True):
            pool_PMLD[page_T, :, place_T] = new_TMD

    def copy_pages(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy pages, given int64 numbers of both."""
        for pools in self.of_layer.values():
            for pool_PMLD in pools:
                pool_PMLD[targets] = pool_PMLD[sources]


@dataclass(frozen=True)
class PagedAttentionCache(SlotCache):
    """Keys and values of all attention layers. Whoever gives a slot its pages also copies them."""

    keys: PagedKeys

    @override
    def reading(self, prompts: PackedPrompts) -> MixFunction:
        position_T = prompts.position_T
        page_T = self.keys.table.table_SP[prompts.row_T, position_T // PAGE].long()
        return StoringAttention(prompts, partial(self.keys.write, page_T=page_T, place_T=position_T % PAGE))

    @override
    def continuing(self, chunk: PromptChunk) -> MixFunction:
        return ChunkAttention(self.keys, chunk)

    @override
    def growing(self) -> MixFunction:
        return PagedAttention(self.keys)

    @override
    def copy(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy nothing: the table says what a slot remembers."""


@dataclass(frozen=True)
class ChunkAttention(MixFunction):
    """Attention of some tokens of one prompt over themselves and those before, whose keys and values lie in pages.

    Shapes: C tokens of the chunk, K tokens that they may see, the last C of which are theirs.
    """

    keys: PagedKeys
    chunk: PromptChunk

    @override
    def __call__(self, mixer: Mixer, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor) -> None:
        assert isinstance(mixer, AttentionMixer)
        shape, chunk, (q_CND, k_CMD, v_CMD) = mixer.shape, self.chunk, inputs
        out_CND, table_P = mixer.by_head(out_TK), self.keys.table.table_SP[chunk.row]
        position_C = torch.arange(chunk.begin, chunk.end, device=q_CND.device)
        page_C, place_C = table_P[position_C // PAGE].long(), position_C % PAGE
        self.keys.write(mixer.index, k_CMD, v_CMD, page_T=page_C, place_T=place_C)
        first = 0 if shape.window is None else max(0, chunk.begin + 1 - shape.window) // PAGE
        pages = table_P[first : -(-chunk.end // PAGE)].long()
        k_KMD, v_KMD = (
            pool_PMLD[pages].transpose(1, 2).flatten(0, 1)[: chunk.end - first * PAGE].contiguous()
            for pool_PMLD in self.keys.of_layer[mixer.index]
        )
        if not use_kernels(q_CND) and shape.softcap is None and mixer.sinks_N is None:
            attend_on_cpu(shape, q_CND, k_KMD, v_KMD, out_CND)
            return
        seen, earlier = len(k_KMD), len(k_KMD) - len(q_CND)
        tile_rows = attention.tile_rows(shape.head_dim, q_CND.dtype, q_CND.device)
        documents = Documents.from_boundaries(np.array([0, seen]), seen, tile_rows, q_CND.device)
        q_KND = q_CND.new_zeros(seen, shape.heads, shape.head_dim)
        q_KND[earlier:] = q_CND
        found_KND, _ = attention.forward(
            q_KND,
            k_KMD,
            v_KMD,
            documents.from_row(earlier),
            scale=shape.scale,
            window=shape.window,
            softcap=shape.softcap,
            sinks_N=mixer.sinks_N,
        )
        out_CND.copy_(found_KND[earlier:])


@dataclass(frozen=True)
class PagedAttention(MixFunction):
    """Attention of each slot's newest token over its pages."""

    keys: PagedKeys

    @override
    def __call__(self, mixer: Mixer, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor) -> None:
        assert isinstance(mixer, AttentionMixer)
        shape, (q_BND, k_BMD, v_BMD) = mixer.shape, inputs
        table, count = self.keys.table, len(q_BND)
        paged_attention.forward(
            q_BND,
            k_BMD,
            v_BMD,
            *self.keys.of_layer[mixer.keys_layer],
            table.table_SP[:count],
            table.length_S[:count],
            scale=shape.scale,
            window=shape.window,
            softcap=shape.softcap,
            sinks_N=mixer.sinks_N,
            out=mixer.by_head(out_TK),
            split=table.split,
        )
