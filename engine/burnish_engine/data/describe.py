"""What a prepared dataset looks like: lengths, an example, a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.facts import LengthStats
from burnish_engine.data.tokenize import Document

EXAMPLE_TOKENS = 1000
"""Most tokens of the row that is shown."""
MOST_BINS = 20
"""Most lines of a length histogram."""


def length_stats(lengths: npt.ArrayLike) -> LengthStats:
    """Distribution of row lengths.

    Args:
        lengths: Tokens of each row, at least one row.
    """
    counts = np.asarray(lengths)
    return LengthStats(
        mean=float(counts.mean()),
        median=float(np.median(counts)),
        p95=length_to_keep(lengths, 0.95),
        longest=int(counts.max()),
        histogram=_histogram(counts),
    )


def length_to_keep(lengths: npt.ArrayLike, share: float) -> int:
    """The shortest max_length that cuts or drops no more than 1 - share of the rows, tokens."""
    return int(np.quantile(np.asarray(lengths), share, method="higher"))


def example_pieces(document: Document, tokenizer: Any) -> list[tuple[str, bool]]:
    """A document as (text, is it learned) pieces, decoded from the very tokens that are trained on.

    Args:
        document: The row to show.
        tokenizer: Decodes ids.
    """

    def decode(ids: Any) -> str:
        text: str = tokenizer.decode(ids.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    shown = document.cut(EXAMPLE_TOKENS)
    if not len(shown):
        return []
    changes = np.flatnonzero(np.diff(shown.learned)) + 1
    pieces = []
    before = ""
    for start, end in pairwise([0, *changes.tolist(), len(shown)]):
        # Decoded together with what precedes: alone, a piece would lose its leading space in some tokenizers.
        upto = decode(shown.input_ids[:end])
        piece = upto[len(before) :] if upto.startswith(before) else decode(shown.input_ids[start:end])
        pieces.append((piece, bool(shown.learned[start])))
        before = upto
    return [*pieces, ("...", False)] if shown is not document else pieces


def dataset_hash(*parts: Iterable[Document]) -> str:
    """SHA-256 over the token ids and learned flags of each part, in order."""
    digest = hashlib.sha256()
    for part in parts:
        for document in part:
            digest.update(len(document).to_bytes(8, "little"))
            digest.update(document.input_ids.astype("<i4").tobytes())
            digest.update(np.packbits(document.learned).tobytes())
        digest.update(b"part")
    return digest.hexdigest()


def _histogram(counts: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Rows by length, in as many bins an octave as a page can show."""
    histogram: list[tuple[int, int]] = []
    for bins_per_octave in (4, 2, 1):
        edges = _edges(int(counts.max()), bins_per_octave)
        rows = np.bincount(np.searchsorted(edges, counts, side="left"), minlength=len(edges)).tolist()
        first = next(index for index, count in enumerate(rows) if count)
        histogram = list(zip(edges, rows, strict=True))[first:]
        if len(histogram) <= MOST_BINS:
            break
    return histogram


def _edges(longest: int, bins_per_octave: int) -> list[int]:
    """Upper edges from 16 up to the longest row, such as 16, 24, 32, 48, 64 with two bins an octave."""
    edges = [16]
    while edges[-1] < longest:
        octave = 1 << (edges[-1].bit_length() - 1)
        edges.append(edges[-1] + octave // bins_per_octave)
    return edges
