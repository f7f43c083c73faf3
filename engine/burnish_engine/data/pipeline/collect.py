"""Collects the rows of a recipe's files: finds, reads, recognizes and tokenizes them. Each row is used or counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from filelock import Timeout

from burnish_engine.contract.errors import BurnishError, DataError
from burnish_engine.contract.facts.data_report import FileStatus
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.files.discover import DatasetPart, FoundParts, add_parts
from burnish_engine.data.files.file_kinds import COLUMNAR
from burnish_engine.data.files.formats import NumberedJson, parsed
from burnish_engine.data.files.problems import BrokenRowError
from burnish_engine.data.files.read import Table, no_rows
from burnish_engine.data.pipeline.file_problems import FileProblems
from burnish_engine.data.pipeline.pool import BatchResult, default_workers, process_batches
from burnish_engine.data.pipeline.row_pipeline import PipelineSpec, RowBatch
from burnish_engine.data.rows.column_readings import columns_of, find_readings, unread_columns
from burnish_engine.data.rows.part_rows import RowSource
from burnish_engine.data.rows.recognize import recognize
from burnish_engine.data.rows.row_log import RowLog
from burnish_engine.data.rows.shapes import PREFERENCE_SHAPES, undecided_preferences
from burnish_engine.data.tokens.shard import Shard, concatenate_shards
from burnish_engine.data.tokens.token_cache import CacheEntry, cache_entry_for

Progress = Callable[[str, int, int], None]
"""Callback that is given the current activity, the rows done, and all rows of this file (estimated until known). It may
raise to cancel."""

IN_MEMORY_BYTES = 64 * 2**20
"""Largest dataset whose tokens are kept in memory; those of larger ones are kept on disk, in the user's cache."""
SAMPLE_ROWS = 1000
"""Most rows from which the meaning of the columns is recognized."""

_SAMPLE_BYTES = 8 * 2**20
_PREFERENCE_COLUMNS = {
    (True, False): '"prompt=...", "chosen=...", "rejected=..."',
    (False, True): '"prompt=...", "completion=...", "label=..."',
}
"""Columns of rows that are compared; keys: whether pairs and whether labels are learned from."""
_ONE_PROCESS_BYTES = 16 * 2**20  # smaller datasets are done before more processes would have started
_BATCH_ROWS, _BATCH_CHARS = 512, 2**20
_SHARD_TOKENS = 8 * 2**20  # 32 MiB of ids
_PACKED_RATIO = 4
_MOST_SAMPLED_PARTS = 100


@dataclass
class CollectedRows:
    """The tokenized rows of some files.

    Attributes:
        sources: parts of the dataset.
        shards: documents of the parts, in order.
        log: counts and examples of what was noticed in the rows.
        left_out: files that were not read: name to reason.
        files: each file, with its rows or the reason why it cannot be trained on.
    """

    sources: list[RowSource] = field(default_factory=list)
    shards: list[Shard] = field(default_factory=list)
    log: RowLog = field(default_factory=RowLog)
    left_out: dict[str, str] = field(default_factory=dict)
    files: list[FileStatus] = field(default_factory=list)


