"""Generate text with Burnish's decoder: prompts are read packed, then every reply grows by one token a step.

All of it is eager and allocates nothing that outlives it, on the current stream, so it may run between the steps of a
training whose graphs are alive: those read the decoder's own rope table, which stays as it is. Replies may be longer
than that table, so they are made with a view of the decoder: the same weights, other tables, no dropout.

Shapes: B replies, T tokens of packed prompts or of a step (B), H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.decoder_layer import DecoderLayer
from burnish_engine.models.decoder.layer_types import SequenceMetadata
from burnish_engine.models.decoder.mixers.build import build_mixer
from burnish_engine.models.decoder.mixers.caches import MixerCaches
from burnish_engine.models.decoder.mixers.mixer import PackedPrompts
from burnish_engine.models.decoder.rope_tables import RopeTable, position_tables
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_engine.models.generation.text_generator import TextGenerator
from burnish_kernels.attention import op as attention
from burnish_kernels.attention.documents import Documents
from burnish_kernels.lora_linear.op import Stack

PROMPT_TOKENS = 4096
"""Tokens of prompts read at once, unless one prompt alone has more."""
_POSITIONS_STEP = 1024  # rope tables grow by multiples of this


@dataclass
class DecoderReplies:
    """The state of replies that grow together.

    Attributes:
        ids: tokens of each row, those of the prompt and those of the reply.
        caches: what the layers remember of these tokens.
    """

    ids: list[list[int]]
    caches: MixerCaches


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
        self._decoder.expire_magnitudes()  # training may have moved them
        replies = DecoderReplies(ids, MixerCaches(self._decoder, lengths, reserve))
        return replies, self._read(replies, range(len(ids)))

    @override
    def advance(self, state: DecoderReplies, tokens: Sequence[int]) -> torch.Tensor:
        for ids, token in zip(state.ids, tokens, strict=True):
            ids.append(token)
        self._make_room(max(len(ids) for ids in state.ids))
        view, mixing = self._view(), state.caches.growing()
        index_T = [_first_row(view.rope, len(ids)) + len(ids) - 1 for ids in state.ids]
        sequences = SequenceMetadata(
            torch.tensor(index_T, dtype=torch.int32, device=view.device), _no_documents(view.device)
        )
        ids_B = torch.tensor(list(tokens), device=view.device)
        logits_BV = view.logits(view.forward(ids_B, sequences, mixing=mixing).hidden_TH)
        # A document that has just become long has its keys rotated as a short one's: read it again.
        long_above = view.rope.long_above
        turned = [row for row, ids in enumerate(state.ids) if long_above is not None and len(ids) == long_above + 1]
        if turned:
            logits_BV[torch.tensor(turned, device=view.device)] = self._read(state, turned)
        return logits_BV

    @override
    def keep(self, state: DecoderReplies, rows: Sequence[int]) -> bool:
        state.caches.keep(rows)
        state.ids = [state.ids[row] for row in rows]
        return True

    def _read(self, replies: DecoderReplies, rows: Sequence[int]) -> torch.Tensor:
        """Fill the cache with the rows' tokens; return the logits after the last token of each."""
        return torch.cat([self._read_pack(replies, group) for group in _groups(replies, rows)])

    def _read_pack(self, replies: DecoderReplies, rows: Sequence[int]) -> torch.Tensor:
        view = self._view()
        texts = [replies.ids[row] for row in rows]
        lengths = np.array([len(text) for text in texts])
        edges = np.concatenate([[0], np.cumsum(lengths)])
        total = int(edges[-1])
        position_T = np.arange(total) - np.repeat(edges[:-1], lengths)
        first_T = np.repeat([_first_row(view.rope, int(length)) for length in lengths], lengths)
        index_T = torch.from_numpy((first_T + position_T).astype(np.int32)).to(view.device)
        row_T, position_on_T, ids_T = (
            torch.from_numpy(values.astype(np.int64)).to(view.device)
            for values in (np.repeat(rows, lengths), position_T, np.concatenate(texts))
        )
        tile_rows = attention.tile_rows(view.spec.head_dim, view.dtype, view.device)
        documents = Documents.from_boundaries(edges, total, tile_rows, view.device)
        prompts = PackedPrompts(rows, edges.tolist(), row_T, position_on_T, documents)
        mixing = replies.caches.reading(prompts)
        hidden_TH = view.forward(ids_T, SequenceMetadata(index_T, documents), mixing=mixing).hidden_TH
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


def _view(decoder: Decoder, positions: int, *, adapted: bool) -> Decoder:
    """Make a decoder on the same weights with its own rope tables, without dropout, without the adapter if asked."""
    spec, device = decoder.spec, decoder.device
    tables = position_tables(spec, positions, device)
    layers = []
    for layer in decoder.layers:
        stacks: dict[str, Any] = {
            name: _stack_view(stack, adapted=adapted) for name, stack in layer.weights.stacks.items()
        }
        experts = layer.weights.experts
        if experts is not None and not adapted:
            experts = replace(experts, gate_up=experts.gate_up.frozen(), down=experts.down.frozen())
        weights = replace(layer.weights, **stacks, experts=experts)
        mixer = build_mixer(spec, layer.shape.index, weights.own, tables)
        layers.append(DecoderLayer(layer.shape, weights, mixer, layer.tensors))
    return Decoder(spec, decoder.embedding_VH, decoder.head, decoder.final_norm_H, layers, tables.rope, decoder.ring)


def _stack_view(own: StackedLinear, *, adapted: bool) -> StackedLinear:
    if adapted or not own.rank:
        return StackedLinear(own.stack, own.frozen, own.bias_N, own.magnitudes)
    return StackedLinear(Stack(own.outputs, own.inputs), own.frozen.bare(own.outputs, own.inputs), own.bias_N)


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
