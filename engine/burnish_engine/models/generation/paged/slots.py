"""The slots that replies grow in, on the device: their state, their pages, and the step that gives each a token.

A step reads nothing from the host, so it is captured once for each number of slots and replayed. What the host needs to
know (tokens, and which replies live) is copied to it while the next steps run.

Shapes: S slots, B of them that a step computes, R recent tokens, P pages of a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch

from burnish_engine.contract.garbage import collection_paused
from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.layer_types import SequenceMetadata
from burnish_engine.models.decoder.mixers.attention.paged_cache import PageTable
from burnish_engine.models.decoder.mixers.caches import SlotCaches
from burnish_engine.models.decoder.mixers.mixer import PromptChunk
from burnish_engine.models.decoder.stacked_linear import AdaptedRows
from burnish_engine.models.device.device import is_driver_error, is_out_of_memory
from burnish_engine.models.generation.packed_prompts import first_row, no_documents, read_chunk, read_prompts
from burnish_engine.models.generation.sampling import Sampling
from burnish_kernels.dispatch import multiprocessors
from burnish_kernels.paged_attention.op import splits
from burnish_kernels.sample import op as sample

RECENT = 64
"""Tokens of each slot that the host can still read; more than two chunks of steps."""
_SEED_BITS = (1 << 63) - 1  # bits of a seed that the device takes


@dataclass
class SlotReadback:
    """A copy of what the slots had become, on its way to the host.

    Attributes:
        numbers: int32 live and made tokens of all slots, then their recent tokens.
        done: event after which the copy is there; None on the CPU.
    """

    numbers: torch.Tensor
    done: torch.cuda.Event | None

    def wait(self, slots: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Wait for the copy; return which slots live, how many tokens each made, and its recent ones `[S, R]`."""
        if self.done is not None:
            self.done.synchronize()
        live, made, recent = np.split(self.numbers.numpy(), [slots, 2 * slots])
        return live, made, recent.reshape(slots, RECENT)


