"""Turns rows into documents: parses each row, has it checked, renders it with the chat template, tokenizes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.files.formats import parsed
from burnish_engine.data.files.problems import BrokenRowError, RowError, RowRef
from burnish_engine.data.pipeline.row_checks import RowChecks
from burnish_engine.data.rows.conversation import Conversation
from burnish_engine.data.rows.near_duplicates import minhash_bands
from burnish_engine.data.rows.row_log import RowLog
from burnish_engine.data.rows.row_readers import PreferenceReader, ShapeReader, row_reader
from burnish_engine.data.rows.shapes import PAIR_TOO_LONG, ColumnLayout
from burnish_engine.data.templates.row_renderer import RowRenderer
from burnish_engine.data.templates.spans import RenderedRow
from burnish_engine.data.templates.template import ChatTemplate
from burnish_engine.data.tokens.shard import Ints, Shard
from burnish_engine.data.tokens.split_rows import split_chat, split_text
from burnish_engine.data.tokens.tokenize import Encoded, Encoder, Flags, Ids, TokenizerParts

SPLITTING = ("auto", "split")
"""Values of `data.overlong` that split a long text into several documents."""


EQUAL_RENDERINGS = "a rejected reply that the chat template writes as the chosen one"


@dataclass(frozen=True)
class TemplateSource:
    """A chat template as plain values that another process can be given.

    Attributes:
        source: Jinja source.
        special_tokens: special tokens, as `ChatTemplate` takes them.
        today: date for a template that asks for it.
        file: path that it was read from, for messages.
    """

    source: str
    special_tokens: dict[str, Any]
    today: date
    file: str = field(default="", repr=False)  # `key` hashes the representation


@dataclass(frozen=True)
class PipelineSpec:
    """All settings that decide what becomes of a row.

    Attributes:
        tokenizer: parts of the tokenizer.
        template: source of the chat template.
        data: the recipe's data section.
        pairs: whether both replies of preference pairs are learned from, the last turn alone of each.
        labels: whether replies labeled good or bad are learned from, the last turn alone of each.
    """

    tokenizer: TokenizerParts
    template: TemplateSource
    data: DataSection
    pairs: bool = False
    labels: bool = False

    def key(self, *, texts: bool) -> str:
        """Return a hash that is equal where rows become the same documents with the same log.

        Args:
            texts: whether there are plain texts among the rows, which `data.overlong = "auto"` splits.
        """
        data = self.data
        splits = data.overlong == "split" or (texts and data.overlong == "auto")
        split = (data.max_length,) if splits else ()
        settings = (data.shape, tuple(data.columns), data.encoding, data.learn, data.system_prompt, split)
        actions = (
            data.broken_rows, data.degenerate, data.secrets, data.addresses, data.damaged, data.control_tokens,
            data.tools, data.unwritten, data.placeholders,
        )  # fmt: skip
        pairs = (data.max_length,) if self.pairs else ("labels",) if self.labels else ()
        whole = repr((self.tokenizer, self.template, settings, actions, pairs))
        return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


@dataclass(frozen=True)
class RowBatch:
    """Some rows of one part.

    Attributes:
        source: index of the part.
        name: name of the part.
        layout: meaning of the part's columns.
        position: index of the first row among the part's rows, from 0.
        rows: rows as (number, JSON text, reason why the row cannot be read or an empty text).
    """

    source: int
    name: str
    layout: ColumnLayout
    position: int
    rows: Sequence[tuple[int, str, str]]


@dataclass(frozen=True)
class _UsableRow:
    position: int
    row: int
    conversation: Conversation
    rendered: RenderedRow
    rejected: Conversation | None = None
    rejected_from: int = 0


def pair_too_long(longest: int) -> str:
    """Word the reason for dropping a preference pair of which a sequence has more than `longest` tokens."""
    return f"{PAIR_TOO_LONG} {longest} tokens"


class RowPipeline:
    """Turns batches of rows into shards of documents.

    Args:
        spec: settings that decide what becomes of a row.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        parts, template = spec.tokenizer, spec.template
        self._data, self._pairs = spec.data, spec.pairs
        self._labels = spec.labels
        self._encoder = Encoder(parts)
        self._renderer = RowRenderer(
            ChatTemplate(template.source, template.special_tokens, today=template.today, file=template.file),
            parts.eos_token,
            parts.added,
            text_bos=parts.adds_bos,
            learn="last" if spec.pairs or spec.labels else self._data.learn,
            respell=self._data.unwritten == "respell",
        )
        self._checks = RowChecks(self._data, parts.special, takes_tools=self._renderer.takes_tools)

    def process(self, batch: RowBatch) -> Shard:
        """Turn a batch of rows into documents.

        Raises:
            BrokenRowError: A row cannot be read, and the recipe does not say to continue without such.
            DataError: The template is hostile.
        """
        log = RowLog(rows=len(batch.rows))
        reader = row_reader(batch.layout, self._data.system_prompt, bad_too=self._labels)
        read = [self._read(batch, reader, row, log) for row in batch.rows]
        usable = list[_UsableRow]()
        for index, row in enumerate(self._rendered(read)):
            number = batch.rows[index][0]
            ref = RowRef(batch.source, number)
            if isinstance(row, RowError):
                log.dropped.add(row.reason, ref)
                continue
            try:
                self._checks.whole([rendered for _, rendered in row], ref, log)
            except RowError as error:
                log.dropped.add(error.reason, ref)
                continue
            self._checks.rendering(*row[0], ref, log)
            for piece, rendered in row[1:] if not self._pairs else ():
                self._checks.rendering(piece, rendered, ref, log)
            usable += [_UsableRow(batch.position + index, number, piece, rendered) for piece, rendered in row]
        encoded = self._encoder.encode_with_offsets([item.rendered for item in usable])
        if self._pairs:
            usable, encoded = self._joined_pairs(batch.source, usable, encoded, log)
        return self._shard(batch.source, usable, encoded, log)

    def _joined_pairs(
        self, source: int, usable: Sequence[_UsableRow], encoded: Sequence[Encoded], log: RowLog
    ) -> tuple[list[_UsableRow], list[Encoded]]:
        """Join the two sequences of each pair; drop pairs of which one is too long or has nothing to learn."""
        rows, tokens, longest = list[_UsableRow](), list[Encoded](), self._data.max_length
        for at in range(0, len(usable), 2):
            chosen, rejected = usable[at : at + 2]
            both = encoded[at : at + 2]
            if np.array_equal(both[0].ids, both[1].ids):
                log.dropped.add(EQUAL_RENDERINGS, RowRef(source, chosen.row))
            elif max(len(one.ids) for one in both) > longest:
                log.dropped.add(pair_too_long(longest), RowRef(source, chosen.row))
            elif not all(one.supervised.any() for one in both):
                log.dropped.add("a pair of which a reply has nothing to learn", RowRef(source, chosen.row))
            else:
                rows.append(replace(chosen, rejected=rejected.conversation, rejected_from=len(both[0].ids)))
                tokens.append(Encoded.joined(both))
        return rows, tokens

    def _read(
        self, batch: RowBatch, reader: ShapeReader, row: tuple[int, str, str], log: RowLog
    ) -> tuple[Conversation, ...] | RowError:
        """Parse a row and check its content.

        Returns:
            The row's conversation, or two of a preference pair; or the reason why the row is dropped.

        Raises:
            BrokenRowError: The row cannot be read, and the recipe does not drop such rows.
        """
        number, text, problem = row
        try:
            if problem:
                raise RowError(problem)
            values = self._parsed(batch.name, number, text)
            conversation = checked = reader.read(values, number, batch.name)
            row_conversations: tuple[Conversation, ...] = (conversation,)
            if self._pairs:  # the collector refuses other shapes
                rejected = cast("PreferenceReader", reader).rejected(values, conversation)
                row_conversations = (conversation, rejected)
                checked = replace(conversation, messages=(*conversation.messages, rejected.messages[-1]))
            self._checks.content(checked, RowRef(batch.source, number), log)
        except RowError as error:
            return error
        return row_conversations

    def _rendered(
        self, rows: Sequence[tuple[Conversation, ...] | RowError]
    ) -> Iterator[list[tuple[Conversation, RenderedRow]] | RowError]:
        """Yield each row's pieces with their renderings, or the reason why the row cannot be used."""
        pieces = self._pieces([row for row in rows if not isinstance(row, RowError)])
        rendered = iter(self._renderer.render([piece for row in pieces for piece in row]))
        cut = iter(pieces)
        for row in rows:
            if isinstance(row, RowError):
                yield row
                continue
            pairs, error = list[tuple[Conversation, RenderedRow]](), None
            for piece in next(cut):
                text = next(rendered)
                if isinstance(text, RowError):
                    error = error or text
                else:
                    pairs.append((piece, text))
            yield error or pairs

    def _parsed(self, name: str, number: int, text: str) -> dict[str, Any]:
        """Parse the JSON of a row; where that fails, the recipe says whether the row or the file is refused."""
        try:
            return parsed(text, name, number)
        except BrokenRowError as error:
            if self._data.broken_rows == "drop":
                raise RowError(error.reason) from None
            raise

    def _pieces(self, rows: Sequence[tuple[Conversation, ...]]) -> Sequence[Sequence[Conversation]]:
        """Return the pieces of each row: several where it is too long and the recipe splits such chats."""
        if self._data.overlong != "split" or self._pairs or self._labels:
            return rows
        conversations = [row[0] for row in rows]
        longest = self._data.max_length
        return [
            [conversation] if conversation.text is not None or tokens <= longest else self._exchanges(conversation)
            for conversation, tokens in zip(conversations, self._lengths(conversations), strict=True)
        ]

    def _exchanges(self, conversation: Conversation) -> Sequence[Conversation]:
        return split_chat(conversation, self._data.max_length, lambda piece: self._lengths([piece])[0])

    def _lengths(self, conversations: Sequence[Conversation]) -> list[int]:
        """Count the tokens of each conversation; one that cannot be rendered counts as longer than any limit."""
        rendered = self._renderer.render(conversations)
        encoded = iter(self._encoder.encode([text for text in rendered if not isinstance(text, RowError)]))
        return [2**31 if isinstance(text, RowError) else len(next(encoded)[0]) for text in rendered]

    def _documents(self, item: _UsableRow, row: Encoded) -> Iterator[_DocumentPiece]:
        """Yield a row's documents: one, or several where a long text is split."""
        text, longest = item.conversation.text, self._data.max_length
        whole, digest = conversation_text(item.conversation), _digest(item.conversation)
        if item.rejected is not None:
            whole, digest = (
                whole + conversation_text(item.rejected),
                _with_ids(digest, np.array([_digest(item.rejected)])),
            )
        if not item.conversation.desirable:
            digest = _with_ids(digest, np.zeros(1, dtype=np.int64))
        if text is not None and self._data.overlong in SPLITTING:
            for piece, (begin, end) in split_text(text, row, longest, self._encoder.bos(item.rendered)):
                yield _DocumentPiece(piece.ids, piece.supervised, _with_ids(digest, piece.ids), text[begin:end])
        else:
            yield _DocumentPiece(row.ids, row.supervised, digest, whole)

    def _shard(self, source: int, usable: Sequence[_UsableRow], encoded: Sequence[Encoded], log: RowLog) -> Shard:
        pieces, rows = list[_DocumentPiece](), list[tuple[int, int]]()
        rejected_from, desirable = list[int](), list[bool]()
        for item, row in zip(usable, encoded, strict=True):
            for piece in self._documents(item, row):
                pieces.append(piece)
                rows.append((item.row, item.position))
                rejected_from.append(item.rejected_from)
                desirable.append(item.conversation.desirable)
        places = np.array(rows, dtype=np.int64).reshape(-1, 2)
        log.used = len(np.unique(places[:, 1]))
        token_ends = np.cumsum([len(piece.ids) for piece in pieces], dtype=np.int64)
        spans, span_ends = _supervised_spans([piece.supervised for piece in pieces], token_ends)
        return Shard(
            tokens=np.concatenate([piece.ids for piece in pieces] or [np.zeros(0, dtype=np.int32)]).astype(np.int32),
            token_ends=token_ends,
            spans=spans,
            span_ends=span_ends,
            rows=places[:, 0].copy(),
            sources=np.full(len(places), source, dtype=np.int64),
            positions=places[:, 1].copy(),
            digests=np.array([piece.digest for piece in pieces], dtype=np.int64),
            rejected_from=np.array(rejected_from, dtype=np.int64),
            desirable=np.array(desirable, dtype=np.int64),
            bands=minhash_bands([piece.text for piece in pieces]),
            log=log,
        )


