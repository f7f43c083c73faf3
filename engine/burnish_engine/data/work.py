"""What is done with each row, in whichever process: parse, understand, render, tokenize, look for trouble."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from hashlib import blake2b
from typing import Any

import numpy as np

from burnish_engine.contract.recipe_data import DataSection
from burnish_engine.data import noticing
from burnish_engine.data.conversation import Conversation
from burnish_engine.data.formats import parsed
from burnish_engine.data.media import has_media_tag
from burnish_engine.data.near import bands_of
from burnish_engine.data.notes import Notes
from burnish_engine.data.pack import DATA_ORDER
from burnish_engine.data.problems import BrokenRowError, Place, RowError
from burnish_engine.data.row_renderer import RowRenderer
from burnish_engine.data.shapes import Layout
from burnish_engine.data.shard import BAND_COUNT, Shard
from burnish_engine.data.spans import Rendered
from burnish_engine.data.split_rows import exchanges, passages, windows
from burnish_engine.data.template import ChatTemplate
from burnish_engine.data.tokenize import Encoded, Encoder, Flags, Ids, TokenizerParts

SPLITTING = ("auto", "split")
"""Values of `data.overlong` with which a long text becomes several documents."""


@dataclass(frozen=True)
class TemplateParts:
    """A chat template as plain values.

    Attributes:
        source: Jinja source.
        special_tokens: special tokens, as `ChatTemplate` takes them.
        today: date for a template that asks for it.
        file: path that it was read from, for messages.
    """

    source: str
    special_tokens: dict[str, Any]
    today: date
    file: str = field(default="", repr=False)  # the representation decides what is the same


@dataclass(frozen=True)
class Instructions:
    """All that decides what becomes of a row.

    Attributes:
        tokenizer: The tokenizer.
        template: The chat template.
        data: The recipe's settings.
        order: version of the data order; in order 1, long texts are split anywhere.
    """

    tokenizer: TokenizerParts
    template: TemplateParts
    data: DataSection
    order: int = DATA_ORDER

    def key(self, *, texts: bool) -> str:
        """Equal where rows become the same documents, with the same notes.

        Args:
            texts: Whether there are plain texts among the rows, which `data.overlong = "auto"` splits.
        """
        data = self.data
        splits = data.overlong == "split" or (texts and data.overlong == "auto")
        split = (data.max_length, self.order) if splits else ()
        settings = (data.shape, tuple(data.columns), data.encoding, data.learn, data.system_prompt, split)
        actions = (
            data.broken_rows, data.degenerate, data.secrets, data.addresses, data.damaged, data.control_tokens,
            data.tools, data.placeholders,
        )  # fmt: skip
        whole = repr((self.tokenizer, self.template, settings, actions))
        return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


@dataclass(frozen=True)
class Batch:
    """Some rows of one part.

    Attributes:
        source: Index of the part.
        name: The part's name.
        layout: What its columns mean.
        position: Place of the first row among the part's rows, from 0.
        rows: (number, JSON text, why it cannot be read or an empty text).
    """

    source: int
    name: str
    layout: Layout
    position: int
    rows: Sequence[tuple[int, str, str]]


@dataclass(frozen=True)
class _Usable:
    position: int
    row: int
    conversation: Conversation
    rendered: Rendered


class Worker:
    """Turns batches of rows into shards.

    Args:
        instructions: all that decides what becomes of a row.
    """

    def __init__(self, instructions: Instructions) -> None:
        parts, template = instructions.tokenizer, instructions.template
        self._data, self._order = instructions.data, instructions.order
        self._encoder = Encoder(parts)
        self._renderer = RowRenderer(
            ChatTemplate(template.source, template.special_tokens, today=template.today, file=template.file),
            parts.eos_token,
            parts.added,
            text_bos=parts.adds_bos,
            learn=self._data.learn,
        )
        special = sorted(set(parts.special), key=len, reverse=True)
        self._control_tokens = re.compile("|".join(map(re.escape, special)) or "(?!)")

    def work(self, batch: Batch) -> Shard:
        """The documents of some rows.

        Raises:
            BrokenRowError: A row cannot be read, and the recipe does not say to go on without such.
            DataError: The template is hostile.
        """
        notes = Notes(rows=len(batch.rows))
        read = [self._read(batch, row, notes) for row in batch.rows]
        usable = list[_Usable]()
        for index, row in enumerate(self._rendered(read)):
            number = batch.rows[index][0]
            place = Place(batch.source, number)
            if isinstance(row, RowError):
                notes.dropped.add(row.reason, place)
                continue
            for piece, rendered in row:
                self._note(piece, rendered, place, notes)
                usable.append(_Usable(batch.position + index, number, piece, rendered))
        encoded = self._encoder.located([item.rendered for item in usable])
        return self._shard(batch.source, usable, encoded, notes)

    def _read(self, batch: Batch, row: tuple[int, str, str], notes: Notes) -> Conversation | RowError:
        """The conversation in a row, looked through for trouble; or why there is none.

        Raises:
            BrokenRowError: As `conversation`.
        """
        number, text, problem = row
        try:
            if problem:
                raise RowError(problem)
            conversation = self.conversation(batch.layout, batch.name, number, text)
            self._notice(conversation, Place(batch.source, number), notes)
        except RowError as error:
            return error
        return conversation

    def _rendered(
        self, rows: Sequence[Conversation | RowError]
    ) -> Iterator[list[tuple[Conversation, Rendered]] | RowError]:
        """The pieces of each row with their renderings; or why it cannot be used."""
        pieces = self._pieces([row for row in rows if not isinstance(row, RowError)])
        rendered = iter(self._renderer.render([piece for row in pieces for piece in row]))
        cut = iter(pieces)
        for row in rows:
            if isinstance(row, RowError):
                yield row
                continue
            pairs, error = list[tuple[Conversation, Rendered]](), None
            for piece in next(cut):
                text = next(rendered)
                if isinstance(text, RowError):
                    error = error or text
                else:
                    pairs.append((piece, text))
            yield error or pairs

    def conversation(self, layout: Layout, name: str, number: int, text: str) -> Conversation:
        """The conversation in a row.

        Raises:
            RowError: It cannot be used, or not be read where the recipe says to go on without such.
            BrokenRowError: It cannot be read.
        """
        try:
            values = parsed(text, name, number)
        except BrokenRowError as error:
            if self._data.broken_rows == "drop":
                raise RowError(error.reason) from None
            raise
        return layout.conversation(values, number, name, self._data.system_prompt)

    def _pieces(self, conversations: Sequence[Conversation]) -> Sequence[Sequence[Conversation]]:
        """Each conversation, in several pieces where it is too long and the recipe says so."""
        if self._data.overlong != "split":
            return [[conversation] for conversation in conversations]
        longest = self._data.max_length
        return [
            [conversation] if conversation.text is not None or tokens <= longest else self._exchanges(conversation)
            for conversation, tokens in zip(conversations, self._lengths(conversations), strict=True)
        ]

    def _exchanges(self, conversation: Conversation) -> Sequence[Conversation]:
        return exchanges(conversation, self._data.max_length, lambda piece: self._lengths([piece])[0])

    def _lengths(self, conversations: Sequence[Conversation]) -> list[int]:
        """Tokens of each conversation; more than any limit where it cannot be rendered."""
        rendered = self._renderer.render(conversations)
        encoded = iter(self._encoder.encode([text for text in rendered if not isinstance(text, RowError)]))
        return [2**31 if isinstance(text, RowError) else len(next(encoded)[0]) for text in rendered]

    def _notice(self, conversation: Conversation, place: Place, notes: Notes) -> None:
        """Look for trouble in what a row says; and for tools and thoughts.

        Raises:
            RowError: There is some that the recipe does not want.
        """
        texts = [conversation.text or "", *(message.content for message in conversation.messages)]
        whole = "\n".join(texts)
        data = self._data
        control = next(filter(None, map(self._control_tokens.search, texts)), None)
        if conversation.spans is not None:
            control = None  # rows of segments spell their tokens out on purpose
        placeholder = noticing.placeholder_in(conversation)
        degenerate = noticing.degenerate_in(conversation)
        unwritten = conversation.tools and not self._renderer.takes_tools
        found = [
            *((what, data.secrets) for what in noticing.secrets_in(whole)),
            *((what, data.damaged) for what in noticing.damage_in(whole)),
            *([(degenerate, data.degenerate)] if degenerate else []),
            *([(noticing.EMAIL, data.addresses)] if noticing.addresses_in(whole) else []),
            *([(noticing.CONTROL, data.control_tokens)] if control else []),
            *([(noticing.TOOLS, data.tools)] if unwritten else []),
            *([(noticing.PLACEHOLDER, data.placeholders)] if placeholder else []),
            *([(noticing.MEDIA_TAG, "keep")] if has_media_tag(texts) else []),
        ]
        for what, setting in found:
            if setting == "drop":
                raise RowError(f"looks like {what}" if what in noticing.SECRETS else what)
        for what, _ in found:
            notes.noticed.add(what, place)
        if control:
            notes.control_example = notes.control_example or control[0]
        if placeholder:
            notes.shown.setdefault(noticing.PLACEHOLDER, placeholder)
        notes.called += any("tool_calls" in message.extras for message in conversation.messages)
        notes.thoughtful += any("reasoning_content" in message.extras for message in conversation.messages)

    def _note(self, conversation: Conversation, rendered: Rendered, place: Place, notes: Notes) -> None:
        if conversation.text is not None:
            return
        if rendered.turn_end:
            notes.turn_ends = sorted({*notes.turn_ends, rendered.turn_end})
        elif conversation.messages[-1].role == "assistant":
            notes.noticed.add(noticing.OPEN, place)
        if rendered.prompt_differs:
            notes.noticed.add(noticing.OTHERWISE, place)

    def _documents(self, item: _Usable, row: Encoded) -> Iterator[_Piece]:
        """What a row becomes: one document, or several of a long text that goes on."""
        text, longest = item.conversation.text, self._data.max_length
        whole, digest = conversation_text(item.conversation), _digest(item.conversation)
        if self._data.overlong == "split" and self._order == 1:
            band = bands_of(whole)
            for ids, learned in windows(row.ids, row.learned, longest if text is not None else 0):
                yield _Piece(ids, learned, _with_ids(digest, ids), band)
        elif text is not None and self._data.overlong in SPLITTING:
            for piece, (begin, end) in passages(text, row, longest, self._encoder.bos(item.rendered)):
                yield _Piece(piece.ids, piece.learned, _with_ids(digest, piece.ids), bands_of(text[begin:end]))
        else:
            yield _Piece(row.ids, row.learned, digest, bands_of(whole))

    def _shard(self, source: int, usable: Sequence[_Usable], encoded: Sequence[Encoded], notes: Notes) -> Shard:
        tokens, spans, rows = list[Ids](), list[Any](), list[tuple[int, int]]()
        token_ends, span_ends, digests, bands = list[int](), list[int](), list[int](), list[Any]()
        for item, row in zip(usable, encoded, strict=True):
            for piece in self._documents(item, row):
                found = _learned_spans(piece.learned)
                tokens.append(piece.ids)
                spans.append(found)
                token_ends.append((token_ends[-1] if token_ends else 0) + len(piece.ids))
                span_ends.append((span_ends[-1] if span_ends else 0) + len(found))
                rows.append((item.row, item.position))
                digests.append(piece.digest)
                bands.append(piece.bands)
        places = np.array(rows, dtype=np.int64).reshape(-1, 2)
        notes.used = len(np.unique(places[:, 1]))
        return Shard(
            tokens=np.concatenate(tokens).astype(np.int32) if tokens else np.zeros(0, dtype=np.int32),
            token_ends=np.array(token_ends, dtype=np.int64),
            spans=np.concatenate(spans).astype(np.int32) if spans else np.zeros((0, 2), dtype=np.int32),
            span_ends=np.array(span_ends, dtype=np.int64),
            rows=places[:, 0].copy(),
            sources=np.full(len(places), source, dtype=np.int64),
            positions=places[:, 1].copy(),
            digests=np.array(digests, dtype=np.int64),
            bands=np.array(bands, dtype=np.uint32).reshape(-1, BAND_COUNT),
            notes=notes,
        )


@dataclass(frozen=True, eq=False)
class _Piece:
    ids: Ids
    learned: Flags
    digest: int
    bands: Any


def conversation_text(conversation: Conversation) -> str:
    """What a row says, without the system message, which many rows share."""
    if conversation.text is not None:
        return conversation.text
    return "\n".join(message.content for message in conversation.messages if message.role != "system")


def _digest(conversation: Conversation) -> int:
    hashed = blake2b(digest_size=8)
    parts: list[Any] = [conversation.text, conversation.messages, conversation.tools]
    for part in [*parts, *([conversation.spans] if conversation.spans else [])]:
        hashed.update(repr(part).encode("utf-8", "surrogatepass"))
    return int.from_bytes(hashed.digest(), "little", signed=True)


def _with_ids(digest: int, ids: Ids) -> int:
    """The digest of one piece of a row."""
    hashed = blake2b(digest.to_bytes(8, "little", signed=True) + ids.tobytes(), digest_size=8)
    return int.from_bytes(hashed.digest(), "little", signed=True)


def _learned_spans(flags: Flags) -> Any:
    """[spans, 2] first and one past the last of each run of learned tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return edges.reshape(-1, 2)
