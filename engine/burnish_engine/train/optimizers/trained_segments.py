"""Describe the tensors that a flat optimizer trains, and divide them into the tensors that a library gets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

import torch

from burnish_kernels.adamw.op import FlatLayout


@dataclass(frozen=True)
class TrainedSegments:
    """Tensors to train, one in each segment of the flat buffers.

    Attributes:
        layout: layout of the flat buffers, made for the compute buffer's device.
        compute_buffer: buffer of the compute copies, one-dimensional, fp32, fp16 or bf16; None: see `FlatOptimizer`.
        names: name of each segment.
        rates: factor on the learning rate of each segment.
        non_matrix: indices of segments that Muon must not orthogonalize (vectors, embeddings, head); AdamW moves them.
        shapes: shape of each segment's tensor; None: (rows, columns).
        loss_scale: initial loss scale, a power of two; 1 unless the compute buffer is fp16.
    """

    layout: FlatLayout
    compute_buffer: torch.Tensor | None
    names: Sequence[str]
    rates: Sequence[float]
    non_matrix: Collection[int] = ()
    shapes: Sequence[tuple[int, ...]] | None = None
    loss_scale: float = 1.0

    @property
    def rates_on_device(self) -> torch.Tensor | None:
        """`FlatOptimizer.rates`: `rates` on the layout's device, `[segments]` fp32; None where all are 1."""
        if all(rate == 1.0 for rate in self.rates):
            return None
        return torch.tensor(self.rates, dtype=torch.float32).to(self.layout.tables.scales.device)

    def one_each(self) -> list[SegmentGroup]:
        """Make a tensor of each segment."""
        return [self._alone(index) for index in range(len(self.layout.segments))]

    def joined(self, *, least: int = 0, alike: bool = False) -> list[SegmentGroup]:
        """Make one tensor of neighboring segments, for libraries that launch kernels for each tensor.

        Args:
            least: number of elements below which a segment stays alone.
            alike: whether to join only segments of the same weight decay and learning rate.
        """

        def key(index: int) -> tuple[object, bool]:
            segment = self.layout.segments[index]
            return (segment.decay, self.rates[index]) if alike else None, segment.elements < least

        found: list[SegmentGroup] = []
        for (_, small), run in groupby(range(len(self.layout.segments)), key=key):
            indices = list(run)
            found += map(self._alone, indices) if small else [self._together(indices[0], indices[-1])]
        return found

    def padding(self) -> torch.Tensor:
        """List the elements of a flat buffer that belong to no segment, int64 on the layout's device."""
        gaps = [
            torch.arange(start + segment.elements, end)
            for start, segment, end in zip(self.layout.starts, self.layout.segments, self._ends, strict=True)
        ]
        return torch.cat(gaps).to(self.layout.tables.scales.device)

    @property
    def _ends(self) -> tuple[int, ...]:
        return (*self.layout.starts[1:], self.layout.total)

    def _alone(self, index: int) -> SegmentGroup:
        segment = self.layout.segments[index]
        shape = self.shapes[index] if self.shapes else (segment.rows, segment.columns)
        return SegmentGroup(self.names[index], index, self.layout.starts[index], shape)

    def _together(self, first: int, last: int) -> SegmentGroup:
        name = self.names[first] if first == last else f"{self.names[first]}..{self.names[last]}"
        start = self.layout.starts[first]
        return SegmentGroup(name, first, start, (self._ends[last] - start,))


@dataclass(frozen=True)
class SegmentGroup:
    """One or more neighboring segments that a library gets as one tensor.

    Attributes:
        name: name of the segment, or of the first and the last one.
        first: index of the first segment.
        start: element of a flat buffer where the piece starts.
        shape: shape of the tensor; joined segments are a vector, which has their padding too.
    """

    name: str
    first: int
    start: int
    shape: tuple[int, ...]

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the tensor in a flat buffer, sharing its memory."""
        return flat[self.start : self.start + prod(self.shape)].view(self.shape)
