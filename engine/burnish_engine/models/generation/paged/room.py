"""Numbers of slots and pages that replies get, and the memory that is there for them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import torch

from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.mixers.attention.paged_cache import page_bytes
from burnish_engine.models.generation.paged.slots import ReplySlots
from burnish_kernels.paged_attention.op import PAGE

_SHARE_OF_FREE = 0.85  # share of free memory; the rest is for the steps themselves and for reading prompts


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
    """ReplySlots with their pages.

    Attributes:
        slots: the slots.
        pages: number of pages, page 0 included.
        size: what they were made for.
        stops: tokens that end a reply.
    """

    slots: ReplySlots
    pages: int
    size: RoomSize
    stops: frozenset[int]

    @staticmethod
    def wanted(texts: Sequence[int], together: int) -> RoomSize:
        """Return what replies need.

        Args:
            texts: most tokens of each prompt with its reply, the longest first.
            together: most replies that grow at the same time.
        """
        slots = min(together, len(texts))
        pages = sum(-(-tokens // PAGE) for tokens in texts[:slots])
        row_pages = -(-texts[0] // PAGE)
        return RoomSize(slots, pages, 1 << (row_pages - 1).bit_length())

    @classmethod
    def build(cls, size: RoomSize, decoder: Decoder, stops: Set[int]) -> SlotRoom:
        """Allocate slots, and as many pages as are wanted and fit the free memory; at least one.

        Free memory may lie in pieces, so that less of it is found than counted.
        """
        pages = min(size.pages, _most_pages(decoder))
        while True:
            try:
                slots = ReplySlots(decoder, size.slots, 1 + pages, size.row_pages, stops)
            except torch.OutOfMemoryError:
                if pages == 1:
                    raise
                pages //= 2
            else:
                return cls(slots, 1 + pages, size, frozenset(stops))

    def serves(self, size: RoomSize, decoder: Decoder, stops: Set[int]) -> bool:
        """Return whether replies of this size need no others."""
        enough = all(have >= need for have, need in zip(self.size, size, strict=True))
        return enough and self.slots.decoder is decoder and self.stops == stops


def _most_pages(decoder: Decoder) -> int:
    """Return the number of pages that fit the device's free memory."""
    each = page_bytes(decoder.spec, decoder.dtype)
    if decoder.device.type != "cuda" or not each:
        return 1 << 30
    free, _ = torch.cuda.mem_get_info(decoder.device)
    unused = torch.cuda.memory_reserved(decoder.device) - torch.cuda.memory_allocated(decoder.device)
    return max(1, int((free + unused) * _SHARE_OF_FREE) // each)
