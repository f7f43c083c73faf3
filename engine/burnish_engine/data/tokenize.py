"""From rendered rows to token ids, each with whether it is learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

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
        encodings = self._backend.encode_batch([row.text for row in rows], add_special_tokens=False)
        return [self._with_flags(row, encoding) for row, encoding in zip(rows, encodings, strict=True)]

    def _with_flags(self, row: Rendered, encoding: Any) -> tuple[Ids, Flags]:
        ids = np.array(encoding.ids, dtype=np.int32)
        pairs = encoding.offsets
        offsets = np.fromiter(chain.from_iterable(pairs), dtype=np.int64, count=2 * len(pairs)).reshape(-1, 2)
        if self._swallowing:
            self._shrink(row.text, ids, offsets)
        learned = covers(offsets, row.spans, len(row.text))
        # A text may hold it already, as chats do that were rendered before.
        if row.add_bos and self._bos is not None and not (len(ids) and ids[0] == self._bos):
            ids, learned = np.insert(ids, 0, self._bos), np.insert(learned, 0, False)
        if row.add_eos and self._eos is not None:
            ids, learned = np.append(ids, np.int32(self._eos)), np.append(learned, True)
        learned[:1] = False
        return ids, learned

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
