"""From files to documents: read, recognize, render, tokenize, cut; every row is either used or counted as dropped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from burnish_engine.contract.recipe import DataSection
from burnish_engine.data.problems import Dropped, RowError
from burnish_engine.data.read import Row, Table, read_table
from burnish_engine.data.shapes import Conversation, Layout, columns_of, recognize
from burnish_engine.data.spans import Rendered, Renderer
from burnish_engine.data.template import ChatTemplate
from burnish_engine.data.tokenize import Document, Encoder

Progress = Callable[[str, int, int], None]
"""Called as (what is going on, rows done, rows in all of this file)."""

SAMPLE_ROWS = 1000
"""Rows from whose columns the shape is recognized."""
NOTHING_LEFT = "nothing to learn after truncation"
"""How the reason begins for rows whose learned part lies behind the cut."""
_BATCH_ROWS = 512


@dataclass(frozen=True, eq=False)
class SourcedDocument:
    """A document and where its row can be read again.

    Attributes:
        document: What is trained on.
        source: The file it is from.
        position: Its row's position there, from 0.
    """

    document: Document
    source: Source
    position: int


@dataclass(frozen=True, eq=False)
class Source:
    """An opened file.

    Attributes:
        table: Its rows.
        layout: What its columns mean.
        columns: Its columns, in order.
    """

    table: Table
    layout: Layout
    columns: list[str]


@dataclass
class Findings:
    """What was noticed on the way.

    Attributes:
        sources: The files.
        dropped: Rows that are not used.
        lengths: Tokens of every row that could be tokenized, before any cut.
        turn_ends: Tokens with which the template ends replies.
        open_rows: Chats whose template put no end-of-turn token after the last reply.
        prompt_differs: Chats whose last reply does not begin as the generation prompt says.
        control_rows: Rows with a special token spelled out in their text.
        control_example: One such token.
    """

    sources: list[Source] = field(default_factory=list)
    dropped: Dropped = field(default_factory=Dropped)
    lengths: list[int] = field(default_factory=list)
    turn_ends: set[str] = field(default_factory=set)
    open_rows: int = 0
    prompt_differs: int = 0
    control_rows: int = 0
    control_example: str = ""

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(len(source.table) for source in self.sources)


class Collector:
    """Turns files into documents.

    Args:
        data: The recipe's data section.
        tokenizer: A fast transformers tokenizer.
        template: Its chat template.
        progress: Told how far it got.
    """

    def __init__(
        self, data: DataSection, tokenizer: Any, template: ChatTemplate, progress: Progress | None = None
    ) -> None:
        self.findings = Findings()
        self._data = data
        self._encoder = Encoder(tokenizer)
        added = tokenizer.added_tokens_decoder.values()
        self._renderer = Renderer(
            template,
            tokenizer.eos_token,
            [token.content for token in added],
            text_bos=self._encoder.adds_bos,
            everything=data.learn == "everything",
        )
        special = sorted({token.content for token in added if token.special}, key=len, reverse=True)
        self._control_tokens = re.compile("|".join(map(re.escape, special)) or "(?!)")
        self._progress = progress or (lambda _what, _done, _total: None)

    def collect(self, files: Sequence[str]) -> list[SourcedDocument]:
        """The documents in some files, in order.

        Raises:
            DataError: A file cannot be read or understood, or the template is hostile.
        """
        return [document for name in files for document in self._collect_file(Path(name))]

    def conversation(self, sourced: SourcedDocument) -> Conversation:
        """The conversation that a document was made from."""
        return self._conversation(sourced.source, sourced.source.table.row(sourced.position))

    def _collect_file(self, path: Path) -> Iterator[SourcedDocument]:
        self._progress(f"reading {path.name}", 0, 0)
        table = read_table(path)
        samples = [row.values for row in islice(table, SAMPLE_ROWS)]
        source = Source(table, recognize(samples, str(path), self._data.shape), columns_of(samples))
        self.findings.sources.append(source)
        rows = enumerate(table)
        done = 0
        while batch := list(islice(rows, _BATCH_ROWS)):
            yield from self._collect_batch(source, batch)
            done += len(batch)
            self._progress(f"tokenizing {path.name}", done, len(table))

    def _collect_batch(self, source: Source, batch: Sequence[tuple[int, Row]]) -> Iterator[SourcedDocument]:
        usable = list[tuple[int, Row, Rendered]]()
        for position, row in batch:
            try:
                conversation = self._conversation(source, row)
                rendered = self._renderer.render(conversation)
            except RowError as error:
                self.findings.dropped.add(error.reason, row.number)
            else:
                self._note(conversation, rendered)
                usable.append((position, row, rendered))
        encoded = self._encoder.encode([rendered for _, _, rendered in usable])
        for (position, row, _), (ids, learned) in zip(usable, encoded, strict=True):
            whole = Document(ids, learned, row.number, str(source.table.path))
            self.findings.lengths.append(len(whole))
            try:
                yield SourcedDocument(self._fitted(whole), source, position)
            except RowError as error:
                self.findings.dropped.add(error.reason, row.number)

    def _conversation(self, source: Source, row: Row) -> Conversation:
        return source.layout.conversation(row.values, row.number, str(source.table.path), self._data.system_prompt)

    def _fitted(self, document: Document) -> Document:
        longest = self._data.max_length
        if len(document) > longest and self._data.overlong == "drop":
            raise RowError(f"longer than {longest} tokens")
        if not document.supervised_tokens:
            raise RowError("nothing to learn")
        cut = document.cut(longest)
        if not cut.supervised_tokens:
            raise RowError(f"{NOTHING_LEFT} to {longest} tokens")
        return cut

    def _note(self, conversation: Conversation, rendered: Rendered) -> None:
        found = self.findings
        if conversation.text is None:
            if rendered.turn_end:
                found.turn_ends.add(rendered.turn_end)
            elif conversation.messages[-1].role == "assistant":
                found.open_rows += 1
            found.prompt_differs += rendered.prompt_differs
        texts = [conversation.text or "", *(message.content for message in conversation.messages)]
        control = next(filter(None, map(self._control_tokens.search, texts)), None)
        if control:
            found.control_rows += 1
            found.control_example = found.control_example or control[0]
