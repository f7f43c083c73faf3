"""Generate text with Burnish's decoder: prompts are read packed, then every reply grows by one token a step.

All of it is eager and allocates nothing that outlives it, on the current stream, so it may run between the steps of a
training whose graphs are alive: those read the decoder's own rope table, which stays as it is. Replies may be longer
than that table, so they are made with a view of the decoder: the same weights, other tables, no dropout.

Shapes: B replies, T tokens of packed prompts (S of one) or of a step (B), N query heads, M key and value heads, G = N /
M, X = B M, D head dimension, L cached tokens, V vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from typing_extensions import override

from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.decoder_layer import DecoderLayer
from burnish_engine.models.decoder.layer_types import DecoderLayerShape, SequenceMetadata
from burnish_engine.models.decoder.rope_tables import RopeTable, rope_table
from burnish_engine.models.decoder.stacked_linear import FrozenWeight, QuantizedWeight, ResidentWeight, StackedLinear
from burnish_engine.models.generation.kv_cache import KVCache
from burnish_engine.models.generation.text_generator import TextGenerator
from burnish_kernels.attention import op as attention
from burnish_kernels.attention.documents import Documents
from burnish_kernels.dispatch import use_kernels
from burnish_kernels.lora_linear.op import Stack

PROMPT_TOKENS = 4096
"""Tokens of prompts read at once, unless one prompt alone has more."""
_POSITIONS_STEP = 1024  # rope tables grow by multiples of this


@dataclass
class DecoderReplies:
    """The state of replies that grow together.

    Attributes:
        ids: tokens of each row, those of the prompt and those of the reply.
        cache: keys and values of these tokens.
    """

    ids: list[list[int]]
    cache: KVCache


class DecoderGenerator(TextGenerator):
    """A `TextGenerator` on Burnish's decoder.

    While the decoder is being trained: let the queued steps finish first, and be on a stream that sees their results.

    Args:
        decoder: decoder to read; it is never changed.
        ends: tokens that the model's files name as ends of a reply.
    """

    def __init__(self, decoder: Decoder, ends: Sequence[int] = ()) -> None:
        self._ends = list(ends)
        self._decoder = decoder
        self._adapted = True
        self._positions = 0
        self._views: dict[bool, Decoder] = {}

    @property
    @override
    def ends(self) -> list[int]:
        return self._ends

    def use_adapter(self, use: bool) -> None:
        """Switch the adapter on or off for the replies that follow. Not allowed while a reply is being made."""
        self._adapted = use

    @override
    def inference(self) -> AbstractContextManager[None]:
        return torch.inference_mode()

    @override
    def start(self, prompts: Sequence[Sequence[int]], reserve: int) -> tuple[DecoderReplies, torch.Tensor]:
        ids = [list(prompt) for prompt in prompts]
        lengths = [len(prompt) for prompt in ids]
        self._make_room(max(lengths) + reserve)
        decoder = self._decoder
        replies = DecoderReplies(ids, KVCache(decoder.spec, lengths, reserve, decoder.dtype, decoder.device))
        return replies, self._read(replies, range(len(ids)))

    @override
    def advance(self, state: DecoderReplies, tokens: Sequence[int]) -> torch.Tensor:
        for ids, token in zip(state.ids, tokens, strict=True):
            ids.append(token)
        self._make_room(max(len(ids) for ids in state.ids))
        view, cache = self._view(), state.cache
        cache.add_column()
        index_T = [_first_row(view.rope, len(ids)) + len(ids) - 1 for ids in state.ids]
        sequences = SequenceMetadata(
            torch.tensor(index_T, dtype=torch.int32, device=view.device), _no_documents(view.device)
        )
        ids_B = torch.tensor(list(tokens), device=view.device)
        logits_BV = view.logits(view.forward(ids_B, sequences, attention_fn=_CachedAttention(cache)).hidden_TH)
        # A document that has just become long has its keys rotated as a short one's: read it again.
        long_above = view.rope.long_above
        turned = [row for row, ids in enumerate(state.ids) if long_above is not None and len(ids) == long_above + 1]
        if turned:
            logits_BV[torch.tensor(turned, device=view.device)] = self._read(state, turned)
        return logits_BV

    @override
    def keep(self, state: DecoderReplies, rows: Sequence[int]) -> bool:
        state.cache.keep(rows)
        state.ids = [state.ids[row] for row in rows]
        return True

    def _read(self, replies: DecoderReplies, rows: Sequence[int]) -> torch.Tensor:
        """Fill the cache with the rows' tokens; return the logits after the last token of each."""
        return torch.cat([self._read_pack(replies, group) for group in _groups(replies, rows)])

    def _read_pack(self, replies: DecoderReplies, rows: Sequence[int]) -> torch.Tensor:
        view, cache = self._view(), replies.cache
        texts = [replies.ids[row] for row in rows]
        lengths = np.array([len(text) for text in texts])
        edges = np.concatenate([[0], np.cumsum(lengths)])
        total = int(edges[-1])
        position_T = np.arange(total) - np.repeat(edges[:-1], lengths)
        first_T = np.repeat([_first_row(view.rope, int(length)) for length in lengths], lengths)
        column_T = position_T + np.repeat([cache.pads[row] for row in rows], lengths)
        row_T, column_T, ids_T = (
            torch.from_numpy(values.astype(np.int64)).to(view.device)
            for values in (np.repeat(rows, lengths), column_T, np.concatenate(texts))
        )
        index_T = torch.from_numpy((first_T + position_T).astype(np.int32)).to(view.device)
        tile_rows = attention.tile_rows(view.spec.head_dim, view.dtype, view.device)
        documents = Documents.from_boundaries(edges, total, tile_rows, view.device)
        reading = _StoringAttention(cache, row_T, column_T, edges.tolist(), documents)
        hidden_TH = view.forward(ids_T, SequenceMetadata(index_T, documents), attention_fn=reading).hidden_TH
        return view.logits(hidden_TH[torch.from_numpy(edges[1:] - 1).to(view.device)])

    def _make_room(self, positions: int) -> None:
        """Extend the rope tables to documents of `positions` tokens."""
        if positions > self._positions:
            self._positions = positions + -positions % _POSITIONS_STEP
            self._views.clear()

    def _view(self) -> Decoder:
        if self._adapted not in self._views:
            self._views[self._adapted] = _view(self._decoder, self._positions, adapted=self._adapted)
        return self._views[self._adapted]


