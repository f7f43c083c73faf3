"""From the names in a recipe to tokenized rows: find, read, recognize, work on them. Every row is used or counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from filelock import Timeout

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe_data import DataSection
from burnish_engine.data.checks import COLUMNAR
from burnish_engine.data.formats import NumberedJson, parsed
from burnish_engine.data.notes import Notes
from burnish_engine.data.places import Part, find_parts
from burnish_engine.data.pool import Done, default_workers, worked
from burnish_engine.data.problems import BrokenRowError
from burnish_engine.data.read import Table, no_rows
from burnish_engine.data.readings import columns_of, readings
from burnish_engine.data.recognize import recognize
from burnish_engine.data.shard import Shard, joined
from burnish_engine.data.source import Source
from burnish_engine.data.token_cache import Kept, kept_for
from burnish_engine.data.work import Batch, Instructions

Progress = Callable[[str, int, int], None]
"""Called as (what is going on, rows done, rows in all of this file, estimated until they are known). May raise to
cancel."""

IN_MEMORY_BYTES = 64 * 2**20
"""Datasets up to this size are kept in memory; what larger ones become is kept on disk, in the user's cache."""
SAMPLE_ROWS = 1000
"""Rows from whose columns the shape is recognized."""

_SAMPLE_BYTES = 8 * 2**20
_ALONE_BYTES = 16 * 2**20  # up to here more processes take longer to start than they save
_BATCH_ROWS, _BATCH_CHARS = 512, 2**20
_SHARD_TOKENS = 8 * 2**20  # 32 MiB of ids
_PACKED_RATIO = 4
_MOST_SAMPLED_PARTS = 100


@dataclass
class Collected:
    """What some names became.

    Attributes:
        sources: The parts.
        shards: Their documents.
        notes: What was noticed.
        left_out: Files that were not read: name to why.
    """

    sources: list[Source] = field(default_factory=list)
    shards: list[Shard] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    left_out: dict[str, str] = field(default_factory=dict)


