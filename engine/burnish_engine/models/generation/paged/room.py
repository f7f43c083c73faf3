"""Numbers of slots and pages that replies get, and the memory that is there for them."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import torch

from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.mixers.attention.paged_cache import page_bytes
from burnish_engine.models.decoder.mixers.gated_delta.cache import row_bytes
from burnish_engine.models.decoder.mixers.gated_delta.declared import prompt_numbers
from burnish_engine.models.decoder.stacked_linear import AdaptedRows
from burnish_engine.models.generation.packed_prompts import PROMPT_TOKENS
from burnish_engine.models.generation.paged.slots import ReplySlots
from burnish_kernels.paged_attention.op import PAGE

PAGES_SHARE, PROMPTS_SHARE = 0.65, 0.25
"""Shares of free memory for pages and for reading prompts; the rest is for the steps."""
STATES_SHARE = 0.4
"""Most of free memory that the states of gated delta nets take before that."""
EXACT_SLOTS = 64
"""Slots where a reply must not depend on others: a product's order of summation follows from its number of rows."""
_LEAST_PROMPT_TOKENS = 256  # tokens of prompts read at once, however little memory there is


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
    ) -> SlotRoom:
        """Allocate slots, and as many pages as are wanted and fit the free memory beside states; at least one.

        Free memory may lie in pieces, so that less of it is found than counted.

        Args:
            size: what replies need.
            decoder: decoder that makes the replies.
            stops: tokens that end a reply.
            rows: rows that its adapter takes part in, which slots choose; None: all.
            exact: whether replies must not depend on others.
        """
        free = _free_bytes(decoder.device) - size.slots * row_bytes(decoder.spec, decoder.dtype)
        pages = min(size.pages, _most_pages(decoder, free))
        prompt_tokens = _prompt_tokens(decoder, free)
        while True:
            try:
                slots = ReplySlots(decoder, size.slots, 1 + pages, size.row_pages, stops, rows, exact=exact)
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
    return max(1, int(min(_free_bytes(decoder.device) * STATES_SHARE / each, 1 << 30))) if each else 1 << 30


def _most_pages(decoder: Decoder, free: float) -> int:
    """Return the number of pages that fit; one at least."""
    each = page_bytes(decoder.spec, decoder.dtype)
    return max(1, int(min(free * PAGES_SHARE / each, 1 << 30))) if each else 1 << 30


def _prompt_tokens(decoder: Decoder, free: float) -> int:
    """Return the tokens of prompts that are read at once, by the widest tensors of a layer."""
    spec = decoder.spec
    feed_forward = spec.intermediate_size * max(spec.experts_per_token, 1)
    heads = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    mixer = max(heads + spec.num_heads * spec.head_dim, prompt_numbers(spec))
    each = (4 * spec.hidden_size + max(3 * feed_forward, mixer)) * decoder.dtype.itemsize
    return int(max(_LEAST_PROMPT_TOKENS, min(PROMPT_TOKENS, free * PROMPTS_SHARE / each)))