@dataclass(frozen=True)
class _StoringAttention:
    """Attention within packed prompts that also writes their keys and values to the cache.

    Attributes:
        cache: cache that keys and values are written to.
        row_T: row of each token in it.
        column_T: column of each token in it.
        edges: first token of each prompt, then T.
        documents: the same boundaries in the form that the kernels read.
    """

    cache: KVCache
    row_T: torch.Tensor
    column_T: torch.Tensor
    edges: list[int]
    documents: Documents

    def __call__(
        self,
        shape: DecoderLayerShape,
        q_TND: torch.Tensor,
        k_TMD: torch.Tensor,
        v_TMD: torch.Tensor,
        out_TND: torch.Tensor,
    ) -> None:
        self.cache.write(shape.index, self.row_T, self.column_T, k_TMD, v_TMD)
        if not use_kernels(q_TND) and shape.softcap is None:
            self._on_cpu(shape, q_TND, k_TMD, v_TMD, out_TND)
            return
        attention.forward(
            q_TND,
            k_TMD,
            v_TMD,
            self.documents,
            scale=shape.scale,
            window=shape.window,
            softcap=shape.softcap,
            out=out_TND,
        )

    def _on_cpu(
        self,
        shape: DecoderLayerShape,
        q_TND: torch.Tensor,
        k_TMD: torch.Tensor,
        v_TMD: torch.Tensor,
        out_TND: torch.Tensor,
    ) -> None:
        """Attend document by document with torch's own attention, three times as fast on a CPU as the reference."""
        for first, end in itertools.pairwise(self.edges):
            q_1NSD, k_1MSD, v_1MSD = (heads[first:end].transpose(0, 1)[None] for heads in (q_TND, k_TMD, v_TMD))
            mask_SS = None
            if shape.window is not None and end - first > shape.window:
                mask_SS = torch.ones(end - first, end - first, dtype=torch.bool).tril().triu(1 - shape.window)
            found_1NSD = scaled_dot_product_attention(
                q_1NSD,
                k_1MSD,
                v_1MSD,
                attn_mask=mask_SS,
                is_causal=mask_SS is None,
                scale=shape.scale,
                enable_gqa=shape.heads != shape.kv_heads,
            )
            out_TND[first:end] = found_1NSD[0].transpose(0, 1)


