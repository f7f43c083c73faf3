"""Lay a micro-batch out in one integer buffer of static size: computed once on the host, uploaded once.

Otherwise each kernel would find out for itself, per layer and with a wait for the device, where documents begin and
end. Here NumPy computes it while the device is busy; the decoder's graphs read it at fixed addresses.

Forms of one batch, in the order in which it takes them:

| form | type | content |
|---|---|---|
| micro-batch | `data.tokens.pack.MicroBatch` | documents of one forward and backward: NumPy arrays of real length |
| bucket layout | `BucketLayout` | capacity of a bucket, and the place of each field in its buffer |
| host batch | `prefetch.HostBatch` | a micro-batch written into a page-locked buffer of the layout; `BatchCounts` |
| device batch | `BatchFields` | views of the uploaded buffer on the device (or of the host's, for writing) |
| sequence metadata | `layer_types.SequenceMetadata` | the fields that every decoder layer reads: rope rows, documents |

Shapes:

- T: capacity of the bucket in tokens, at least the tokens of the micro-batch.
- G: attention's tiles, see `burnish_kernels.attention.tiles`.
- C: tokens of one chunk of the language-model head; R: tokens of all chunks, T rounded up to a multiple of C.

Positions past the last token form documents of their own, short so that attention spends next to nothing on them: no
position is uninitialized (one NaN would spoil every adapter's gradient), and none is supervised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_reinforce import ReinforceSection
from burnish_engine.data.tokens.pack import IGNORED, MicroBatch
from burnish_engine.models.decoder.layer_types import SequenceMetadata
from burnish_kernels.attention.documents import Documents
from burnish_kernels.attention.tiles import document_tiles, tile_capacity

Int32s = npt.NDArray[np.int32]

PADDING_DOCUMENT_TOKENS = 16
"""Number of tokens of a padding document. A rope table needs at least as many rows."""

_ALIGNMENT = 32  # elements: each field begins on a cache line, and every pointer is a multiple of 16 bytes
_FLOATS = {
    "normalizer", "learning_rate", "chosen_normalizer", "good_scale", "bad_scale", "sequence_tokens_S", "reference_S",
    "desirable_S", "has_old", "advantage_S", "share_S", "old_R", "reference_R",
}  # fmt: skip
_SCALAR_STRIDE = 4  # elements: so that a pointer to any scalar is a multiple of 16 bytes as well
BatchContent = Literal["rows", "pairs", "labels", "own"]
"""Content of micro-batches: rows as they stand, preference pairs, replies labeled good or bad, or the model's own."""
LearnedObjective = PreferenceSection | ReinforceSection
"""Recipe section of an objective that weighs tokens by more than their count."""


def batch_content(objective: LearnedObjective | None) -> BatchContent:
    """Return the content of micro-batches for an objective; None: rows are learned as they stand."""
    if isinstance(objective, ReinforceSection):
        return "own"
    return "rows" if objective is None else "labels" if objective.learns_labels else "pairs"


@dataclass(frozen=True)
class StepScalars:
    """Scalars of one optimizer step, the same for all its micro-batches.

    Attributes:
        normalizer: 1 / supervised tokens of the whole step; each micro-batch's summed loss is multiplied by it.
        learning_rate: learning rate of the step.
        chosen_normalizer: 1 / supervised tokens of the chosen replies of the whole step; for preference pairs, whose
            `normalizer` is 1 / pairs.
        good_scale: for labeled replies, whose `normalizer` is 1 / replies: replies / good ones over the whole step; not
            a number where none is good.
        bad_scale: the same of the bad ones.
    """

    normalizer: float
    learning_rate: float
    chosen_normalizer: float = 0.0
    good_scale: float = 0.0
    bad_scale: float = 0.0


@dataclass(frozen=True, eq=False)
class BatchFields:
    """Views of a batch buffer, all int32 but what says fp32; NumPy arrays on the host, tensors on the device.

    Attributes:
        normalizer: [1] fp32, see `StepScalars`. Both scalars are at the same place in every layout.
        learning_rate: [1] fp32.
        ids_T: token ids; 0 in padding.
        rope_row_T: each token's row of the rope table: its position, moved to the long part in long documents.
        start_T: first position of each token's document.
        end_T: one past the last position of each token's document.
        tiles_G4: attention's tiles, see `document_tiles`.
        head_position_R: positions of supervised tokens, ascending; then T - 1 repeated. That position ends a document,
            so it is never supervised: scattering the padding's zero gradients there meets no other gradient.
        head_target_R: token to predict from each of these positions; -100 in the padding.
        chosen_normalizer: [1] fp32, see `StepScalars`; this and the following of layouts of preferences only.
        good_scale: [1] fp32, see `StepScalars`.
        bad_scale: [1] fp32, see `StepScalars`.
        sequence_T: number of each token's sequence, of pairs chosen and rejected by turns; S - 1 in padding.
        sequence_tokens_S: fp32, supervised tokens of each sequence; 0 behind the last.
        reference_S: fp32, log-probability of each sequence under the reference; 0 where the objective needs none.
        desirable_S: fp32, 1 where the reply is labeled good, else 0.
        has_old: [1] fp32, 1 where `old_R` is known, else 0; this and the following of own replies only.
        advantage_S: fp32, see `ReplyTerms`; 0 behind the last reply.
        share_S: fp32, see `ReplyTerms`; 0 behind the last reply.
        old_R: fp32, see `ReplyTerms`; 0 in the padding.
        reference_R: fp32, see `ReplyTerms`; 0 in the padding.
    """

    normalizer: Any
    learning_rate: Any
    ids_T: Any
    rope_row_T: Any
    start_T: Any
    end_T: Any
    tiles_G4: Any
    head_position_R: Any
    head_target_R: Any
    chosen_normalizer: Any = None
    good_scale: Any = None
    bad_scale: Any = None
    sequence_T: Any = None
    sequence_tokens_S: Any = None
    reference_S: Any = None
    desirable_S: Any = None
    has_old: Any = None
    advantage_S: Any = None
    share_S: Any = None
    old_R: Any = None
    reference_R: Any = None