class RowCollector:
    """Turns files into tokenized rows.

    Args:
        data: the recipe's data section.
        spec: settings that decide what becomes of a row.
        progress: callback for progress.
        sampling: sizes in bytes: a dataset larger than the first is sampled, with about as many bytes as the second;
            None reads every row.
        inspect_only: whether preference pairs and labels are accepted too, which are not trained on as such.
    """

    def __init__(
        self,
        data: DataSection,
        spec: PipelineSpec,
        progress: Progress | None = None,
        *,
        sampling: tuple[int, int] | None = None,
        inspect_only: bool = False,
    ) -> None:
        self._data = data
        self._instructions = spec
        self._progress = progress or (lambda _what, _result, _total: None)
        self._sampling = sampling
        self._inspect_only = inspect_only
        self._problems = FileProblems()
        self._at_hand: DatasetPart | None = None

    def collect(self, names: Sequence[str], *, first_source: int = 0, go_on: bool = False) -> CollectedRows:
        """Read and tokenize all rows under some names, in order.

        Args:
            names: files, folders, archives and hub datasets.
            first_source: index of the first part.
            go_on: whether a file with a problem is left out and listed in `files`, unless every file has one.

        Raises:
            DataError: Something cannot be read or understood, or the template is hostile.
            SetupError: A process died, or a hub dataset cannot be downloaded.
            NoSpaceError: The disk has no room for the tokenized rows of a large dataset.
        """
        self._problems = FileProblems(go_on=go_on)
        found = FoundParts()
        for entry, name in enumerate(names):
            own = FoundParts()
            with self._problems.of(name, entry, BurnishError):
                add_parts(own, name, entry)
                found.parts += own.parts
                found.left_out |= own.left_out
        several, collected = len(found.parts) > len(names), None
        while collected is None:
            collected = self._collect_parts(found, first_source, several=several)
        if not collected.sources:
            self._problems.raise_first()
        collected.files = sorted([*collected.files, *self._problems.files], key=lambda file: file.entry)
        return collected

    def _collect_parts(self, found: FoundParts, first_source: int, *, several: bool) -> CollectedRows | None:
        """Read and tokenize the parts without a known problem; None where another one had one among its rows."""
        collected = CollectedRows(left_out=found.left_out)
        found = replace(found, parts=self._problems.without(found.parts))
        if not found.parts:
            return collected
        size_bytes = sum(part.size_bytes * (_PACKED_RATIO if part.packing else 1) for part in found.parts)
        sampled = self._sampling is not None and size_bytes > self._sampling[0]
        parts = _evenly(found.parts, _MOST_SAMPLED_PARTS) if sampled else found.parts
        share = (
            self._sampling[1] / max(sum(part.size_bytes for part in parts), 1) if sampled and self._sampling else 0.0
        )
        thinned = size_bytes / max(sum(p.size_bytes * (_PACKED_RATIO if p.packing else 1) for p in parts), 1)
        for part in parts:
            self._progress(f"reading {part.short_name}", 0, 0)
            with self._problems.of(part.name, part.entry):
                source = self._open_source(part, share, thinned)
                if source is not None:
                    collected.sources.append(source)
                elif several:
                    collected.left_out[part.name] = "it has no rows"
                else:
                    raise no_rows(part.name)
        workers = self._data.workers or default_workers()
        if sampled or size_bytes <= _ONE_PROCESS_BYTES:
            workers = 1
        numbered = list(enumerate(collected.sources, start=first_source))
        if sampled or size_bytes <= IN_MEMORY_BYTES:
            results = process_batches(self._batches(numbered, 0), self._instructions, workers)
            rows = [0] * len(numbered)
            try:
                for done in self._with_progress(results, collected.sources, first_source):
                    collected.shards.append(done.shard)
                    rows[done.source - first_source] += done.rows
            except DataError as error:
                if self._at_hand is None or workers > 1:  # several processes read ahead
                    raise
                self._problems.add(self._at_hand.name, self._at_hand.entry, error)
                return None
            collected.files = [
                FileStatus(file=source.part.name, entry=source.part.entry, rows=round(count * source.scale))
                for source, count in zip(collected.sources, rows, strict=True)
            ]
        else:
            collected.shards = self._cached_shards(numbered, workers)
        for shard in collected.shards:
            collected.log.merge(shard.log)
        return collected

    def _open_source(self, part: DatasetPart, share: float, thinned: float) -> RowSource | None:
        """Open a part and recognize its columns; None where it has no rows."""
        table = Table(part, self._data.encoding)
        sample, scale = None, 1.0
        if share:
            sample, scale = table.sample(max(int(share * part.size_bytes), 2**14))
            scale *= thinned
        samples = list(self._first_rows(table.raw() if sample is None else iter(sample), part.name))
        if not samples:
            if next(iter(table.raw()), None) is None:
                return None
            raise DataError(
                f"None of the rows of {part.name} can be read (at most {SAMPLE_ROWS:,} were tried).",
                "Check the file and data.encoding.",
            )
        found = find_readings(samples)
        try:
            layout = recognize(samples, part.name, self._data.shape, self._data.columns, found=found)
        except DataError as error:
            meanings = _PREFERENCE_COLUMNS.get((self._instructions.pairs, self._instructions.labels))
            if meanings and "data.columns" in error.remedy:
                error.remedy += f" For preference.objective, name all of these: data.columns = [{meanings}]."
            raise
        if self._instructions.labels and layout.shape != "kto":
            raise DataError(
                f"{part.name} holds no replies labeled good or bad (its shape is {layout.shape}), and "
                'preference.objective = "kto" learns from those.',
                "Name files with the columns prompt, completion and label; say with data.columns what other columns "
                'mean; or set preference.objective = "dpo" for pairs, "sft" for plain replies.',
            )
        if self._instructions.pairs and layout.shape != "preference":
            other = '"kto" for labeled replies' if layout.shape == "kto" else '"sft"'
            raise DataError(
                f"{part.name} holds no preference pairs (its shape is {layout.shape}), and preference.objective learns "
                "from pairs.",
                "Name files with the columns prompt, chosen and rejected; say with data.columns what other columns "
                f"mean; or set preference.objective = {other}.",
            )
        if (
            not (self._instructions.pairs or self._instructions.labels)
            and layout.shape in PREFERENCE_SHAPES
            and self._data.shape == "auto"
            and not self._inspect_only
        ):
            raise undecided_preferences(part.name, layout.shape)
        unread = unread_columns(layout, samples)
        return RowSource(table, layout, columns_of(samples), found, unread, sample, scale)

    def _first_rows(self, rows: Iterator[NumberedJson], name: str) -> Iterator[dict[str, Any]]:
        """Yield the first readable rows as column to value."""
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

    def _with_progress(
        self, results: Iterable[BatchResult], sources: Sequence[RowSource], first: int
    ) -> Iterator[BatchResult]:
        """Pass results on as they come, and report progress on each."""
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

    def _cached_shards(self, numbered: Sequence[tuple[int, RowSource]], workers: int) -> list[Shard]:
        """Load the shards from the cache, or tokenize the rows into the cache."""
        self._progress("looking for what was tokenized before", 0, 0)
        texts = any(source.layout.is_text for _, source in numbered)
        key = f"{self._instructions.key(texts=texts)}-{numbered[0][0]}"
        cache = cache_entry_for([source.part for _, source in numbered], key)
        lock = cache.lock()
        while True:
            try:
                lock.acquire(timeout=0.5)
                break
            except Timeout:
                self._progress("waiting for another process that tokenizes the same", 0, 0)
        try:
            return cache.complete_shards() or self._tokenize_to_cache(cache, numbered, workers)
        finally:
            lock.release()

    def _tokenize_to_cache(
        self, cache: CacheEntry, numbered: Sequence[tuple[int, RowSource]], workers: int
    ) -> list[Shard]:
        shards = cache.leading_shards()
        done = sum(shard.log.rows for shard in shards)
        held, tokens = list[Shard](), 0
        sources = [source for _, source in numbered]
        fresh = process_batches(self._batches(numbered, done), self._instructions, workers)
        with closing(fresh):
            for result in self._with_progress(fresh, sources, numbered[0][0]):
                held.append(result.shard)
                tokens += len(result.shard.tokens)
                if tokens >= _SHARD_TOKENS:
                    shards.append(cache.add(len(shards), concatenate_shards(held)))
                    held, tokens = [], 0
        if held:
            shards.append(cache.add(len(shards), concatenate_shards(held)))
        cache.finish(len(shards))
        return shards

    def _batches(self, sources: Sequence[tuple[int, RowSource]], skip: int) -> Iterator[RowBatch]:
        """Yield the rows of all parts in batches; each batch holds rows of one part.

        Args:
            sources: parts with their indices.
            skip: number of rows at the beginning that are done.
        """
        for number, source in sources:
            self._at_hand = source.part
            position, chars, held = 0, 0, list[tuple[int, str, str]]()
            begin = RowBatch(number, source.part.name, source.layout, 0, ())
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


def _evenly(parts: Sequence[DatasetPart], most: int) -> list[DatasetPart]:
    """Select at most `most` of the parts, evenly spread."""
    if len(parts) <= most:
        return list(parts)
    return [parts[index * len(parts) // most] for index in range(most)]
