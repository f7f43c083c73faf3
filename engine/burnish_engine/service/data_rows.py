"""Read rows of data files for a person to look at: as they are in their file, and as they would be trained on."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import DataError, UsageError
from burnish_engine.contract.facts.data_report import FileColumns, RowLine, RowPage, RowPlace
from burnish_engine.contract.paths import is_address
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.serve.replies import Preview
from burnish_engine.data.files.discover import DatasetPart, find_parts
from burnish_engine.data.files.formats import NumberedJson, parsed
from burnish_engine.data.files.paging import Check, RowPager
from burnish_engine.data.files.problems import BrokenRowError, shorten
from burnish_engine.data.files.read import Table, no_rows
from burnish_engine.data.pipeline.collect import SAMPLE_ROWS
from burnish_engine.data.pipeline.row_pipeline import RowBatch, RowPipeline
from burnish_engine.data.prepare import pipeline_spec
from burnish_engine.data.report.columns import file_columns
from burnish_engine.data.report.describe import EXAMPLE_TOKENS, readable
from burnish_engine.data.rows.recognize import recognize
from burnish_engine.data.tokens.tokenize import Document

_CELL_LETTERS = 240
_MOST_PAGERS = 8
_LOST = "\ufffd"
_LEAST_CONTEXT = 4
"""Number of tokens decoded before a piece: alone it would lose its leading space in some tokenizers."""


@dataclass(frozen=True, eq=False)
class _KeptPipeline:
    tokenizer: Any
    settings: tuple[object, ...]
    pipeline: RowPipeline


class RowReader:
    """Reads rows of the files that recipes name. The files read last stay open to further questions."""

    def __init__(self) -> None:
        self._pagers: OrderedDict[tuple[object, ...], RowPager] = OrderedDict()
        self._pipeline: _KeptPipeline | None = None

    def page(self, data: DataSection, file: str, start: int, count: int, check: Check) -> RowPage:
        """Read a stretch of a file's rows.

        Args:
            data: data section of a recipe.
            file: name of the file, as facts name it; empty: the first of the data.
            start: index of the first row, from 0.
            count: most rows.
            check: function that may raise to cancel.

        Raises:
            BurnishError: The file is not among the data, or cannot be read.
        """
        pager = self._pager(data, file)
        found = pager.rows(start, count, check)
        lines = [_line(pager, start + at, row) for at, row in enumerate(found)]
        return RowPage(rows=lines, total=pager.total, exact=pager.is_exact)

    def places(self, data: DataSection, places: list[RowPlace], check: Check) -> RowPage:
        """Read single rows of any files; rows that are not there are left out.

        Args:
            data: data section of a recipe.
            places: rows to read, those of a file one after the other.
            check: function that may raise to cancel.

        Raises:
            BurnishError: A file is not among the data, or cannot be read.
        """
        lines = list[RowLine]()
        for file, of_file in groupby(places, key=lambda place: place.file):
            pager = self._pager(data, file)
            found = pager.find([place.row for place in of_file], check)
            lines += [_line(pager, index, row) for index, row in found]
        return RowPage(rows=lines, total=len(lines), exact=True)

    def columns(self, data: DataSection, file: str, check: Check) -> FileColumns:
        """Describe the columns of a file and every way to read them.

        Raises:
            BurnishError: The file is not among the data, or cannot be read.
        """
        pager = self._pager(data, file)
        return file_columns(pager.table.part.name, self._sample(pager, check))

    def preview(self, recipe: Recipe, tokenizer: Any, file: str, index: int, check: Check) -> Preview:
        """Render a row as it would be trained on.

        Args:
            recipe: recipe of which the data and preference sections are used.
            tokenizer: fast transformers tokenizer.
            file: name of the file, as facts name it; empty: the first of the data.
            index: index of the row in the file, from 0.
            check: function that may raise to cancel.

        Raises:
            BurnishError: The file cannot be read or understood, or has no such row.
        """
        data, pager = recipe.data, self._pager(recipe.data, file)
        name = pager.table.part.name
        found = pager.rows(index, 1, check)
        if not found:
            raise UsageError(f"{name} has {pager.total} rows; row {index + 1} was asked for.", "Ask for another row.")
        number, text = found[0]
        if isinstance(text, BrokenRowError):
            return Preview(file=name, row=number, problem=text.reason)
        layout = recognize(self._sample(pager, check), name, data.shape, data.columns)
        try:
            shard = self._rendering(recipe, tokenizer).process(RowBatch(0, name, layout, index, [(number, text, "")]))
        except BrokenRowError as error:
            return Preview(file=name, row=number, problem=error.reason)
        if not len(shard):
            return Preview(file=name, row=number, problem=shard.log.dropped.summary().partition(": ")[0])
        longest = data.max_length * recipe.preference.sequences
        document, whole = shard.document(0, name, longest), int(shard.lengths.sum())
        cut = int((shard.lengths - longest).clip(0).sum())
        return Preview(
            file=name,
            row=number,
            tokens=whole,
            supervised_tokens=int(shard.supervised_tokens(longest).sum()),
            cut_tokens=cut,
            parts=len(shard),
            pieces=_token_pieces(document, tokenizer),
            problem="" if shard.supervised_tokens(longest).any() else "nothing to learn",
        )

    def _rendering(self, recipe: Recipe, tokenizer: Any) -> RowPipeline:
        """Return the pipeline of a recipe's rows; writing out a tokenizer for a new one takes tenths of a second."""
        template = Path(recipe.data.template)
        stamp = template.stat().st_mtime_ns if template.is_file() else 0
        settings = (recipe.data, recipe.preference, stamp)
        kept = self._pipeline
        if kept is None or kept.tokenizer is not tokenizer or kept.settings != settings:
            kept = self._pipeline = _KeptPipeline(tokenizer, settings, RowPipeline(pipeline_spec(recipe, tokenizer)[0]))
        return kept.pipeline

    def _pager(self, data: DataSection, file: str) -> RowPager:
        part = _part(data, file)
        stamp = part.path.stat()
        key = (part.name, stamp.st_mtime_ns, stamp.st_size, data.encoding)
        if key not in self._pagers:
            self._pagers[key] = RowPager(Table(part, data.encoding))
        self._pagers.move_to_end(key)
        while len(self._pagers) > _MOST_PAGERS:
            self._pagers.popitem(last=False)
        return self._pagers[key]

    def _sample(self, pager: RowPager, check: Check) -> list[dict[str, Any]]:
        """Return the first rows that can be read, as column to value; the inspection reports the broken ones."""
        name, found = pager.table.part.name, list[dict[str, Any]]()
        for number, text in islice(pager.rows(0, 2 * SAMPLE_ROWS, check), 2 * SAMPLE_ROWS):
            try:
                if isinstance(text, str) and len(found) < SAMPLE_ROWS:
                    found.append(parsed(text, name, number))
            except BrokenRowError:
                continue
        if not found:
            raise DataError(f"No row of {name} can be read.", "Check the file and data.encoding.")
        return found


