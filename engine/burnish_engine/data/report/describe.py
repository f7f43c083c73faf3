"""Describes a prepared dataset by its length distribution, an example row and a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.best_fit import even_quantiles
from burnish_engine.contract.facts.facts import LengthStats
from burnish_engine.data.tokens.tokenize import Document

EXAMPLE_TOKENS = 1000
"""Most tokens of the example row."""
MOST_BINS = 20
"""Most bins of a length histogram."""
MOST_SAMPLED = 1024
"""Most lengths that are kept to pack rows again for another token budget."""
MOST_STEPS = 128
"""Most even steps of length."""
_LEAST_STEP = 8  # tokens
_FAR, _USUAL_SHARE = 2, 0.99  # rows longer than twice what 99 % of them are within get no steps of their own
_SPEAKER, _SAID = ("role", "from"), ("content", "value")  # keys of a turn in the layouts that people share


def length_stats(lengths: npt.ArrayLike) -> LengthStats:
    """Compute the distribution of row lengths.

    Args:
        lengths: tokens of each row, at least one row.
    """
    counts = np.asarray(lengths)
    return LengthStats(
        mean=float(counts.mean()),
        median=float(np.median(counts)),
        p95=length_to_keep(lengths, 0.95),
        longest=int(counts.max()),
        histogram=_histogram(counts),
        sample=even_quantiles(np.sort(counts).tolist(), MOST_SAMPLED),
    )


def length_steps(lengths: npt.ArrayLike, scale: float = 1.0) -> list[tuple[int, int, int]]:
    """Count what lies beyond each of some lengths, so that the effect of any cut among them is known.

    Args:
        lengths: tokens of each row, at least one row.
        scale: number of rows of the dataset for each of them.

    Returns:
        (length in tokens, rows that are longer, tokens of them beyond it) of lengths from 0 at even steps of a power of
        two, at most `MOST_STEPS`; the last length is that of the longest row. Where that one is far beyond the others,
        the steps end before it.
    """
    counts = np.sort(np.asarray(lengths, dtype=np.int64))
    longest = int(counts[-1])
    usual = min(longest, _FAR * length_to_keep(counts, _USUAL_SHARE))
    step = _LEAST_STEP
    while usual // step >= MOST_STEPS:
        step *= 2
    steps = [*range(0, usual, step), *([-(-usual // step) * step] if usual < longest else []), longest]
    sums = np.concatenate([[0], np.cumsum(counts)])
    found = []
    for length in sorted({min(at, longest) for at in steps}):
        shorter = int(np.searchsorted(counts, length, side="right"))
        rows = len(counts) - shorter
        tokens = int(sums[-1] - sums[shorter]) - rows * length
        found.append((length, round(rows * scale), round(tokens * scale)))
    return found


def length_to_keep(lengths: npt.ArrayLike, share: float) -> int:
    """Return the shortest max_length, in tokens, that cuts or drops at most 1 - share of the rows."""
    return int(np.quantile(np.asarray(lengths), share, method="higher"))


def example_pieces(document: Document, tokenizer: Any) -> list[tuple[str, bool]]:
    """Decode a document's tokens into (text, supervised) pieces.

    Args:
        document: row to show; only its first `EXAMPLE_TOKENS` tokens are decoded.
        tokenizer: tokenizer that decodes the ids.
    """

    def decode(ids: Any) -> str:
        text: str = tokenizer.decode(ids.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    shown = document.cut(EXAMPLE_TOKENS)
    if not len(shown):
        return []
    changes = np.flatnonzero(np.diff(shown.supervised)) + 1
    pieces = []
    before = ""
    for start, end in pairwise([0, *changes.tolist(), len(shown)]):
        # Decoded together with what precedes: alone, a piece would lose its leading space in some tokenizers.
        upto = decode(shown.input_ids[:end])
        piece = upto[len(before) :] if upto.startswith(before) else decode(shown.input_ids[start:end])
        pieces.append((piece, bool(shown.supervised[start])))
        before = upto
    return [*pieces, ("...", False)] if shown is not document else pieces


def dataset_hash(*parts: Iterable[Document]) -> str:
    """Hash (SHA-256) the token ids and supervision flags of all documents of each part, in order."""
    digest = hashlib.sha256()
    for part in parts:
        for document in part:
            ids, flags = document.input_ids.astype("<i4", copy=False).tobytes(), np.packbits(document.supervised)
            mark = b"" if document.desirable else b"undesirable"
            digest.update(b"".join((len(document).to_bytes(8, "little"), ids, flags.tobytes(), mark)))
        digest.update(b"part")
    return digest.hexdigest()


def _histogram(counts: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Count rows by length as (upper edge, rows), with as many bins per octave as fit into `MOST_BINS`."""
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
    """Return the bins' upper edges from 16 to the longest row: 16, 24, 32, 48, 64, ... with two bins per octave."""
    edges = [16]
    while edges[-1] < longest:
        octave = 1 << (edges[-1].bit_length() - 1)
        edges.append(edges[-1] + octave // bins_per_octave)
    return edges


def share_text(share: float) -> str:
    """Spell out a share of 0 to 1 as percent with one decimal; what is not nothing is never shown as 0.0%."""
    return "less than 0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def readable(value: object) -> object:
    """Return a value as people read it: a conversation as its turns, anything else as it is."""
    if not (isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value)):
        return value
    turns = []
    for turn in value:
        said = next((turn[name] for name in _SAID if name in turn), None)
        if not isinstance(said, str):
            return value
        turns.append(f"{next((turn[name] for name in _SPEAKER if name in turn), '')}: {said}")
    return " | ".join(turns)