class Collector:
    """Turns files into tokenized rows.

    Args:
        data: The recipe's data section.
        instructions: What is done with each row.
        progress: Told how far it got.
        sampling: Of names with more bytes than the first number, look at about as many as the second; None: at all.
        look: Preference pairs and labels are read too, though nothing can be trained on them.
    """

    def __init__(
        self,
        data: DataSection,
        instructions: Instructions,
        progress: Progress | None = None,
        *,
        sampling: tuple[int, int] | None = None,
        look: bool = False,
    ) -> None:
        self._data = data
        self._instructions = instructions
        self._progress = progress or (lambda _what, _done, _total: None)
        self._sampling = sampling
        self._look = look

    def collect(self, names: Sequence[str], *, first_source: int = 0) -> Collected:
        """The rows under some names, in order.

        Args:
            names: Files, folders, archives, hub datasets.
            first_source: Number of the first part.

        Raises:
            DataError: Something cannot be read or understood, or the template is hostile.
            SetupError: A process died, or a hub dataset cannot be had.
            NoSpaceError: What a large dataset became could not be written.
        """
        found = find_parts(names)
        collected = Collected(left_out=found.left_out)
        if not found.parts:
            return collected
        size_bytes = sum(part.size_bytes * (_PACKED_RATIO if part.packing else 1) for part in found.parts)
        sampled = self._sampling is not None and size_bytes > self._sampling[0]
        parts = _evenly(found.parts, _MOST_SAMPLED_PARTS) if sampled else found.parts
        share = (
            self._sampling[1] / max(sum(part.size_bytes for part in parts), 1) if sampled and self._sampling else 0.0
        )
        thinned = size_bytes / max(sum(p.size_bytes * (_PACKED_RATIO if p.packing else 1) for p in parts), 1)
        several = len(parts) > len(names)
        for part in parts:
            self._progress(f"reading {part.short_name}", 0, 0)
            source = self._opened(part, share, thinned)
            if source is not None:
                collected.sources.append(source)
            elif several:
                collected.left_out[part.name] = "it has no rows"
            else:
                raise no_rows(part.name)
        workers = self._data.workers or default_workers()
        if sampled or size_bytes <= _ALONE_BYTES:
            workers = 1
        numbered = list(enumerate(collected.sources, start=first_source))
        if sampled or size_bytes <= IN_MEMORY_BYTES:
            results = worked(self._batches(numbered, 0), self._instructions, workers)
            collected.shards = [done.shard for done in self._told(results, collected.sources, first_source)]
        else:
            collected.shards = self._kept(numbered, workers)
        for shard in collected.shards:
            collected.notes.merge(shard.notes)
        return collected

    def _opened(self, part: Part, share: float, thinned: float) -> Source | None:
        """A part as a source; None where it has no rows."""
        table = Table(part, self._data.encoding)
        sample, scale = None, 1.0
        if share:
            sample, scale = table.sample(max(int(share * part.size_bytes), 2**14))
            scale *= thinned
        samples = list(self._first(table.raw() if sample is None else iter(sample), part.name))
        if not samples:
            if next(iter(table.raw()), None) is None:
                return None
            raise DataError(
                f"None of the first {SAMPLE_ROWS} rows of {part.name} can be read.", "Check the file and data.encoding."
            )
        layout = recognize(samples, part.name, self._data.shape, self._data.columns)
        if layout.shape in ("preference", "kto") and self._data.shape == "auto" and not self._look:
            replies = "chosen replies" if layout.shape == "preference" else "replies labeled good"
            raise DataError(
                f"{part.name} holds preferences (shape {layout.shape}), which are read and shown, but not trained on.",
                f'To learn the {replies} as they stand, set data.shape = "{layout.shape}".',
            )
        return Source(table, layout, columns_of(samples), readings(samples), sample, scale)

    def _first(self, rows: Iterator[NumberedJson], name: str) -> Iterator[dict[str, Any]]:
        """Columns and values of the first rows that can be read."""
        taken = 0
        for number, text in islice(rows, SAMPLE_ROWS):
            try:
                if isinstance(text, BrokenRowError):
                    raise text
                values = parsed(text, name, number)
            except BrokenRowError:
                if self._data.broken_rows != "drop":
                    raise
                continue
            yield values
            taken += len(text)
            if taken > _SAMPLE_BYTES:
                return

    def _told(self, results: Iterable[Done], sources: Sequence[Source], first: int) -> Iterator[Done]:
        """The results, as they come; progress is told of each."""
        source, rows, chars = -1, 0, 0
        for done in results:
            if done.source != source:
                if rows:
                    self._progress(f"tokenizing {sources[source - first].part.short_name}", rows, rows)
                source, rows, chars = done.source, done.position, done.position * (done.chars // max(done.rows, 1))
            rows += done.rows
            chars += done.chars
            part = sources[source - first].part
            known = part.format in COLUMNAR or part.packing or sources[source - first].sample is not None
            total = rows if known else max(rows, int(rows * part.size_bytes / max(chars, 1)))
            self._progress(f"tokenizing {part.short_name}", rows, total)
            yield done
        if rows:
            self._progress(f"tokenizing {sources[source - first].part.short_name}", rows, rows)

    def _kept(self, numbered: Sequence[tuple[int, Source]], workers: int) -> list[Shard]:
        """The shards from the cache, or made and put there."""
        self._progress("looking for what was tokenized before", 0, 0)
        texts = any(source.layout.is_text for _, source in numbered)
        key = f"{self._instructions.key(texts=texts)}-{numbered[0][0]}"
        kept = kept_for([source.part for _, source in numbered], key)
        lock = kept.lock()
        while True:
            try:
                lock.acquire(timeout=0.5)
                break
            except Timeout:
                self._progress("waiting for another process that tokenizes the same", 0, 0)
        try:
            return kept.whole() or self._made(kept, numbered, workers)
        finally:
            lock.release()

    def _made(self, kept: Kept, numbered: Sequence[tuple[int, Source]], workers: int) -> list[Shard]:
        shards = kept.begun()
        done = sum(shard.notes.rows for shard in shards)
        held, tokens = list[Shard](), 0
        sources = [source for _, source in numbered]
        fresh = worked(self._batches(numbered, done), self._instructions, workers)
        with closing(fresh):
            for result in self._told(fresh, sources, numbered[0][0]):
                held.append(result.shard)
                tokens += len(result.shard.tokens)
                if tokens >= _SHARD_TOKENS:
                    shards.append(kept.add(len(shards), joined(held)))
                    held, tokens = [], 0
        if held:
            shards.append(kept.add(len(shards), joined(held)))
        kept.finish(len(shards))
        return shards

    def _batches(self, sources: Sequence[tuple[int, Source]], skip: int) -> Iterator[Batch]:
        """The rows of all sources in batches; a batch never holds rows of two.

        Args:
            sources: With their numbers.
            skip: Rows at the beginning that are done.
        """
        for number, source in sources:
            position, chars, held = 0, 0, list[tuple[int, str, str]]()
            begin = Batch(number, source.part.name, source.layout, 0, ())
            for row, text in source.raw():
                if skip:
                    skip -= 1
                    position += 1
                    continue
                if isinstance(text, BrokenRowError):
                    if self._data.broken_rows != "drop":
                        raise text
                    held.append((row, "", text.reason))
                else:
                    held.append((row, text, ""))
                    chars += len(text) + 1
                if len(held) == _BATCH_ROWS or chars >= _BATCH_CHARS:
                    yield replace(begin, position=position, rows=held)
                    position += len(held)
                    chars, held = 0, []
            if held:
                yield replace(begin, position=position, rows=held)


def _evenly(parts: Sequence[Part], most: int) -> list[Part]:
    """At most so many of the parts, evenly spread."""
    if len(parts) <= most:
        return list(parts)
    return [parts[index * len(parts) // most] for index in range(most)]
