"""Nearly equal rows: MinHash over stretches of bytes, in a few bytes a row.

One-permutation MinHash (Li, Owen and Zhang 2012): every stretch of eight bytes is hashed once, the hashes are dealt
into 40 bins, and a row keeps the least of each. The share of equal bins estimates how much two rows have in common
(Jaccard). Eight bands of five bins find pairs above 0.8 with a chance of 96 %, and above 0.9 with 99.9 %; what is
found is checked on the token ids themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

BANDS, _PER_BAND = 8, 5
_BINS = BANDS * _PER_BAND
_STRETCH = 8  # bytes
NEAR = 0.8
"""Share of stretches that nearly equal rows have in common."""
MOST_CHECKS = 20_000
"""Pairs looked at before a search that only informs is given up; that takes about 2 s."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: multiplicative hashing, Knuth 6.4
_MIX = np.uint64(0xBF58476D1CE4E5B9)  # of splitmix64
_MOST_CHARS = 100_000  # of a row; what is longer is compared by its beginning
_GRAM = 4  # token ids that make a stretch where pairs are checked


def bands_of(text: str) -> npt.NDArray[np.uint32]:
    """[8] hashes of a text; nearly equal texts share at least one. Case and the kind of white space do not count."""
    words = " ".join(text[:_MOST_CHARS].lower().split()).encode("utf-8", "replace")
    raw = np.frombuffer(words.ljust(_STRETCH, b" "), dtype=np.uint8)
    stretches = np.lib.stride_tricks.sliding_window_view(raw, _STRETCH)
    hashes = np.ascontiguousarray(stretches).view(np.uint64).reshape(-1)
    with np.errstate(over="ignore"):
        hashes = hashes * _FACTOR
        hashes = (hashes ^ (hashes >> np.uint64(29))) * _MIX
    hashes ^= hashes >> np.uint64(32)
    least = np.full(_BINS, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(least, (hashes >> np.uint64(32)).astype(np.int64) % _BINS, hashes & np.uint64(0xFFFFFFFF))
    _fill(least)
    bands = np.zeros(BANDS, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in least.reshape(BANDS, _PER_BAND).T:
            bands = (bands ^ column) * _FACTOR
            bands ^= bands >> np.uint64(31)
    return bands.astype(np.uint32)


def _fill(least: npt.NDArray[np.uint64]) -> None:
    """Empty bins take the next filled one's value, so that short texts can be compared too."""
    filled = np.flatnonzero(least != np.iinfo(np.uint64).max)
    if len(filled) == _BINS or not len(filled):
        return
    nearest = filled[np.searchsorted(filled, np.arange(_BINS)) % len(filled)]
    least[:] = least[nearest]


def near_pairs(
    bands: npt.NDArray[np.uint32],
    ids: Callable[[int], npt.NDArray[np.int32]],
    considered: npt.NDArray[np.bool_],
    *,
    thorough: bool,
) -> tuple[npt.NDArray[np.int64], bool]:
    """For each row the earliest row it nearly equals, itself where there is none.

    Args:
        bands: [n, 8].
        ids: Gives a row's token ids.
        considered: [n] rows to look at.
        thorough: Search to the end, however long it takes.

    Returns:
        [n] the earliest such row, and whether the search went through to its end.
    """
    first = np.arange(len(bands), dtype=np.int64)
    checks = 0
    for earlier, later in _candidates(bands, considered):
        if first[later] != later:
            continue
        checks += 1
        if checks > MOST_CHECKS and not thorough:
            return first, False
        if _in_common(ids(earlier), ids(later)) >= NEAR:
            first[later] = first[earlier]
    return first, True


def _candidates(bands: npt.NDArray[np.uint32], considered: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Pairs of rows that share a band, the earlier row first. Of a group with the same band, all go with its first."""
    rows = np.flatnonzero(considered)
    for band in bands.T:
        order = rows[np.argsort(band[rows], kind="stable")]
        values = band[order]
        begins = np.ones(len(order), dtype=np.bool_)
        begins[1:] = values[1:] != values[:-1]
        starts = np.flatnonzero(begins)
        ends = np.concatenate([starts[1:], [len(order)]]) if len(order) else starts
        sizes = ends - starts
        for group in np.flatnonzero(sizes > 1).tolist():
            members = order[starts[group] : ends[group]].tolist()
            for later in members[1:]:
                yield members[0], later


def _in_common(one: npt.NDArray[np.int32], other: npt.NDArray[np.int32]) -> float:
    """Jaccard similarity of two rows' stretches of four token ids."""
    first, second = _grams(one), _grams(other)
    both = len(np.intersect1d(first, second, assume_unique=True))
    return both / max(len(first) + len(second) - both, 1)


def _grams(ids: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    padded = np.pad(ids.astype(np.uint64), (0, max(0, _GRAM - len(ids))))
    windows = np.lib.stride_tricks.sliding_window_view(padded, _GRAM)
    total = np.zeros(len(windows), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in windows.T:
            total = (total ^ column) * _FACTOR
            total ^= total >> np.uint64(29)
    return np.unique(total)