@dataclass(frozen=True)
class BatchCounts:
    """Counts of a micro-batch that the host needs.

    Attributes:
        tokens: number of real tokens.
        supervised: number of tokens that the loss counts.
        documents: number of real documents.
        head_chunks: number of head chunks that hold supervised tokens; 0 where there is none.
    """

    tokens: int
    supervised: int
    documents: int
    head_chunks: int


@dataclass(frozen=True)
class BucketLayout:
    """Place of each field in the buffer of one bucket.

    Attributes:
        capacity: T, the tokens that a bucket holds.
        tile_rows: tokens of an attention tile.
        head_chunk_tokens: C, the tokens of one chunk of the head.
        long_above: length above which documents use the long part of the rope table; None: there is none.
        long_offset: row of the rope table at which the long part begins.
        content: kind of documents in the micro-batches.
    """

    capacity: int
    tile_rows: int
    head_chunk_tokens: int
    long_above: int | None = None
    long_offset: int = 0
    content: BatchContent = "rows"

    @property
    def sequences(self) -> int:
        """S, the most sequences of preferences, of two tokens or more each, and two more for the padding."""
        return 2 * (self.capacity // 4) + 2

    @property
    def head_capacity(self) -> int:
        """R, the tokens of all head chunks."""
        return -(-self.capacity // self.head_chunk_tokens) * self.head_chunk_tokens

    @property
    def tiles(self) -> int:
        """G, the number of attention tiles."""
        return tile_capacity(self.capacity, self.tile_rows)

    @cached_property
    def spans(self) -> dict[str, tuple[int, int]]:
        """First element and length of each field, by its name."""
        lengths = {
            "normalizer": 1,
            "learning_rate": 1,
            "ids_T": self.capacity,
            "rope_row_T": self.capacity,
            "start_T": self.capacity,
            "end_T": self.capacity,
            "tiles_G4": 4 * self.tiles,
            "head_position_R": self.head_capacity,
            "head_target_R": self.head_capacity,
        }
        if self.content == "own":
            lengths["has_old"] = 1
            lengths["sequence_T"] = self.capacity
            lengths["sequence_tokens_S"] = lengths["advantage_S"] = lengths["share_S"] = self.sequences
            lengths["old_R"] = lengths["reference_R"] = self.head_capacity
        elif self.content != "rows":
            lengths["chosen_normalizer"] = lengths["good_scale"] = lengths["bad_scale"] = 1
            lengths["sequence_T"] = self.capacity
            lengths["sequence_tokens_S"] = lengths["reference_S"] = self.sequences
            lengths["desirable_S"] = self.sequences
        spans, at = {}, 0
        for name, length in lengths.items():
            spans[name] = (at, length)
            at = _round_up(at + length, _SCALAR_STRIDE if name == "normalizer" else _ALIGNMENT)
        return spans

    @cached_property
    def size(self) -> int:
        """Number of elements of the buffer, 4 bytes each."""
        first, length = next(reversed(self.spans.values()))
        return _round_up(first + length, _ALIGNMENT)

    def views(self, buffer: torch.Tensor) -> BatchFields:
        """Return views of the fields in an int32 tensor of at least `size` elements."""
        return self._views(buffer, torch.float32)

    def arrays(self, buffer: Int32s) -> BatchFields:
        """Return views of the fields in an int32 array of at least `size` elements."""
        return self._views(buffer, np.float32)

    def _views(self, buffer: Any, float_type: Any) -> BatchFields:
        fields = {name: buffer[first : first + length] for name, (first, length) in self.spans.items()}
        for name in _FLOATS.intersection(fields):
            fields[name] = fields[name].view(float_type)
        fields["tiles_G4"] = fields["tiles_G4"].reshape(self.tiles, 4)
        return BatchFields(**fields)


def fill_buffer(batch: MicroBatch, layout: BucketLayout, buffer: Int32s) -> BatchCounts:
    """Write all fields of a micro-batch but the scalars.

    Args:
        batch: documents of one micro-batch.
        layout: layout with a capacity of at least the batch's tokens.
        buffer: [layout.size] int32, overwritten.

    Raises:
        ValueError: The batch exceeds the capacity.
    """
    tokens, capacity = batch.tokens, layout.capacity
    if tokens > capacity:
        raise ValueError(f"a pass of {tokens} tokens does not fit a bucket of {capacity}")
    fields = layout.arrays(buffer)
    boundaries = np.concatenate([batch.boundaries, _padding_ends(tokens, capacity)]).astype(np.int32)
    lengths = np.diff(boundaries)
    fields.ids_T[:tokens] = batch.input_ids
    fields.ids_T[tokens:] = 0
    fields.start_T[:] = np.repeat(boundaries[:-1], lengths)
    fields.end_T[:] = np.repeat(boundaries[1:], lengths)
    np.subtract(np.arange(capacity, dtype=np.int32), fields.start_T, out=fields.rope_row_T)
    if layout.long_above is not None:
        long = np.repeat(lengths > layout.long_above, lengths)
        fields.rope_row_T[long] += layout.long_offset
    fields.tiles_G4[:] = document_tiles(boundaries, layout.tile_rows, capacity)
    positions = np.flatnonzero(batch.labels != IGNORED)
    supervised = len(positions)
    fields.head_position_R[:supervised] = positions
    fields.head_position_R[supervised:] = capacity - 1
    fields.head_target_R[:supervised] = batch.labels[positions]
    fields.head_target_R[supervised:] = IGNORED
    if layout.content != "rows":
        _fill_sequences(batch, layout, fields)
    if layout.content == "own":
        _fill_terms(batch, fields)
    elif layout.content != "rows":
        _fill_preferences(batch, layout, fields)
    return BatchCounts(tokens, supervised, len(batch.boundaries) - 1, -(-supervised // layout.head_chunk_tokens))


def sequence_metadata(layout: BucketLayout, fields: BatchFields) -> SequenceMetadata:
    """Gather the fields of an uploaded batch that every decoder layer reads."""
    documents = Documents(fields.start_T, fields.end_T, fields.tiles_G4, layout.tile_rows)
    return SequenceMetadata(fields.rope_row_T, documents)


def write_scalars(scalars: StepScalars, layout: BucketLayout, buffer: Int32s) -> None:
    """Write the scalars, which `fill_buffer` leaves alone."""
    fields = layout.arrays(buffer)
    fields.normalizer[0] = scalars.normalizer
    fields.learning_rate[0] = scalars.learning_rate
    if layout.content in ("pairs", "labels"):
        fields.chosen_normalizer[0] = scalars.chosen_normalizer
        fields.good_scale[0], fields.bad_scale[0] = scalars.good_scale, scalars.bad_scale


def _fill_sequences(batch: MicroBatch, layout: BucketLayout, fields: BatchFields) -> None:
    count = len(batch.boundaries) - 1
    fields.sequence_T[: batch.tokens] = np.repeat(np.arange(count, dtype=np.int32), np.diff(batch.boundaries))
    fields.sequence_T[batch.tokens :] = layout.sequences - 1
    fields.sequence_tokens_S[:count] = batch.sequence_tokens
    fields.sequence_tokens_S[count:] = 0


def _fill_preferences(batch: MicroBatch, layout: BucketLayout, fields: BatchFields) -> None:
    count = len(batch.boundaries) - 1
    fields.reference_S[:] = 0
    if batch.reference is not None:
        fields.reference_S[:count] = batch.reference
    fields.desirable_S[:] = 0
    if layout.content == "labels" and batch.desirable is not None:
        fields.desirable_S[:count] = batch.desirable


def _fill_terms(batch: MicroBatch, fields: BatchFields) -> None:
    for name in ("has_old", "advantage_S", "share_S", "old_R", "reference_R"):
        getattr(fields, name)[:] = 0
    terms = batch.replies
    if terms is None:  # rows of the data, which nothing is learned from
        return
    fields.has_old[0] = terms.old is not None
    fields.advantage_S[: len(terms.advantage)], fields.share_S[: len(terms.share)] = terms.advantage, terms.share
    for field, values in ((fields.old_R, terms.old), (fields.reference_R, terms.reference)):
        if values is not None:
            field[: len(values)] = values


def layout_for(tokens: int, layouts: Sequence[BucketLayout]) -> BucketLayout:
    """Return the smallest layout that holds a number of tokens.

    Raises:
        ValueError: No layout holds them.
    """
    fitting = [layout for layout in layouts if layout.capacity >= tokens]
    if not fitting:
        raise ValueError(f"no bucket holds a pass of {tokens} tokens")
    return min(fitting, key=lambda layout: layout.capacity)


def _padding_ends(tokens: int, capacity: int) -> Int32s:
    """List the ends of the padding documents; the last one may be shorter than the others."""
    ends = np.arange(tokens + PADDING_DOCUMENT_TOKENS, capacity, PADDING_DOCUMENT_TOKENS, dtype=np.int32)
    return np.append(ends, np.int32(capacity)) if tokens < capacity else ends


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
