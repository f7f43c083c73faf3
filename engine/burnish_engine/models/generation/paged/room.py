"""Numbers of slots and pages that replies get, and the memory that is there for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch

from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.mixers.attention.declared import page_bytes, paged_tensors
from burnish_engine.models.decoder.mixers.gated_delta.cache import row_bytes
from burnish_engine.models.decoder.mixers.gated_delta.declared import prompt_numbers
from burnish_engine.models.decoder.stacked_linear import AdaptedRows
from burnish_engine.models.generation.packed_prompts import PROMPT_TOKENS
from burnish_engine.models.generation.paged.pages import PAGES_SHARE
from burnish_engine.models.generation.paged.slots import ReplySlots
from burnish_kernels.paged_attention.op import PAGE

PROMPTS_SHARE = 0.25
"""Share of free memory for reading prompts; what pages leave besides is for the steps."""
STATES_SHARE = 0.4
"""Most of free memory that the states of gated delta nets take before that."""
EXACT_SLOTS = 64
"""Slots where a reply must not depend on others: a product's order of summation follows from its number of rows."""
_LEAST_PROMPT_TOKENS = 256  # tokens of prompts read at once, however little memory there is


_BLOCK_STEP = 2 << 20  # bytes that a tensor may take of a block beyond its own, at most
_MOST = 1 << 30


@dataclass(frozen=True)
class IdleMemory:
    """Memory that something else leaves idle while replies are made, as training does between its passes.

    Attributes:
        blocks: function that returns the bytes of each free block.
        use: function that returns a context; what is allocated inside, on the current stream, lies in these blocks.
    """

    blocks: Callable[[], Sequence[int]]
    use: Callable[[], AbstractContextManager[object]]


class RoomSize(NamedTuple):
    """Sizes that some replies need.

    Attributes:
        slots: number of slots.
        pages: number of pages so that none ever waits for one.
        row_pages: most pages of a slot.
    """

    slots: int
    pages: int
    row_pages: int


@dataclass(frozen=True)
class SlotRoom:
    """Slots with their pages.

    Attributes:
        slots: the slots.
        pages: number of pages, page 0 included.
        prompt_tokens: tokens of prompts that are read at once.
        size: what they were made for.
        stops: tokens that end a reply.
    """

    slots: ReplySlots
    pages: int
    prompt_tokens: int
    size: RoomSize
    stops: frozenset[int]

    @staticmethod
    def wanted(texts: Sequence[int], together: int, decoder: Decoder, *, exact: bool = False) -> RoomSize:
        """Return what replies need; of slots with states only as many as fit.

        Args:
            texts: most tokens of each prompt with its reply, the longest first.
            together: most replies that grow at the same time.
            decoder: decoder that makes the replies.
            exact: whether replies must not depend on others: there are as many slots whatever is asked.
        """
        grow = min(together, len(texts), EXACT_SLOTS if exact else _most_slots(decoder))
        slots = EXACT_SLOTS if exact else grow
        pages = sum(-(-tokens // PAGE) for tokens in texts[:grow])
        row_pages = -(-texts[0] // PAGE)
        return RoomSize(slots, pages, 1 << (row_pages - 1).bit_length())

    @classmethod
    def build(
        cls,
        size: RoomSize,
        decoder: Decoder,
        stops: Set[int],
        rows: AdaptedRows | None = None,
        *,
        exact: bool = False,
        idle: IdleMemory | None = None,
    ) -> SlotRoom:
        """Allocate slots, and as many pages as are wanted and fit the free memory beside states; at least one.

        Free memory may lie in pieces, so that less of it is found than counted. Where idle memory holds all pages, or
        more than free memory does, they and what is allocated while prompts are read lie there.

        Args:
            size: what replies need.
            decoder: decoder that makes the replies.
            stops: tokens that end a reply.
            rows: rows that its adapter takes part in, which slots choose; None: all.
            exact: whether replies must not depend on others.
            idle: memory that is idle meanwhile; None: there is none.
        """
        blocks = idle.blocks() if idle is not None else ()
        free = _free_bytes(decoder.device) - sum(blocks) - size.slots * row_bytes(decoder.spec, decoder.dtype)
        pages, inside = min(size.pages, _most_pages(decoder, free)), _pages_in(decoder, blocks)
        memory: Callable[[], AbstractContextManager[object]] = nullcontext
        if idle is not None and min(size.pages, inside) >= pages:
            memory, pages, free = idle.use, min(size.pages, inside), sum(blocks)
        prompt_tokens = _prompt_tokens(decoder, free)
        made = partial(ReplySlots, decoder, size.slots, exact=exact, memory=memory)
        while True:
            try:
                with memory():
                    slots = made(1 + pages, size.row_pages, stops, rows)
            except torch.OutOfMemoryError:
                if pages == 1:
                    raise
                pages //= 2
            else:
                return cls(slots, 1 + pages, prompt_tokens, size, frozenset(stops))

    def serves(self, size: RoomSize, decoder: Decoder, stops: Set[int]) -> bool:
        """Return whether replies of this size need no others."""
        enough = all(have >= need for have, need in zip(self.size, size, strict=True))
        return enough and self.slots.decoder is decoder and self.stops == stops


def _free_bytes(device: torch.device) -> float:
    """Return the memory that is free or was freed; no bound on the CPU."""
    if device.type != "cuda":
        return math.inf
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _most_slots(decoder: Decoder) -> int:
    """Return the number of slots whose states fit; one at least."""
    each = row_bytes(decoder.spec, decoder.dtype)
    return max(1, int(min(_free_bytes(decoder.device) * STATES_SHARE / each, _MOST))) if each else _MOST


def _most_pages(decoder: Decoder, free: float) -> int:
    """Return the number of pages that fit; one at least."""
    each = page_bytes(decoder.spec, decoder.dtype.itemsize)
    return max(1, int(min(free * PAGES_SHARE / each, _MOST))) if each else _MOST


def _pages_in(decoder: Decoder, blocks: Sequence[int]) -> int:
    """Return the number of pages that blocks of memory hold beside the tensors of reading prompts; 0: none."""
    tensors, whole = paged_tensors(decoder.spec), page_bytes(decoder.spec, decoder.dtype.itemsize)
    if not tensors:
        return 0

    def fit(pages: int) -> bool:
        each = -(-(1 + pages) * (whole // tensors) // _BLOCK_STEP) * _BLOCK_STEP
        return sum(block // each for block in blocks) >= tensors

    low, high = 0, int(sum(blocks) * PAGES_SHARE / whole)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fit(middle) else (low, middle - 1)
    return low


def _prompt_tokens(decoder: Decoder, free: float) -> int:
    """Return the tokens of prompts that are read at once, by the widest tensors of a layer."""
    spec = decoder.spec
    feed_forward = spec.intermediate_size * max(spec.experts_per_token, 1)
    heads = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    mixer = max(heads + spec.num_heads * spec.head_dim, prompt_numbers(spec))
    each = (4 * spec.hidden_size + max(3 * feed_forward, mixer)) * decoder.dtype.itemsize
    return int(max(_LEAST_PROMPT_TOKENS, min(PROMPT_TOKENS, free * PROMPTS_SHARE / each)))