class ReplySlots:
    """The slots of one decoder, which stays as it is.

    Args:
        decoder: decoder to read, with rope tables for the longest text.
        count: number of slots.
        pages: number of pages, page 0 included.
        row_pages: most pages of a slot.
        stops: tokens that end a reply.
        rows: rows that the decoder's adapter takes part in; None: all.
        exact: whether every step computes all slots, with keys split as if nothing were known of their number.
        memory: function that returns a context; what prompts need while they are read is allocated inside.
    """

    def __init__(
        self,
        decoder: Decoder,
        count: int,
        pages: int,
        row_pages: int,
        stops: Set[int],
        rows: AdaptedRows | None = None,
        *,
        exact: bool = False,
        memory: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._memory = memory
        self.decoder, self.count, device = decoder, count, decoder.device
        self._adapted_rows = rows
        self._adapted_S1 = torch.ones(count, 1, dtype=decoder.dtype, device=device)
        self._numbers = torch.zeros(count * (2 + RECENT), dtype=torch.int32, device=device)
        live, made, recent = self._numbers.split([count, count, count * RECENT])
        ids, seed = (torch.zeros(count, dtype=torch.int64, device=device) for _ in range(2))
        place, length, limit, top_k = (torch.zeros(count, dtype=torch.int32, device=device) for _ in range(4))
        temperature, top_p, min_p = (torch.zeros(count, dtype=torch.float32, device=device) for _ in range(3))
        self._rows = sample.ReplyRows(ids, place, length, made, limit, live, recent.view(count, RECENT))
        self._choice = sample.SamplingRows(temperature, top_p, min_p, top_k, seed)
        self._stops_K = torch.tensor(sorted(stops), dtype=torch.int32, device=device)
        self.table = np.zeros((count, row_pages), dtype=np.int32)
        self._table_SP = torch.zeros(count, row_pages, dtype=torch.int32, device=device)
        split = splits(count, decoder.spec.num_kv_heads, None, multiprocessors(device)) if exact else None
        self._caches = SlotCaches(decoder, pages, PageTable(self._table_SP, length, split))
        self._exact = exact
        self._draws = self._bounds = True
        self._captures = device.type == "cuda"
        self._graphs: dict[tuple[int, bool, bool], torch.cuda.CUDAGraph | None] = {}
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    @property
    def is_captured(self) -> bool:
        """Whether steps are captured: on a GPU whose memory holds all weights."""
        here = self.decoder.head.matrix_VH.device == self.decoder.device
        return self._captures and here and not self.decoder.ring.layers

    def expect(self, samplings: Sequence[Sampling]) -> None:
        """Prepare for replies of these kinds only, so that steps leave out what none of them needs."""
        drawn = [sampling for sampling in samplings if sampling.temperature > 0.0]
        self._draws = bool(drawn)
        self._bounds = any(sampling.top_k or sampling.top_p < 1.0 for sampling in drawn)

    def publish_table(self) -> None:
        """Send `table` to the device."""
        self._table_SP.copy_(torch.from_numpy(self.table))

    def copy_pages(self, sources: Mapping[int, int]) -> None:
        """Fill pages with the content of others, given the source of each."""
        if sources:
            self._caches.copy_pages(list(sources.values()), list(sources), self.decoder.device)

    def begin(
        self,
        texts: Mapping[int, Sequence[int]],
        samplings: Mapping[int, Sampling],
        twins: Mapping[int, int],
        bases: Set[int] = frozenset(),
        hidden_BH: torch.Tensor | None = None,
    ) -> None:
        """Read prompts together and choose the first token of each reply; the table has their pages.

        Args:
            texts: token ids of each prompt, by slot.
            samplings: choice of tokens of every slot, those of `twins` included; `max_tokens` is what is left.
            twins: slot whose prompt is the same, by the slot of a reply whose prompt need not be read again.
            bases: slots that the adapter takes no part in, where slots choose.
            hidden_BH: hidden state after each prompt, where it was read in chunks; None: prompts are read now.
        """
        decoder, device = self.decoder, self.decoder.device
        self._enter({slot: len(text) for slot, text in texts.items()}, samplings, twins)
        alike: dict[int, list[int]] = {slot: [slot] for slot in texts}
        for slot, leader in twins.items():
            alike[leader].append(slot)
        self._adapted_S1[[*texts, *twins]] = torch.tensor(
            [[slot not in bases] for slot in (*texts, *twins)], dtype=decoder.dtype, device=device
        )
        if hidden_BH is None:
            self._adapt(slot for slot, text in texts.items() for _ in text)
            with self._memory():
                hidden_BH = read_prompts(decoder, self._caches, list(texts.values()), list(texts))
        logits_BV = decoder.raw_logits(hidden_BH)
        if twins:
            copies = [len(slots) for slots in alike.values()]
            logits_BV = logits_BV.repeat_interleave(torch.tensor(copies, device=device), dim=0)
        own = [slot for slots in alike.values() for slot in slots]
        self._choose(logits_BV, torch.tensor(own, dtype=torch.int32, device=device))
        if twins:
            self._caches.copy(list(twins.values()), list(twins), device)

    @property
    def reads_chunks(self) -> bool:
        """Whether prompts can be read chunk by chunk: where all layers keep keys and values."""
        return self._caches.continuing(PromptChunk(0, 0, 1)) is not None

    def read_on(self, slot: int, text: Sequence[int], begin: int, end: int, *, base: bool = False) -> torch.Tensor:
        """Read some tokens of a prompt; return the hidden state `[1, H]` after them. The slot rests meanwhile.

        Args:
            slot: slot of the reply; the table has its pages.
            text: token ids of the whole prompt.
            begin: position of the first token to read; those before it were read.
            end: position behind the last.
            base: whether the adapter takes no part, where slots choose.
        """
        if self._adapted_rows is not None:
            keep_1 = self._adapted_S1.new_tensor([[not base]])
            self._adapted_rows.keep_T1 = keep_1.expand(end - begin, 1)
        chunk = PromptChunk(slot, begin, end)
        mixing = self._caches.continuing(chunk)
        assert mixing is not None
        with self._memory():
            return read_chunk(self.decoder, mixing, text, chunk)

    def step(self, count: int) -> None:
        """Give each living reply of the first `count` slots its next token."""
        count = self.count if self._exact else count
        kind = (count, self._draws, self._bounds)
        if not self.is_captured or kind not in self._graphs:
            self._graphs[kind] = None  # the first step of a kind compiles what it needs
            self._step(count)
            return
        graph = self._graphs[kind]
        if graph is None:
            try:
                graph = self._graphs[kind] = self._capture(count)
            except RuntimeError as error:
                if is_out_of_memory(error) or is_driver_error(error):
                    raise
                self._captures = False  # the same tokens, more slowly, as where training cannot be captured
                self._step(count)
                return
        graph.replay()

    def read_later(self) -> SlotReadback:
        """Begin to copy the slots' tokens to the host."""
        if self.decoder.device.type != "cuda":
            return SlotReadback(self._numbers.clone(), None)
        numbers = torch.empty(self._numbers.shape, dtype=torch.int32, pin_memory=True)
        numbers.copy_(self._numbers, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        return SlotReadback(numbers, done)

    def end(self, slots: Sequence[int]) -> None:
        """Let replies rest, whatever they have become."""
        own = torch.tensor(slots, device=self.decoder.device)
        self._rows.live[own] = 0
        self._rows.length[own] = 0

    def move(self, targets: Mapping[int, int]) -> None:
        """Move replies to free slots, given the target of each; the caller moves their rows of `table`."""
        device = self.decoder.device
        old, new = (torch.tensor(list(some), device=device) for some in (targets, targets.values()))
        for tensor in (*vars(self._rows).values(), *vars(self._choice).values(), self._adapted_S1):
            tensor[new] = tensor[old]
        self._caches.copy(list(targets), list(targets.values()), device)
        self.end(list(targets))

    def _enter(self, lengths: Mapping[int, int], samplings: Mapping[int, Sampling], twins: Mapping[int, int]) -> None:
        """Set the state of slots as it is before their first token."""
        device, rope = self.decoder.device, self.decoder.rope
        slots = [*lengths, *twins]
        own = torch.tensor(slots, device=device)
        tokens = [lengths[twins.get(slot, slot)] for slot in slots]
        chosen = [samplings[slot] for slot in slots]
        rows, choice = self._rows, self._choice
        for tensor, values in (
            (rows.place, [first_row(rope, length) + length - 1 for length in tokens]),
            (rows.length, tokens),
            (rows.made, [0] * len(slots)),
            (rows.limit, [sampling.max_tokens for sampling in chosen]),
            (rows.live, [1] * len(slots)),
            (choice.temperature, [sampling.temperature for sampling in chosen]),
            (choice.top_p, [sampling.top_p for sampling in chosen]),
            (choice.min_p, [sampling.min_p for sampling in chosen]),
            (choice.top_k, [sampling.top_k for sampling in chosen]),
            (choice.seed, [sampling.seed & _SEED_BITS for sampling in chosen]),
        ):
            tensor[own] = torch.tensor(values, dtype=tensor.dtype).to(device)

    def _adapt(self, slots: Iterable[int]) -> None:
        """Tell the decoder which rows of its next pass have the adapter, given the slot of each."""
        if self._adapted_rows is not None:
            slot_T = torch.tensor(list(slots), device=self.decoder.device)
            self._adapted_rows.keep_T1 = self._adapted_S1[slot_T]

    def _step(self, count: int) -> None:
        rows, decoder = self._rows, self.decoder
        if self._adapted_rows is not None:
            self._adapted_rows.keep_T1 = self._adapted_S1[:count]
        sequences = SequenceMetadata(rows.place[:count], no_documents(decoder.device))
        hidden_BH = decoder.forward(rows.ids[:count], sequences, mixing=self._caches.growing()).hidden_TH
        self._choose(decoder.raw_logits(hidden_BH), None)

    def _choose(self, logits_BV: torch.Tensor, slots_B: torch.Tensor | None) -> None:
        cap = self.decoder.spec.logit_softcap
        tokens_B = sample.choose(
            logits_BV,
            self._choice,
            self._rows.length,
            slots_B=slots_B,
            softcap=cap,
            draws=self._draws,
            bounds=self._bounds,
        )
        sample.record(tokens_B, self._rows, self._stops_K, slots_B=slots_B)

    def _capture(self, count: int) -> torch.cuda.CUDAGraph:
        graph, stream = torch.cuda.CUDAGraph(), _capture_stream(self.decoder.device)
        stream.wait_stream(torch.cuda.current_stream())
        with collection_paused(), torch.cuda.stream(stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                self._step(count)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        return graph


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream that steps are captured on: cuBLAS keeps memory for every stream it has seen."""
    return torch.cuda.Stream(device)
