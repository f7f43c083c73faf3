"""From rendered rows to token ids, each with whether it is learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from burnish_engine.data import slices
from burnish_engine.data.spans import Rendered
from burnish_engine.data.template import adds_bos

Ids = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Document:
    """One row, ready to be trained on.

    Attributes:
        input_ids: Token ids.
        learned: For each token, whether it is a target. Never the first, which nothing predicts.
        row: Number of the row in its file, from 1.
        file: Path of the file.
        truncated: Whether the row was cut to the longest length.
    """

    input_ids: Ids
    learned: Flags
    row: int
    file: str
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def supervised_tokens(self) -> int:
        """Tokens that the loss counts."""
        return int(self.learned.sum())

    def cut(self, length: int) -> Document:
        """The document's first tokens.

        Args:
            length: Longest length, tokens.
        """
        if len(self) <= length:
            return self
        return Document(self.input_ids[:length].copy(), self.learned[:length].copy(), self.row, self.file, True)


@dataclass(frozen=True)
class TokenizerParts:
    """What tokenizing needs of a transformers tokenizer, as plain values that another process can be given.

    Attributes:
        backend: The `tokenizers` backend as JSON.
        bos_id: Id of the beginning-of-sequence token, if there is one.
        eos_id: Id of the end-of-sequence token, if there is one.
        eos_token: Its text.
        adds_bos: Whether the tokenizer puts its beginning-of-sequence token before every text.
        added: Texts of the added tokens.
        special: Those of them that are control tokens.
        swallowing: Id to text of those that take the white space beside them, which they do not stand for.
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
        """The parts of a fast transformers tokenizer."""
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
        learned: [T] whether each is a target.
        starts: [T] first character of each in the rendered text.
    """

    ids: Ids
    learned: Flags
    starts: Ids

    @classmethod
    def of(cls, token: int, *, learned: bool, start: int) -> Encoded:
        """One token."""
        return cls(np.array([token], np.int32), np.array([learned]), np.array([start], np.int32))

    @classmethod
    def joined(cls, parts: Sequence[Encoded]) -> Encoded:
        """Several stretches of tokens as one."""
        if len(parts) == 1:
            return parts[0]
        ids, learned, starts = zip(*parts, strict=True)
        return cls(np.concatenate(ids), np.concatenate(learned), np.concatenate(starts))

    def part(self, begin: int, end: int) -> Encoded:
        """A copy of some tokens.

        Args:
            begin: number of the first.
            end: one past the number of the last.
        """
        return Encoded(self.ids[begin:end].copy(), self.learned[begin:end].copy(), self.starts[begin:end].copy())


class Encoder:
    """Tokenizes with the exact characters that each token covers.

    Works on a copy of the tokenizer's backend without its post-processor. With `add_special_tokens=False` that changes
    no id, but byte-level post-processors with `trim_offsets` would take the spaces out of the offsets, leaving tokens
    of spaces with none at all.

    Args:
        parts: The tokenizer.
    """

    def __init__(self, parts: TokenizerParts) -> None:
        from tokenizers import Tokenizer

        backend = Tokenizer.from_str(parts.backend)
        backend.post_processor = None
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.adds_bos = parts.adds_bos
        self._bos, self._eos = parts.bos_id, parts.eos_id
        self._swallowing = dict(parts.swallowing)

    def encode(self, rows: Sequence[Rendered]) -> list[tuple[Ids, Flags]]:
        """Token ids and learned flags of each row, at full length.

        A token is learned if it covers at least one character of a span. Nothing is decided by a token's id, so that a
        padding token that is also the end-of-sequence token loses nothing.
        """
        return [(row.ids, row.learned) for row in self.located(rows)]

    def located(self, rows: Sequence[Rendered]) -> list[Encoded]:
        """As `encode`, with the place of each token in the text."""
        short = [row.text for row in rows if len(row.text) <= slices.SLICE_CHARS]
        encodings = iter(self._backend.encode_batch(short, add_special_tokens=False))
        found = list[Encoded]()
        for row in rows:
            if len(row.text) <= slices.SLICE_CHARS:
                parts = iter([slices.whole(next(encodings), row.text)])
            else:
                parts = slices.sliced(lambda text: self._backend.encode(text, add_special_tokens=False), row.text)
            found.append(self._joined(row, [self._with_flags(row, part) for part in parts]))
        return found

    def bos(self, row: Rendered) -> int | None:
        """The id that stands before a row's text, if there is one."""
        return self._bos if row.add_bos else None

    def _with_flags(self, row: Rendered, part: slices.Slice) -> Encoded:
        """The tokens of a stretch of a row."""
        offsets, length = part.offsets, part.end - part.begin
        if self._swallowing:
            self._shrink(row.text, part.ids, offsets)
        spans = [(max(start, part.begin) - part.begin, min(end, part.end) - part.begin) for start, end in row.spans]
        learned = covers(offsets - part.begin, [span for span in spans if span[0] < span[1]], length)
        return Encoded(part.ids, learned, offsets[:, 0].astype(np.int32))

    def _joined(self, row: Rendered, parts: list[Encoded]) -> Encoded:
        """The tokens of a row, with those that stand before and after its text."""
        holds_bos = next((int(part.ids[0]) for part in parts if len(part.ids)), None) == self._bos  # rendered before
        adds_bos = row.add_bos and self._bos is not None and not holds_bos
        begin = [Encoded.of(self._bos, learned=False, start=0)] if adds_bos and self._bos is not None else []
        end = (
            [Encoded.of(self._eos, learned=True, start=len(row.text))] if row.add_eos and self._eos is not None else []
        )
        whole = Encoded.joined([*begin, *parts, *end])
        whole.learned[:1] = False
        return whole

    def _shrink(self, text: str, ids: Ids, offsets: npt.NDArray[np.int64]) -> None:
        """Take the swallowed white space out of the offsets of such tokens, in place."""
        for index in np.flatnonzero(np.isin(ids, list(self._swallowing))):
            literal = self._swallowing[int(ids[index])]
            found = text.find(literal, *offsets[index])
            if found >= 0:
                offsets[index] = found, found + len(literal)


def covers(offsets: npt.NDArray[np.int64], spans: Sequence[tuple[int, int]], length: int) -> Flags:
    """Which tokens cover a character of a span.

    Args:
        offsets: [tokens, 2] first and one past the last character of each token. An empty one (a token that the
            tokenizer made up, such as a leading space mark) counts as the character it stands before.
        spans: Half-open character ranges.
        length: Characters of the text.
    """
    inside = np.zeros(length + 2, dtype=np.int64)
    for start, end in spans:
        inside[start + 1 : end + 1] = 1
    before = np.cumsum(inside)  # before[i]: characters of spans among the first i
    starts, ends = offsets[:, 0], offsets[:, 1]
    flags: Flags = before[np.maximum(ends, starts + 1)] > before[starts]
    return flags
