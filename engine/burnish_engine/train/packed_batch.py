"""All that a pass needs to know of its documents, in one integer buffer of static size: computed once, uploaded once.

Kernels would otherwise each find out for themselves where documents begin and end, per layer and with a wait for the
device. Here NumPy works it out while the device is busy; the decoder's graphs read it at fixed addresses. Shapes:

- T: rows of the bucket, at least the tokens of the pass.
- G: attention's tiles, see `burnish_kernels.attention.tiles`.
- C: rows of one chunk of the language-model head; R: rows of all chunks, T rounded up to a multiple of C.

Rows past the last token are documents of their own, short so that attention spends next to nothing on them: no row is
uninitialized (one NaN would spoil every adapter's gradient), and none is supervised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from burnish_engine.data.pack import IGNORED, MicroBatch
from burnish_kernels.attention.tiles import document_tiles, tile_capacity

if TYPE_CHECKING:
    import torch

Int32s = npt.NDArray[np.int32]

PADDING_ROWS = 16
"""Tokens of a padding document. A rope table needs at least as many rows."""

BUCKET_MULTIPLE = 64
"""Buckets are multiples of this: matrix products and attention work on blocks of 64 or 128 rows."""

SMALLEST_BUCKET = 256
"""Below this a pass takes no less time: it waits for weights to be read."""

_ALIGNMENT = 32  # elements: each field begins on a cache line, and every pointer is a multiple of 16 bytes
_SCALAR_STRIDE = 4  # elements: so that a pointer to any scalar is a multiple of 16 bytes as well


@dataclass(frozen=True)
class StepScalars:
    """What one optimizer step has of its own, the same for all its passes.

    Attributes:
        normalizer: 1 / supervised tokens of the whole step; each pass's summed loss is multiplied by it.
        learning_rate: Of this step.
    """

    normalizer: float
    learning_rate: float


@dataclass(frozen=True, eq=False)
class Fields:
    """Views of a buffer, all int32 but the two scalars; NumPy arrays on the host, tensors on the device.

    Attributes:
        normalizer: [1] fp32, see `StepScalars`. It and the learning rate are at the same place in every layout.
        learning_rate: [1] fp32.
        ids_T: Token ids; 0 in padding.
        rope_row_T: Each token's row of the rope table: its position, moved to the long part in long documents.
        start_T: First row of the row's document.
        end_T: One past its last row.
        tiles_G4: See `document_tiles`.
        head_row_R: Supervised rows, ascending; then the last row, T - 1, again and again. That row ends a document,
            so it is never supervised: scattering the padding's zero gradients there meets no other row's.
        head_target_R: The token to predict from each; -100 in the padding.
    """

    normalizer: Any
    learning_rate: Any
    ids_T: Any
    rope_row_T: Any
    start_T: Any
    end_T: Any
    tiles_G4: Any
    head_row_R: Any
    head_target_R: Any


@dataclass(frozen=True)
class Counts:
    """What the host needs to know of a pass.

    Attributes:
        tokens: Real tokens.
        supervised: Rows that the loss counts.
        documents: Real documents.
        head_chunks: Chunks of the head that hold supervised rows; 0 when nothing is learned from this pass.
    """

    tokens: int
    supervised: int
    documents: int
    head_chunks: int


@dataclass(frozen=True)
class PackedLayout:
    """Where each field lies in the buffer of one bucket.

    Attributes:
        rows: T.
        tile_rows: Rows of an attention tile.
        head_rows: C.
        long_above: Documents with more tokens use the long part of the rope table; None: there is none.
        long_offset: Row at which the long part begins.
    """

    rows: int
    tile_rows: int
    head_rows: int
    long_above: int | None = None
    long_offset: int = 0

    @property
    def head_capacity(self) -> int:
        """R."""
        return -(-self.rows // self.head_rows) * self.head_rows

    @property
    def tiles(self) -> int:
        """G."""
        return tile_capacity(self.rows, self.tile_rows)

    @cached_property
    def spans(self) -> dict[str, tuple[int, int]]:
        """First element and length of each field."""
        lengths = {
            "normalizer": 1,
            "learning_rate": 1,
            "ids_T": self.rows,
            "rope_row_T": self.rows,
            "start_T": self.rows,
            "end_T": self.rows,
            "tiles_G4": 4 * self.tiles,
            "head_row_R": self.head_capacity,
            "head_target_R": self.head_capacity,
        }
        spans, at = {}, 0
        for name, length in lengths.items():
            spans[name] = (at, length)
            at = _round_up(at + length, _SCALAR_STRIDE if length == 1 else _ALIGNMENT)
            if name == "learning_rate":
                at = _round_up(at, _ALIGNMENT)
        return spans

    @cached_property
    def size(self) -> int:
        """Elements of the buffer, 4 bytes each."""
        first, length = self.spans["head_target_R"]
        return _round_up(first + length, _ALIGNMENT)

    def views(self, buffer: torch.Tensor) -> Fields:
        """The fields in an int32 tensor of at least `size` elements."""
        import torch

        return self._views(buffer, torch.float32)

    def arrays(self, buffer: Int32s) -> Fields:
        """The fields in an int32 array of at least `size` elements."""
        return self._views(buffer, np.float32)

    def _views(self, buffer: Any, float_type: Any) -> Fields:
        fields = {name: buffer[first : first + length] for name, (first, length) in self.spans.items()}
        for name in ("normalizer", "learning_rate"):
            fields[name] = fields[name].view(float_type)
        fields["tiles_G4"] = fields["tiles_G4"].reshape(self.tiles, 4)
        return Fields(**fields)


def fill_buffer(batch: MicroBatch, layout: PackedLayout, buffer: Int32s) -> Counts:
    """Write all fields but the scalars.

    Args:
        batch: Documents of one pass.
        layout: With at least as many rows as the batch has tokens.
        buffer: [layout.size], overwritten.

    Raises:
        ValueError: The batch does not fit.
    """
    tokens, rows = batch.tokens, layout.rows
    if tokens > rows:
        raise ValueError(f"a pass of {tokens} tokens does not fit {rows} rows")
    fields = layout.arrays(buffer)
    boundaries = np.concatenate([batch.boundaries, _padding_ends(tokens, rows)]).astype(np.int32)
    lengths = np.diff(boundaries)
    fields.ids_T[:tokens] = batch.input_ids
    fields.ids_T[tokens:] = 0
    fields.start_T[:] = np.repeat(boundaries[:-1], lengths)
    fields.end_T[:] = np.repeat(boundaries[1:], lengths)
    np.subtract(np.arange(rows, dtype=np.int32), fields.start_T, out=fields.rope_row_T)
    if layout.long_above is not None:
        long = np.repeat(lengths > layout.long_above, lengths)
        fields.rope_row_T[long] += layout.long_offset
    fields.tiles_G4[:] = document_tiles(boundaries, layout.tile_rows, rows)
    supervised_rows = np.flatnonzero(batch.labels != IGNORED)
    supervised = len(supervised_rows)
    fields.head_row_R[:supervised] = supervised_rows
    fields.head_row_R[supervised:] = rows - 1
    fields.head_target_R[:supervised] = batch.labels[supervised_rows]
    fields.head_target_R[supervised:] = IGNORED
    return Counts(tokens, supervised, len(batch.rows), -(-supervised // layout.head_rows))


def write_scalars(scalars: StepScalars, layout: PackedLayout, buffer: Int32s) -> None:
    """Write the scalars, which `fill_buffer` leaves alone."""
    fields = layout.arrays(buffer)
    fields.normalizer[0] = scalars.normalizer
    fields.learning_rate[0] = scalars.learning_rate


def buckets(budget: int, packed: bool, most: int | None = None) -> tuple[int, ...]:
    """Static sizes of passes, ascending; each costs a capture, so there are few.

    Packed passes fill their budget to a few percent, except for the last one of every packing window: one size for
    the budget and one for half of it. Without packing a pass is one document of whatever length: halves of the budget
    down to 256, so that on average a quarter of the rows is padding.

    Args:
        budget: Most tokens of a pass.
        packed: Whether passes hold several documents.
        most: Most tokens that any pass can have with this data, where that is known to be less: the sum of all
            documents when packed, else the longest.
    """
    size = _round_up(max(min(budget, most or budget), 1), BUCKET_MULTIPLE)
    sizes = [size]
    while (half := _round_up(sizes[-1] // 2, BUCKET_MULTIPLE)) >= SMALLEST_BUCKET and half < sizes[-1]:
        sizes.append(half)
        if packed:
            break
    return tuple(reversed(sizes))


def layout_for(tokens: int, layouts: Sequence[PackedLayout]) -> PackedLayout:
    """The smallest layout that holds a pass of so many tokens.

    Raises:
        ValueError: None does.
    """
    fitting = [layout for layout in layouts if layout.rows >= tokens]
    if not fitting:
        raise ValueError(f"no bucket holds a pass of {tokens} tokens")
    return min(fitting, key=lambda layout: layout.rows)


def _padding_ends(tokens: int, rows: int) -> Int32s:
    """Ends of the padding documents: whole ones, then what is left."""
    ends = np.arange(tokens + PADDING_ROWS, rows, PADDING_ROWS, dtype=np.int32)
    return np.append(ends, np.int32(rows)) if tokens < rows else ends


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
