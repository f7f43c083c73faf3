"""The layout of adapter matrices in the flat buffer, and of their copies in the compute buffer.

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
    """One matrix and its compute copy, the scaled copy in the compute dtype that the matrix products read.

    Attributes:
        rows: number of rows of the matrix.
        columns: number of columns of the matrix.
        copy_offset: element of the compute buffer where the copy's first row starts.
        copy_row_stride: elements of the compute buffer from one of its rows to the next.
        copy_scale: factor of the copy (LoRA's alpha / rank, or 1).
        decay: whether weight decay applies.
    """

    rows: int
    columns: int
    copy_offset: int
    copy_row_stride: int
    copy_scale: float = 1.0
    decay: bool = True

    @property
    def elements(self) -> int:
        """Number of elements of the matrix."""
        return self.rows * self.columns

    @property
    def copy_end(self) -> int:
        """One past the last element of the compute buffer that the copy takes."""
        return self.copy_offset + (self.rows - 1) * self.copy_row_stride + self.columns


@dataclass(frozen=True)
class Tables:
    """The layout on the device, for S segments and N blocks.

    Attributes:
        block_segments: [N] int32, the segment that each block belongs to.
        geometry: [S, 6] int64: start, elements, columns, offset and row stride of the compute copy, decay.
        scales: [S] fp32, `Segment.copy_scale`.
    """

    block_segments: torch.Tensor
    geometry: torch.Tensor
    scales: torch.Tensor


class FlatLayout:
    """The positions of all segments in flat buffers.

    Attributes:
        segments: matrices in the order given.
        starts: element of the flat buffer where each segment starts.
        total: elements of the flat buffer, padding included.
        blocks: number of blocks, `total` / `BLOCK`.
        partials: number of partial sums of squares of the gradient.
        vector: number of elements that always lie together in a matrix row and in its copy: 1, 2 or 4.
        copy_end: fewest elements the compute buffer must have.
        tables: the same layout on the device, for the kernels.

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
        self.copy_end = max(segment.copy_end for segment in self.segments)
        self.vector = math.gcd(
            MAX_VECTOR, *(n for s in self.segments for n in (s.columns, s.copy_offset, s.copy_row_stride))
        )
        self.tables = self._tables(blocks_S, device)

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return each segment's `[rows, columns]` in a flat buffer, sharing its memory."""
        if flat.shape != (self.total,):
            raise ValueError(f"the flat buffer must be [{self.total}], not {tuple(flat.shape)}")
        return [
            flat[start : start + segment.elements].view(segment.rows, segment.columns)
            for start, segment in zip(self.starts, self.segments, strict=True)
        ]

    def compute_copies(self, compute_buffer: torch.Tensor) -> list[torch.Tensor]:
        """Return each segment's `[rows, columns]` copy in the compute buffer, sharing its memory."""
        return [
            compute_buffer.as_strided(
                (s.rows, s.columns), (s.copy_row_stride, 1), compute_buffer.storage_offset() + s.copy_offset
            )
            for s in self.segments
        ]

    def _tables(self, blocks_S: list[int], device: torch.device | str) -> Tables:
        geometry = [
            (start, s.elements, s.columns, s.copy_offset, s.copy_row_stride, int(s.decay))
            for start, s in zip(self.starts, self.segments, strict=True)
        ]
        return Tables(
            block_segments=torch.repeat_interleave(torch.tensor(blocks_S)).to(device, torch.int32),
            geometry=torch.tensor(geometry, dtype=torch.int64).to(device),
            scales=torch.tensor([s.copy_scale for s in self.segments], dtype=torch.float32).to(device),
        )


def own_segments(shapes: Iterable[tuple[int, int]], decays: Iterable[bool]) -> list[Segment]:
    """Make segments that are their own compute copies, for an optimizer without a compute buffer.

    Args:
        shapes: rows and columns of each segment.
        decays: whether weight decay applies, per segment.
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
    if segment.copy_offset < 0 or (segment.rows > 1 and segment.copy_row_stride < segment.columns):
        raise ValueError(
            f"a compute copy of {segment.columns} columns cannot start at {segment.copy_offset} "
            f"with a row every {segment.copy_row_stride} elements"
        )