@dataclass(frozen=True, eq=False)
class _DocumentPiece:
    ids: Ids
    supervised: Flags
    digest: int
    text: str


def conversation_text(conversation: Conversation) -> str:
    """Return a row's text without the system message, which many rows share."""
    if conversation.text is not None:
        return conversation.text
    return "\n".join(message.content for message in conversation.messages if message.role != "system")


def _digest(conversation: Conversation) -> int:
    hashed = blake2b(digest_size=8)
    parts: list[Any] = [conversation.text, conversation.messages, conversation.tools]
    for part in [*parts, *([conversation.spans] if conversation.spans else [])]:
        hashed.update(repr(part).encode("utf-8", "surrogatepass"))
    return int.from_bytes(hashed.digest(), "little", signed=True)


def _with_ids(digest: int, ids: Any) -> int:
    """Return the digest of one piece of a row, from the row's digest and the piece's token ids."""
    hashed = blake2b(digest.to_bytes(8, "little", signed=True) + ids.tobytes(), digest_size=8)
    return int.from_bytes(hashed.digest(), "little", signed=True)


def _supervised_spans(flags: Sequence[Flags], ends: Ints) -> tuple[npt.NDArray[np.int32], Ints]:
    """Find the runs of supervised tokens of several documents, of which the first token never is supervised.

    Args:
        flags: supervised tokens of each document.
        ends: [n] end of each document's tokens, when they stand one after another.

    Returns:
        [S, 2] the first and one past the last index of each run within its document; [n] end of each document's runs.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], *flags, [False]]).astype(np.int8))).reshape(-1, 2)
    document = np.searchsorted(ends, edges[:, 0], side="right")
    spans = edges - np.concatenate([[0], ends])[document][:, None]
    return spans.astype(np.int32), np.searchsorted(document, np.arange(len(ends)), side="right").astype(np.int64)
