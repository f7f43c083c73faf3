"""Prompts read together by Burnish's decoder, packed without padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import torch

from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.layer_types import SequenceMetadata
from burnish_engine.models.decoder.mixers.mixer import MixFunctions, PackedPrompts, PromptChunk
from burnish_engine.models.decoder.rope_tables import RopeTable
from burnish_kernels.attention import op as attention
from burnish_kernels.attention.documents import Documents

PROMPT_TOKENS = 8192
"""Tokens of prompts read at once, unless one prompt alone has more."""


class PromptReaders(Protocol):
    """Caches that prompts are read into."""

    def reading(self, prompts: PackedPrompts) -> MixFunctions:
        """Return how prompts are mixed and remembered."""
        ...


def read_prompts(
    decoder: Decoder, caches: PromptReaders, texts: Sequence[Sequence[int]], rows: Sequence[int]
) -> torch.Tensor:
    """Fill the rows of caches with texts; return the hidden states `[B, H]` after the last token of each.

    Args:
        decoder: decoder to read with.
        caches: memory of the tokens.
        texts: token ids of each text.
        rows: row of each text in the caches.
    """
    lengths = np.array([len(text) for text in texts])
    edges = np.concatenate([[0], np.cumsum(lengths)])
    total = int(edges[-1])
    position_T = np.arange(total) - np.repeat(edges[:-1], lengths)
    first_T = np.repeat([first_row(decoder.rope, int(length)) for length in lengths], lengths)
    index_T = torch.from_numpy((first_T + position_T).astype(np.int32)).to(decoder.device)
    row_T, position_on_T, ids_T = (
        torch.from_numpy(values.astype(np.int64)).to(decoder.device)
        for values in (np.repeat(rows, lengths), position_T, np.concatenate(texts))
    )
    tile_rows = attention.tile_rows(decoder.spec.largest_head, decoder.dtype, decoder.device)
    documents = Documents.from_boundaries(edges, total, tile_rows, decoder.device)
    prompts = PackedPrompts(rows, edges.tolist(), row_T, position_on_T, documents)
    mixing = caches.reading(prompts)
    hidden_TH = decoder.forward(ids_T, SequenceMetadata(index_T, documents), mixing=mixing).hidden_TH
    return hidden_TH[torch.from_numpy(edges[1:] - 1).to(decoder.device)]


def read_chunk(decoder: Decoder, mixing: MixFunctions, text: Sequence[int], chunk: PromptChunk) -> torch.Tensor:
    """Read some tokens of a text whose earlier ones were read before; return the last one's hidden state `[1, H]`.

    Args:
        decoder: decoder to read with.
        mixing: functions that mix and remember the chunk.
        text: token ids of the whole text.
        chunk: tokens to read.
    """
    first, device = first_row(decoder.rope, len(text)), decoder.device
    index_C = torch.arange(first + chunk.begin, first + chunk.end, dtype=torch.int32, device=device)
    ids_C = torch.tensor(list(text[chunk.begin : chunk.end]), device=device)
    sequences = SequenceMetadata(index_C, no_documents(device))
    return decoder.forward(ids_C, sequences, mixing=mixing).hidden_TH[-1:]


def packs(rows: Iterable[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups of rows whose texts are read at once.

    Args:
        rows: rows to group, in order.
        lengths: tokens of every row.
    """
    group: list[int] = []
    tokens = 0
    for row in rows:
        if group and tokens + lengths[row] > PROMPT_TOKENS:
            yield group
            group, tokens = [], 0
        group.append(row)
        tokens += lengths[row]
    if group:
        yield group


def first_row(rope: RopeTable, length: int) -> int:
    """Return the table's row of position 0 for a document of `length` tokens."""
    long = rope.long_above is not None and length > rope.long_above
    return (rope.long_offset or 0) if long else 0


def no_documents(device: torch.device) -> Documents:
    """Return empty documents, for steps that attend to a cache instead."""
    nothing = torch.empty(0, dtype=torch.int32, device=device)
    return Documents(nothing, nothing, nothing, 0)