def _part(data: DataSection, file: str) -> DatasetPart:
    """Find a file of the data by its name; empty: the first one."""
    if not data.files:
        raise UsageError("The recipe names no training files.", "Set data.files.")
    names = [*data.files, *data.validation_files]
    for name in names if file else data.files[:1]:  # a problem of another entry is not this file's
        if not file or file == name or Path(file).is_relative_to(name) or is_address(name):
            parts = find_parts([name]).parts
            if not parts:
                raise no_rows(name)
            found = [part for part in parts if part.name == file] if file and file != name else parts[:1]
            if found:
                return found[0]
    raise UsageError(f"{file} is not among the files of the recipe.", "Ask for a file that its facts name.")


def _line(pager: RowPager, index: int, row: NumberedJson) -> RowLine:
    number, text = row
    name = pager.table.part.name
    try:
        if isinstance(text, BrokenRowError):
            raise text
        values = parsed(text, name, number)
    except BrokenRowError as error:
        return RowLine(file=name, row=number, index=index, problem=error.what)
    cells = {column: shorten(readable(value), _CELL_LETTERS) for column, value in values.items() if value is not None}
    return RowLine(file=name, row=number, index=index, cells=cells)


def _token_pieces(document: Document, tokenizer: Any) -> list[tuple[str, bool]]:
    """Return (text, whether it is supervised) of each token, joining tokens that are parts of one character."""

    def decode(start: int, end: int) -> str:
        text: str = tokenizer.decode(ids[start:end], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    shown = document.cut(EXAMPLE_TOKENS)
    ids, supervised = shown.input_ids.tolist(), shown.supervised.tolist()
    pieces: list[tuple[str, bool]] = []
    start = 0
    for end in range(1, len(ids) + 1):
        if end < len(ids) and supervised[end] == supervised[start] and decode(start, end).endswith(_LOST):
            continue  # in the middle of a character
        context = max(0, start - _LEAST_CONTEXT)
        before, upto = decode(context, start), decode(context, end)
        text = upto[len(before) :] if upto.startswith(before) else decode(start, end)
        pieces.append((text, bool(supervised[start])))
        start = end
    return [*pieces, ("...", False)] if shown is not document else pieces
