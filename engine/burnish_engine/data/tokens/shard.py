"""Stores documents as a few arrays, in memory or in a memory-mapped file."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.files import replace_with_retry
from burnish_engine.data.rows.row_log import RowLog
from burnish_engine.data.tokens.tokenize import Document

Ints = npt.NDArray[np.int64]

BAND_COUNT = 8
"""Band hashes of a row; near-duplicates share at least one, see `near_duplicates`."""
_INT64_COLUMNS = ("rows", "sources", "positions", "digests", "rejected_from", "desirable", "token_ends", "span_ends")


@dataclass(frozen=True, eq=False)
class Shard:
    """The documents of some rows, in order. n documents, T tokens, S supervised spans.

    Attributes:
        tokens: [T] int32 ids of one document after another, at full length.
        token_ends: [n] end of each document's tokens in `tokens`.
        spans: [S, 2] int32 supervised tokens of a document as (first, one past the last) within it.
        span_ends: [n] end of each document's spans in `spans`.
        rows: [n] number of the row in its part.
        sources: [n] index of the part.
        positions: [n] index of the row among the part's rows, from 0.
        digests: [n] hash of the row's content; equal rows have equal ones.
        rejected_from: [n] `Document.rejected_from`.
        desirable: [n] `Document.desirable`, 1 or 0.
        bands: [n, 8] uint32 band hashes; near-duplicates share at least one.
        log: counts and examples of what was noticed in the rows, dropped rows included.
        mapping: mapped file that the arrays lie in; None where they lie in memory.
    """

    tokens: npt.NDArray[np.int32]
    token_ends: Ints
    spans: npt.NDArray[np.int32]
    span_ends: Ints
    rows: Ints
    sources: Ints
    positions: Ints
    digests: Ints
    rejected_from: Ints
    desirable: Ints
    bands: npt.NDArray[np.uint32]
    log: RowLog
    mapping: mmap.mmap | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def release(self) -> None:
        """Let go of the memory that a mapped file takes, until it is read again; Windows does that by itself."""
        if self.mapping is not None and hasattr(self.mapping, "madvise"):
            self.mapping.madvise(mmap.MADV_DONTNEED)

    @property
    def lengths(self) -> Ints:
        """[n] tokens of each document."""
        return np.diff(self.token_ends, prepend=0)

    def supervised_tokens(self, longest: int) -> Ints:
        """Count [n] the supervised tokens of each document.

        Args:
            longest: number of first tokens of a document that are counted.
        """
        spans = np.minimum(self.spans, longest)
        total = np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0], dtype=np.int64)])
        result: Ints = np.diff(total[self.span_ends], prepend=0)
        return result

    def document(self, index: int, name: str, longest: int) -> Document:
        """Build one document, cut to a length.

        Args:
            index: index of the document in the shard, from 0.
            name: name of the document's file.
            longest: most tokens of the document.
        """
        start, end = int(self.token_ends[index - 1]) if index else 0, int(self.token_ends[index])
        first, last = int(self.span_ends[index - 1]) if index else 0, int(self.span_ends[index])
        kept = min(end - start, longest)
        supervised = np.zeros(kept, dtype=np.bool_)
        for begin, stop in self.spans[first:last].tolist():
            supervised[begin:stop] = True
        ids = np.array(self.tokens[start : start + kept])
        rejected_from, desirable = int(self.rejected_from[index]), bool(self.desirable[index])
        return Document(ids, supervised, int(self.rows[index]), name, kept < end - start, rejected_from, desirable)


def concatenate_shards(shards: Sequence[Shard]) -> Shard:
    """Join several shards into one."""
    log = RowLog()
    for shard in shards:
        log.merge(shard.log)
    parts: dict[str, Any] = {}
    for name in ("tokens", "spans", "rows", "sources", "positions", "digests", "rejected_from", "desirable", "bands"):
        parts[name] = np.concatenate([getattr(shard, name) for shard in shards]) if shards else getattr(_EMPTY, name)
    for name, of in (("token_ends", "tokens"), ("span_ends", "spans")):
        offsets = np.cumsum([0, *(len(getattr(shard, of)) for shard in shards)])
        ends = [getattr(shard, name) + offset for shard, offset in zip(shards, offsets, strict=False)]
        parts[name] = np.concatenate(ends) if ends else getattr(_EMPTY, name)
    return Shard(**parts, log=log)


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
        rejected_from=none,
        desirable=none,
        bands=np.zeros((0, BAND_COUNT), dtype=np.uint32),
        log=RowLog(),
    )


_EMPTY = _empty()


def write_shard(path: Path, shard: Shard) -> int:
    """Write a shard to a temporary file and rename it once it is on the disk, so that a file with the name is whole.

    Returns:
        Size of the file, bytes.

    Raises:
        OSError: The file cannot be written.
    """
    import pyarrow
    from pyarrow import ipc

    columns = {"tokens": shard.tokens, "spans": shard.spans.reshape(-1), "bands": shard.bands.reshape(-1)}
    columns.update({name: getattr(shard, name) for name in _INT64_COLUMNS})
    log = json.dumps(asdict(shard.log))
    # The columns differ in length, so each is one row: a list.
    arrays = [
        pyarrow.LargeListArray.from_arrays(pyarrow.array([0, len(values)], pyarrow.int64()), pyarrow.array(values))
        for values in columns.values()
    ]
    batch = pyarrow.record_batch(arrays, names=list(columns))
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as stream:
        with ipc.new_file(stream, batch.schema.with_metadata({"notes": log})) as writer:
            writer.write_batch(batch)
        stream.flush()
        os.fsync(stream.fileno())
        size_bytes = stream.tell()
    replace_with_retry(temporary, path)
    return size_bytes


def read_shard(path: Path) -> Shard:
    """Open a written shard as a memory map; its arrays are read from the disk when they are used.

    Raises:
        OSError: The file does not exist or cannot be read.
        ValueError: The file is not whole. (pyarrow's errors are ValueErrors.)
    """
    import pyarrow
    from pyarrow import ipc

    with path.open("rb") as stream:
        mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    file = ipc.open_file(pyarrow.BufferReader(pyarrow.py_buffer(mapping)))
    batch = file.get_batch(0)
    found = {
        name: batch.column(name).values.to_numpy(zero_copy_only=True)
        for name in ("tokens", "spans", "bands", *_INT64_COLUMNS)
    }
    log = RowLog.from_json(json.loads(file.schema.metadata[b"notes"]))
    spans, bands = found.pop("spans").reshape(-1, 2), found.pop("bands").reshape(-1, BAND_COUNT)
    return Shard(**found, spans=spans, bands=bands, log=log, mapping=mapping)
