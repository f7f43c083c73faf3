"""Tokenizes rendered rows to ids with a supervision flag for each token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from burnish_engine.data.templates.spans import RenderedRow
from burnish_engine.data.templates.template import adds_bos
from burnish_engine.data.tokens import slices
from burnish_engine.data.tokens.byte_tokens import ByteTokens, PlacedTokens

Ids = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Document:
    """One tokenized row or piece of a row, ready for training. T tokens.

    A preference pair is one document of two sequences that do not see each other: prompt and chosen reply, then prompt
    and rejected reply. So nothing that orders, splits or packs documents can tear it apart.

    Attributes:
        input_ids: [T] token ids.
        supervised: [T] whether each token is a target; the first never is, since nothing predicts it.
        row: number of the row in its file, from 1.
        file: path of the file.
        truncated: whether the row was cut to the longest length.
        rejected_from: index at which the second sequence of a preference pair begins; 0: there is one sequence.
        desirable: whether the reply is labeled good; so are replies without a label.
    """

    input_ids: Ids
    supervised: Flags
    row: int
    file: str
    truncated: bool = False
    rejected_from: int = 0
    desirable: bool = True

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def supervised_tokens(self) -> int:
        """Number of tokens that the loss counts."""
        return int(self.supervised.sum())

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Tokens of each sequence: one, or two of a preference pair."""
        return (self.rejected_from, len(self) - self.rejected_from) if self.rejected_from else (len(self),)

    def first_sequence(self) -> Document:
        """Return the document itself, or of a preference pair the prompt with the chosen reply."""
        if not self.rejected_from:
            return self
        end = self.rejected_from
        return Document(self.input_ids[:end].copy(), self.supervised[:end].copy(), self.row, self.file)

    def cut(self, length: int) -> Document:
        """Cut the document to its first tokens; a document that fits is returned as it is.

        Args:
            length: most tokens of the result.
        """
        if len(self) <= length:
            return self
        ids, supervised = self.input_ids[:length].copy(), self.supervised[:length].copy()
        return Document(ids, supervised, self.row, self.file, True, desirable=self.desirable)


@dataclass(frozen=True)
class TokenizerParts:
    """The parts of a transformers tokenizer that tokenizing needs, as plain values that another process can be given.

    Attributes:
        backend: `tokenizers` backend as JSON.
        bos_id: id of the beginning-of-sequence token; None without one.
        eos_id: id of the end-of-sequence token; None without one.
        eos_token: text of the end-of-sequence token; None without one.
        adds_bos: whether the tokenizer puts its beginning-of-sequence token before every text.
        added: texts of the added tokens.
        special: texts of the added tokens that are control tokens.
        swallowing: (id, text) of the added tokens whose offsets include the white space beside them.
    """

    backend: str
    bos_id: int | None
    eos_id: int | None
    eos_token: str | None
    adds_bos: bool
    added: tuple[str, ...]
    special: tuple[str, ...]
    swallowing: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, tokenizer: Any) -> TokenizerParts:
        """Extract the parts of a fast transformers tokenizer."""
        added = tokenizer.added_tokens_decoder
        return cls(
            backend=tokenizer.backend_tokenizer.to_str(),
            bos_id=tokenizer.bos_token_id,
            eos_id=tokenizer.eos_token_id,
            eos_token=tokenizer.eos_token,
            adds_bos=adds_bos(tokenizer),
            added=tuple(token.content for token in added.values()),
            special=tuple(token.content for token in added.values() if token.special),
            swallowing=tuple((index, token.content) for index, token in added.items() if token.lstrip or token.rstrip),
        )


class Encoded(NamedTuple):
    """The tokens of a row. T tokens.

    Attributes:
        ids: [T] token ids.
        supervised: [T] whether each token is a target.
        starts: [T] first character of each token in the rendered text.
    """

    ids: Ids
    supervised: Flags
    starts: Ids

    @classmethod
    def of(cls, token: int, *, supervised: bool, start: int) -> Encoded:
        """Build the encoding of one token."""
        return cls(np.array([token], np.int32), np.array([supervised]), np.array([start], np.int32))

    @classmethod
    def joined(cls, parts: Sequence[Encoded]) -> Encoded:
        """Join several stretches of tokens into one."""
        if len(parts) == 1:
            return parts[0]
        ids, supervised, starts = zip(*parts, strict=True)
        return cls(np.concatenate(ids), np.concatenate(supervised), np.concatenate(starts))

    def part(self, begin: int, end: int) -> Encoded:
        """Copy some consecutive tokens.

        Args:
            begin: index of the first token.
            end: one past the index of the last token.
        """
        return Encoded(self.ids[begin:end].copy(), self.supervised[begin:end].copy(), self.starts[begin:end].copy())


