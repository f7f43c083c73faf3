"""Generate text with Burnish's decoder: prompts are read packed, then every reply grows by one token a step.

On a GPU replies grow in `paged` slots, whose steps are captured. On the CPU, and for callers that want the logits of
every step, all is eager and allocates nothing that outlives it. Both run on the current stream, so they may run between
the steps of a training whose graphs are alive: those read the decoder's own rope table, which stays as it is. Replies
may be longer than that table, so they are made with a view of the decoder: the same weights, other tables, no dropout.

Shapes: B replies, T tokens of packed prompts or of a step (B), H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from typing_extensions import override

from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.decoder_layer import DecoderLayer
from burnish_engine.models.decoder.layer_types import SequenceMetadata
from burnish_engine.models.decoder.mixers.build import build_mixer
from burnish_engine.models.decoder.mixers.caches import MixerCaches
from burnish_engine.models.decoder.rope_tables import position_tables
from burnish_engine.models.decoder.stacked_linear import AdaptedRows, StackedLinear
from burnish_engine.models.generation.packed_prompts import first_row, no_documents, packs, read_prompts
from burnish_engine.models.generation.paged.room import IdleMemory, SlotRoom
from burnish_engine.models.generation.paged.schedule import Schedule
from burnish_engine.models.generation.step_by_step import StepGenerator
from burnish_engine.models.generation.text_generator import ReplyPiece, ReplyRequest
from burnish_kernels.lora_linear.op import Stack

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


class DecoderGenerator(StepGenerator):
    """A generator on Burnish's decoder.

    While the decoder is being trained: let the queued steps finish first, and be on a stream that sees their results.

    Args:
        decoder: decoder to read; it is never changed.
        ends: tokens that the model's files name as ends of a reply.
        keeps_slots: whether pages and captured steps outlive the replies, for a model that does nothing else.
        paged: whether replies grow in slots with pages; None: on a GPU.
        exact: whether a reply has the same bits whatever others are asked for and however many grow together. Each
            prompt is read alone then, every step in slots is of as many rows, and base and tuned share none.
        idle: memory that is idle while replies are made; not with `keeps_slots`.

    Attributes:
        decoder: the decoder, with its adapter.
    """

    def __init__(
        self,
        decoder: Decoder,
        ends: Sequence[int] = (),
        *,
        keeps_slots: bool = False,
        paged: bool | None = None,
        exact: bool = False,
        idle: IdleMemory | None = None,
    ) -> None:
        self._ends, self._keeps_slots, self.exact = list(ends), keeps_slots, exact
        self._idle = idle
        self._is_paged = decoder.device.type == "cuda" if paged is None else paged
        self._room: SlotRoom | None = None
        self.decoder = decoder
        self._adapted = True
        self._positions = 0
        self._views: dict[bool | AdaptedRows, Decoder] = {}
        self._rows = AdaptedRows(torch.ones(1, 1, dtype=decoder.dtype, device=decoder.device))

    @property
    @override
    def is_paged(self) -> bool:
        return self._is_paged

    @property
    @override
    def ends(self) -> list[int]:
        return self._ends

    def use_adapter(self, use: bool) -> None:
        """Switch the adapter on or off for the replies that follow. Not allowed while a reply is being made."""
        self._adapted = use

    @contextmanager
    @override
    def without_adapter(self) -> Iterator[None]:
        was_adapted, self._adapted = self._adapted, False
        try:
            yield
        finally:
            self._adapted = was_adapted

    @override
    def inference(self) -> AbstractContextManager[None]:
        return torch.inference_mode()

    @override
    def start(self, prompts: Sequence[Sequence[int]], reserve: int) -> tuple[DecoderReplies, torch.Tensor]:
        ids = [list(prompt) for prompt in prompts]
        lengths = [len(prompt) for prompt in ids]
        self._make_room(max(lengths) + reserve)
        self.decoder.expire_magnitudes()  # training may have moved them
        replies = DecoderReplies(ids, MixerCaches(self.decoder, lengths, reserve))
        return replies, self._read(replies, range(len(ids)))

    @override
    def advance(self, state: DecoderReplies, tokens: Sequence[int]) -> torch.Tensor:
        for ids, token in zip(state.ids, tokens, strict=True):
            ids.append(token)
        self._make_room(max(len(ids) for ids in state.ids))
        view, mixing = self._view(), state.caches.growing()
        index_T = [first_row(view.rope, len(ids)) + len(ids) - 1 for ids in state.ids]
        sequences = SequenceMetadata(
            torch.tensor(index_T, dtype=torch.int32, device=view.device), no_documents(view.device)
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

    @override
    def replies(self, requests: Sequence[ReplyRequest], stops: Set[int], together: int) -> Iterator[ReplyPiece]:
        if not requests:
            return iter(())
        if not self._is_paged:
            return super().replies(requests, stops, together)
        if not self.exact or len({request.base for request in requests}) == 1:
            return self._in_slots(requests, stops, together)
        return self._kind_by_kind(requests, stops, together)

    def _kind_by_kind(self, requests: Sequence[ReplyRequest], stops: Set[int], together: int) -> Iterator[ReplyPiece]:
        for base in (True, False):
            own = [number for number, request in enumerate(requests) if request.base is base]
            for piece in self._in_slots([requests[number] for number in own], stops, together):
                yield replace(piece, request=own[piece.request])

    def _in_slots(self, requests: Sequence[ReplyRequest], stops: Set[int], together: int) -> Iterator[ReplyPiece]:
        with self.inference():
            self.decoder.expire_magnitudes()
            room = self._take_room(requests, stops, together)
            room.slots.expect([request.sampling for request in requests])
            turn = room.slots.decoder.rope.long_above
            schedule = Schedule(
                room.slots, room.pages, room.prompt_tokens, requests, stops, turn, most=together if self.exact else None
            ).run()
        try:
            while True:
                with self.inference():
                    pieces = next(schedule, None)
                if pieces is None:
                    return
                yield from pieces
        finally:
            with self.inference():
                room.slots.end(range(room.slots.count))
            if self._keeps_slots:
                self._room = room

    def _take_room(self, requests: Sequence[ReplyRequest], stops: Set[int], together: int) -> SlotRoom:
        """Return slots and pages for replies: those of the last replies if they are idle and large enough."""
        texts = sorted((len(one.ids) + one.sampling.max_tokens + 1 for one in requests), reverse=True)
        self._make_room(texts[0])
        bases = {one.base or not self._adapted for one in requests}
        adapted: bool | AdaptedRows = self._rows if len(bases) > 1 else not bases.pop()
        view = self._view(adapted)
        wanted = SlotRoom.wanted(texts, together, view, exact=self.exact)
        room, self._room = self._room, None
        if room is not None and room.serves(wanted, view, stops):
            return room
        del room  # its pages may be needed
        rows = adapted if isinstance(adapted, AdaptedRows) else None
        return SlotRoom.build(wanted, view, stops, rows, exact=self.exact, idle=self._idle)

    def _read(self, replies: DecoderReplies, rows: Iterable[int]) -> torch.Tensor:
        """Fill the cache with the rows' tokens; return the logits after the last token of each."""
        view = self._view()
        found = [
            view.logits(read_prompts(view, replies.caches, [replies.ids[row] for row in group], group))
            for group in packs(rows, [len(ids) for ids in replies.ids])
        ]
        return torch.cat(found)

    def _make_room(self, positions: int) -> None:
        """Extend the rope tables to documents of `positions` tokens."""
        if positions > self._positions:
            self._positions = positions + -positions % _POSITIONS_STEP
            self._views.clear()

    def _view(self, adapted: bool | AdaptedRows | None = None) -> Decoder:
        """Return a view with the adapter, without it, or with it for some rows; by default as `use_adapter` says."""
        key = self._adapted if adapted is None else adapted
        if key not in self._views:
            self._views[key] = _view(self.decoder, self._positions, key)
        return self._views[key]