@dataclass(frozen=True)
class _CachedAttention:
    """Attention of each row's newest token over the cached keys and values, in fp32."""

    cache: KVCache

    def __call__(
        self,
        shape: DecoderLayerShape,
        q_TND: torch.Tensor,
        k_TMD: torch.Tensor,
        v_TMD: torch.Tensor,
        out_TND: torch.Tensor,
    ) -> None:
        self.cache.append(shape.index, k_TMD, v_TMD)
        keys_XLD, values_XLD, hidden_B1L = self.cache.visible(shape.index, shape.window)
        q_XGD = q_TND.reshape(-1, shape.heads // shape.kv_heads, shape.head_dim).float()
        scores_XGL = torch.bmm(q_XGD * shape.scale, keys_XLD.float().transpose(1, 2))
        if shape.softcap is not None:
            scores_XGL = shape.softcap * torch.tanh(scores_XGL / shape.softcap)
        if hidden_B1L is not None:
            scores_XGL.view(len(q_TND), shape.heads, -1).masked_fill_(hidden_B1L, float("-inf"))
        found_XGD = torch.bmm(torch.softmax(scores_XGL, dim=-1), values_XLD.float())
        out_TND.copy_(found_XGD.view(out_TND.shape))


def _view(decoder: Decoder, positions: int, *, adapted: bool) -> Decoder:
    """Make a decoder on the same weights with its own rope tables, without dropout, without the adapter if asked."""
    spec, device = decoder.spec, decoder.device
    rope = rope_table(spec.rope, spec.head_dim, positions, device)
    local = rope if spec.local_rope is None else rope_table(spec.local_rope, spec.head_dim, positions, device)
    layers = []
    for layer, kind in zip(decoder.layers, spec.layers, strict=True):
        own = layer.weights
        table = (local if kind.kind == "sliding_attention" else rope).table_PR if kind.rope else None
        qkv, o, gate_up, down = (_stack_view(stack, adapted=adapted) for stack in layer.stacks)
        weights = replace(own, qkv=qkv, o=o, gate_up=gate_up, down=down, table_PR=table)
        layers.append(DecoderLayer(layer.shape, weights))
    return Decoder(spec, decoder.embedding_VH, decoder.head_VH, decoder.final_norm_H, layers, rope)


def _stack_view(own: StackedLinear, *, adapted: bool) -> StackedLinear:
    if adapted or not own.rank:
        return StackedLinear(own.stack, own.frozen, own.bias_N)
    return StackedLinear(Stack(own.outputs, own.inputs), _bare(own.frozen, own.outputs, own.inputs), own.bias_N)


def _bare(frozen: FrozenWeight, outputs: int, inputs: int) -> FrozenWeight:
    """Return the frozen weight without the adapters around it."""
    if isinstance(frozen, ResidentWeight):
        return ResidentWeight(frozen.matrix[:outputs, :inputs])
    assert isinstance(frozen, QuantizedWeight)
    return QuantizedWeight(frozen.parts, frozen.a_RK[:0], frozen.sb_NR[:, :0], frozen.scratch[:outputs, :inputs])


def _first_row(rope: RopeTable, length: int) -> int:
    """Return the table's row of position 0 for a document of `length` tokens."""
    long = rope.long_above is not None and length > rope.long_above
    return (rope.long_offset or 0) if long else 0


def _groups(replies: DecoderReplies, rows: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups of rows whose prompts are read at once."""
    group: list[int] = []
    tokens = 0
    for row in rows:
        length = len(replies.ids[row])
        if group and tokens + length > PROMPT_TOKENS:
            yield group
            group, tokens = [], 0
        group.append(row)
        tokens += length
    yield group


def _no_documents(device: torch.device) -> Documents:
    """Return empty documents, for steps that attend to the cache instead."""
    nothing = torch.empty(0, dtype=torch.int32, device=device)
    return Documents(nothing, nothing, nothing, 0)