class Encoder:
    """Tokenizes rows with the exact characters that each token covers.

    The encoder works on a copy of the tokenizer's backend without its post-processor. With `add_special_tokens=False`
    that changes no id. Byte-level post-processors with `trim_offsets` would remove spaces from the offsets and leave
    tokens of spaces with empty ones.

    Args:
        parts: parts of the tokenizer.
    """

    def __init__(self, parts: TokenizerParts) -> None:
        from tokenizers import Tokenizer

        backend = Tokenizer.from_str(parts.backend)
        backend.post_processor = None
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._bytes = ByteTokens(backend) if ByteTokens.is_lossless(backend) else None
        self.adds_bos = parts.adds_bos
        self._bos, self._eos = parts.bos_id, parts.eos_id
        self._swallowing = dict(parts.swallowing)

    def encode(self, rows: Sequence[RenderedRow]) -> list[tuple[Ids, Flags]]:
        """Tokenize each row at full length to token ids and supervision flags.

        A token is supervised if it covers at least one character of a span. Ids decide nothing, so an end-of-sequence
        token that is also the padding token stays supervised.
        """
        return [(row.ids, row.supervised) for row in self.encode_with_offsets(rows)]

    def encode_with_offsets(self, rows: Sequence[RenderedRow]) -> list[Encoded]:
        """Tokenize each row at full length, with the first character of each token; see `encode` for the flags."""
        short = iter(self._encode_together([row for row in rows if len(row.text) <= slices.SLICE_CHARS]))
        return [
            self._joined(row, [next(short)] if len(row.text) <= slices.SLICE_CHARS else self._encode_slices(row))
            for row in rows
        ]

    def _encode_together(self, rows: Sequence[RenderedRow]) -> Iterator[Encoded]:
        """Tokenize rows at once, and compute all their flags as those of one long text with a gap after each row."""
        texts = [row.text for row in rows]
        ids, counts, offsets = (self._bytes and self._bytes.place(texts)) or self._with_offsets(texts)
        ends = np.cumsum(counts, dtype=np.int64).tolist()
        if self._swallowing:
            for row, end, count in zip(rows, ends, counts, strict=True):
                self._shrink(row.text, ids[end - count : end], offsets[end - count : end])
        places = np.cumsum([0, *(len(row.text) + 2 for row in rows)])
        spans = [
            (place + begin, place + end)
            for place, row in zip(places[:-1].tolist(), rows, strict=True)
            for begin, end in row.spans
        ]
        placed = offsets + np.repeat(places[:-1], counts)[:, None]
        supervised = covered_tokens(placed, spans, int(places[-1]))
        starts = offsets[:, 0].astype(np.int32)
        for end, count in zip(ends, counts, strict=True):
            own = slice(end - count, end)
            yield Encoded(ids[own], supervised[own], starts[own])

    def _with_offsets(self, texts: Sequence[str]) -> PlacedTokens:
        """Tokenize texts, and ask the tokenizer where the tokens lie."""
        found = self._backend.encode_batch(texts, add_special_tokens=False)
        counts = [len(encoding) for encoding in found]
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in found), np.int32, sum(counts))
        pairs = chain.from_iterable(encoding.offsets for encoding in found)
        offsets = np.fromiter(chain.from_iterable(pairs), np.int64, 2 * len(ids)).reshape(-1, 2)
        return PlacedTokens(ids, counts, offsets)

    def _encode_slices(self, row: RenderedRow) -> list[Encoded]:
        parts = slices.tokenize_slices(lambda text: self._backend.encode(text, add_special_tokens=False), row.text)
        return [self._with_flags(row, part) for part in parts]

    def bos(self, row: RenderedRow) -> int | None:
        """Return the id that stands before a row's text; None without one."""
        return self._bos if row.add_bos else None

    def _with_flags(self, row: RenderedRow, part: slices.TokenSlice) -> Encoded:
        """Add supervision flags to the tokens of a stretch of a row."""
        offsets, length = part.offsets, part.end - part.begin
        if self._swallowing:
            self._shrink(row.text, part.ids, offsets)
        spans = [(max(start, part.begin) - part.begin, min(end, part.end) - part.begin) for start, end in row.spans]
        supervised = covered_tokens(offsets - part.begin, [span for span in spans if span[0] < span[1]], length)
        return Encoded(part.ids, supervised, offsets[:, 0].astype(np.int32))

    def _joined(self, row: RenderedRow, parts: list[Encoded]) -> Encoded:
        """Join the stretches of a row, and add the ids that stand before and after its text."""
        holds_bos = next((int(part.ids[0]) for part in parts if len(part.ids)), None) == self._bos  # rendered before
        adds_bos = row.add_bos and self._bos is not None and not holds_bos
        begin = [Encoded.of(self._bos, supervised=False, start=0)] if adds_bos and self._bos is not None else []
        end = (
            [Encoded.of(self._eos, supervised=True, start=len(row.text))]
            if row.add_eos and self._eos is not None
            else []
        )
        whole = Encoded.joined([*begin, *parts, *end])
        whole.supervised[:1] = False
        return whole

    def _shrink(self, text: str, ids: Ids, offsets: npt.NDArray[np.int64]) -> None:
        """Remove swallowed white space from the offsets of added tokens, in place."""
        for index in np.flatnonzero(np.isin(ids, list(self._swallowing))):
            literal = self._swallowing[int(ids[index])]
            found = text.find(literal, *offsets[index])
            if found >= 0:
                offsets[index] = found, found + len(literal)


def covered_tokens(offsets: npt.NDArray[np.int64], spans: Sequence[tuple[int, int]], length: int) -> Flags:
    """Tell which tokens cover a character of a span.

    Args:
        offsets: [tokens, 2] first and one past the last character of each token. An empty one (a token that the
            tokenizer made up, such as a leading space mark) counts as the character that it stands before.
        spans: half-open character ranges.
        length: length of the text, characters.
    """
    inside = np.zeros(length + 2, dtype=np.int64)
    for start, end in spans:
        inside[start + 1 : end + 1] = 1
    before = np.cumsum(inside)  # before[i]: characters of spans among the first i
    starts, ends = offsets[:, 0], offsets[:, 1]
    flags: Flags = before[np.maximum(ends, starts + 1)] > before[starts]
    return flags