def _view(decoder: Decoder, positions: int, adapted: bool | AdaptedRows) -> Decoder:
    """Make a decoder on the same weights with its own rope tables and without dropout.

    Args:
        decoder: decoder to view.
        positions: most tokens of a text.
        adapted: whether the adapter takes part, or the rows that it takes part in.
    """
    spec, device = decoder.spec, decoder.device
    tables = position_tables(spec, positions, device)
    layers = []
    for layer in decoder.layers:
        stacks: dict[str, Any] = {name: _stack_view(stack, adapted) for name, stack in layer.weights.stacks.items()}
        experts = layer.weights.experts
        if experts is not None and adapted is not True:
            gate_up, down = (
                one.for_rows(adapted) if adapted else one.frozen() for one in (experts.gate_up, experts.down)
            )
            experts = replace(experts, gate_up=gate_up, down=down)
        weights = replace(layer.weights, **stacks, experts=experts)
        mixer = build_mixer(spec, layer.shape.index, weights.own, tables)
        layers.append(DecoderLayer(layer.shape, weights, mixer, layer.tensors))
    return Decoder(
        spec,
        decoder.embedding_VH,
        decoder.head,
        decoder.final_norm_H,
        layers,
        tables.rope,
        decoder.ring,
        decoder.layer_inputs,
    )


def _stack_view(own: StackedLinear, adapted: bool | AdaptedRows) -> StackedLinear:
    if adapted or not own.rank:
        rows = adapted if isinstance(adapted, AdaptedRows) else None
        return StackedLinear(own.stack, own.frozen, own.bias_N, own.magnitudes, decodes=True, rows=rows)
    return StackedLinear(
        Stack(own.outputs, own.inputs), own.frozen.bare(own.outputs, own.inputs), own.bias_N, decodes=True
    )
