"""Tokenized rows as a few arrays: in memory, or in a file that is mapped and not loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.files import replace_with_retry
from burnish_engine.data.notes import Notes
from burnish_engine.data.tokenize import Document

Ints = npt.NDArray[np.int64]

BAND_COUNT = 8
"""Hashes of a row that near-duplicates share; see `near`."""
_WIDE = ("rows", "sources", "positions", "digests", "token_ends", "span_ends")


@dataclass(frozen=True, eq=False)
class Shard:
    """The documents of some rows, in order. n documents, T tokens, S learned spans.

    Attributes:
        tokens: [T] int32, the ids of one document after another, at full length.
        token_ends: [n] where each document's tokens end.
        spans: [S, 2] int32, learned tokens of a document as (first, one past the last) within it.
        span_ends: [n] where each document's spans end.
        rows: [n] number of the row in its part.
        sources: [n] index of the part.
        positions: [n] place of the row among the part's rows, from 0.
        digests: [n] hash of what the row says; equal rows have equal ones.
        bands: [n, 8] uint32; near-duplicates share at least one.
        notes: What was noticed, rows that were dropped included.
    """

    tokens: npt.NDArray[np.int32]
    token_ends: Ints
    spans: npt.NDArray[np.int32]
    span_ends: Ints
    rows: Ints
    sources: Ints
    positions: Ints
    digests: Ints
    bands: npt.NDArray[np.uint32]
    notes: Notes

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Ints:
        """[n] tokens of each document."""
        return np.diff(self.token_ends, prepend=0)

    def supervised(self, longest: int) -> Ints:
        """[n] learned tokens of each document.

        Args:
            longest: Tokens beyond this count are not counted.
        """
        spans = np.minimum(self.spans, longest)
        total = np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0], dtype=np.int64)])
        result: Ints = np.diff(total[self.span_ends], prepend=0)
        return result

    def document(self, index: int, name: str, longest: int) -> Document:
        """One document, cut to a length.

        Args:
            index: From 0.
            name: Its file.
            longest: Tokens.
        """
        start, end = int(self.token_ends[index - 1]) if index else 0, int(self.token_ends[index])
        first, last = int(self.span_ends[index - 1]) if index else 0, int(self.span_ends[index])
        kept = min(end - start, longest)
        learned = np.zeros(kept, dtype=np.bool_)
        for begin, stop in self.spans[first:last].tolist():
            learned[begin:stop] = True
        ids = np.array(self.tokens[start : start + kept])
        return Document(ids, learned, int(self.rows[index]), name, truncated=kept < end - start)


def joined(shards: Sequence[Shard]) -> Shard:
    """Several shards as one."""
    notes = Notes()
    for shard in shards:
        notes.merge(shard.notes)
    parts: dict[str, Any] = {}
    for name in ("tokens", "spans", "rows", "sources", "positions", "digests", "bands"):
        parts[name] = np.concatenate([getattr(shard, name) for shard in shards]) if shards else getattr(_EMPTY, name)
    for name, of in (("token_ends", "tokens"), ("span_ends", "spans")):
        offsets = np.cumsum([0, *(len(getattr(shard, of)) for shard in shards)])
        ends = [getattr(shard, name) + offset for shard, offset in zip(shards, offsets, strict=False)]
        parts[name] = np.concatenate(ends) if ends else getattr(_EMPTY, name)
    return Shard(**parts, notes=notes)


def _empty() -> Shard:
    none = np.zeros(0, dtype=np.int64)
    return Shard(
        tokens=np.zeros(0, dtype=np.int32),
        token_ends=none,
        spans=np.zeros((0, 2), dtype=np.int32),
        span_ends=none,
        rows=none,
        sources=none,
        positions=none,
        digests=none,
        bands=np.zeros((0, BAND_COUNT), dtype=np.uint32),
        notes=Notes(),
    )


_EMPTY = _empty()


def write_shard(path: Path, shard: Shard) -> int:
    """Write a shard: aside, to the disk, and then under its name, so that what has the name is whole.

    Returns:
        Its size, bytes.

    Raises:
        OSError: It cannot be written.
    """
    import pyarrow
    from pyarrow import ipc

    columns = {"tokens": shard.tokens, "spans": shard.spans.reshape(-1), "bands": shard.bands.reshape(-1)}
    columns.update({name: getattr(shard, name) for name in _WIDE})
    notes = json.dumps(asdict(shard.notes))
    # One row a column, as a list: the columns differ in length.
    arrays = [
        pyarrow.LargeListArray.from_arrays(pyarrow.array([0, len(values)], pyarrow.int64()), pyarrow.array(values))
        for values in columns.values()
    ]
    batch = pyarrow.record_batch(arrays, names=list(columns))
    aside = path.with_suffix(".part")
    with aside.open("wb") as stream:
        with ipc.new_file(stream, batch.schema.with_metadata({"notes": notes})) as writer:
            writer.write_batch(batch)
        stream.flush()
        os.fsync(stream.fileno())
        size_bytes = stream.tell()
    replace_with_retry(aside, path)
    return size_bytes


def read_shard(path: Path) -> Shard:
    """A shard that was written, mapped: its arrays are read from the disk when they are looked at.

    Raises:
        OSError: There is none.
        ValueError: It is not whole. (pyarrow's errors are ValueErrors.)
    """
    import pyarrow
    from pyarrow import ipc

    file = ipc.open_file(pyarrow.memory_map(str(path)))
    batch = file.get_batch(0)
    found = {
        name: batch.column(name).values.to_numpy(zero_copy_only=True) for name in ("tokens", "spans", "bands", *_WIDE)
    }
    notes = Notes.from_json(json.loads(file.schema.metadata[b"notes"]))
    spans, bands = found.pop("spans").reshape(-1, 2), found.pop("bands").reshape(-1, BAND_COUNT)
    return Shard(**found, spans=spans, bands=bands, notes=notes)
