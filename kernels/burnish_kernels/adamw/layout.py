"""Where each adapter matrix lives in the flat buffer, and where its copy in the compute dtype goes.

A segment is one matrix, row-major in the flat buffer. Segments start at multiples of `BLOCK`, so that one program never
meets two of them; the elements between are padding and stay 0 in every buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import torch

BLOCK = 1024
"""Elements a program updates: enough for coalesced access, and little padding for a rank-8 matrix."""

MAX_VECTOR = 4
"""Neighboring elements that a thread handles: 16 bytes of fp32."""

MAX_PARTIALS = 1024
"""Partial sums of squares, at most: a number that no GPU decides, so that the norm has the same bits everywhere."""

MAX_SEGMENT = 2**31 - BLOCK
"""Elements a segment may have: places within it are 32-bit."""


@dataclass(frozen=True)
class Segment:
    """One matrix and its shadow, the scaled copy in the compute dtype that the matrix products read.

    Attributes:
        rows: Rows of the matrix.
        columns: Columns of the matrix.
        shadow_offset: Element of the arena where the shadow's first row starts.
        shadow_row_stride: Elements of the arena from one of its rows to the next.
        shadow_scale: Factor of the shadow (LoRA's alpha / rank, or 1).
        decay: Whether weight decay applies.
    """

    rows: int
    columns: int
    shadow_offset: int
    shadow_row_stride: int
    shadow_scale: float = 1.0
    decay: bool = True

    @property
    def elements(self) -> int:
        """Elements of the matrix."""
        return self.rows * self.columns

    @property
    def shadow_end(self) -> int:
        """One past the last element of the arena that the shadow takes."""
        return self.shadow_offset + (self.rows - 1) * self.shadow_row_stride + self.columns


START, ELEMENTS, COLUMNS, SHADOW_OFFSET, SHADOW_ROW_STRIDE, DECAY = range(6)
"""Columns of `Tables.geometry`."""


@dataclass(frozen=True)
class Tables:
    """The layout on the device, for S segments and N blocks.

    Attributes:
        block_segments: [N] int32, the segment that each block belongs to.
        geometry: [S, 6] int64: START, ELEMENTS, COLUMNS, SHADOW_OFFSET, SHADOW_ROW_STRIDE, DECAY.
        scales: [S] fp32, `Segment.shadow_scale`.
    """

    block_segments: torch.Tensor
    geometry: torch.Tensor
    scales: torch.Tensor


class FlatLayout:
    """Places of all segments.

    Attributes:
        segments: In the order given.
        starts: Element of the flat buffer where each segment starts.
        total: Elements of the flat buffer, padding included.
        blocks: `total` / `BLOCK`.
        partials: Partial sums of squares of the gradient.
        vector: Elements that always lie together in a matrix row and in its shadow: 1, 2 or 4.
        shadow_end: Fewest elements the arena must have.
        tables: The same on the device, for the kernels.

    Raises:
        ValueError: There is no segment, or one has an impossible size.
    """

    def __init__(self, segments: Iterable[Segment], device: torch.device | str) -> None:
        self.segments = tuple(segments)
        if not self.segments:
            raise ValueError("there is nothing to optimize: the layout has no segments")
        for segment in self.segments:
            _validate(segment)
        blocks_S = [-(-segment.elements // BLOCK) for segment in self.segments]
        self.blocks = sum(blocks_S)
        self.total = self.blocks * BLOCK
        self.partials = min(self.blocks, MAX_PARTIALS)
        self.starts = tuple(BLOCK * before for before in accumulate(blocks_S[:-1], initial=0))
        self.shadow_end = max(segment.shadow_end for segment in self.segments)
        self.vector = math.gcd(
            MAX_VECTOR, *(n for s in self.segments for n in (s.columns, s.shadow_offset, s.shadow_row_stride))
        )
        self.tables = self._tables(blocks_S, device)

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Each segment's `[rows, columns]` in a flat buffer, sharing its memory."""
        if flat.shape != (self.total,):
            raise ValueError(f"the flat buffer must be [{self.total}], not {tuple(flat.shape)}")
        return [
            flat[start : start + segment.elements].view(segment.rows, segment.columns)
            for start, segment in zip(self.starts, self.segments, strict=True)
        ]

    def shadows(self, arena: torch.Tensor) -> list[torch.Tensor]:
        """Each segment's `[rows, columns]` shadow in the arena, sharing its memory."""
        return [
            arena.as_strided((s.rows, s.columns), (s.shadow_row_stride, 1), arena.storage_offset() + s.shadow_offset)
            for s in self.segments
        ]

    def _tables(self, blocks_S: list[int], device: torch.device | str) -> Tables:
        geometry = [
            (start, s.elements, s.columns, s.shadow_offset, s.shadow_row_stride, int(s.decay))
            for start, s in zip(self.starts, self.segments, strict=True)
        ]
        return Tables(
            block_segments=torch.repeat_interleave(torch.tensor(blocks_S)).to(device, torch.int32),
            geometry=torch.tensor(geometry, dtype=torch.int64).to(device),
            scales=torch.tensor([s.shadow_scale for s in self.segments], dtype=torch.float32).to(device),
        )


def own_segments(shapes: Iterable[tuple[int, int]], decays: Iterable[bool]) -> list[Segment]:
    """Segments that are their own shadows, for an optimizer without an arena.

    Args:
        shapes: Rows and columns of each.
        decays: Whether weight decay applies to each.
    """
    found, start = [], 0
    for (rows, columns), decay in zip(shapes, decays, strict=True):
        found.append(Segment(rows, columns, start, columns, decay=decay))
        start += BLOCK * -(-rows * columns // BLOCK)
    return found


def _validate(segment: Segment) -> None:
    if segment.rows < 1 or segment.columns < 1 or segment.elements > MAX_SEGMENT:
        raise ValueError(
            f"a segment must have from 1 to {MAX_SEGMENT} elements, not {segment.rows} x {segment.columns}"
        )
    if segment.shadow_offset < 0 or (segment.rows > 1 and segment.shadow_row_stride < segment.columns):
        raise ValueError(
            f"a shadow of {segment.columns} columns cannot start at {segment.shadow_offset} "
            f"with a row every {segment.shadow_row_stride} elements"
        )
