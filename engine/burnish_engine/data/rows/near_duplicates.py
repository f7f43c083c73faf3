"""Finds near-duplicate rows with MinHash over shingles of bytes, in 32 bytes of hashes per row.

One-permutation MinHash (Li, Owen and Zhang 2012): every shingle of eight bytes is hashed once, the hashes are dealt
into 40 bins, and a row keeps the least hash of each bin. The share of equal bins estimates the Jaccard similarity of
two rows. Eight bands of five bins (locality-sensitive hashing) find pairs above 0.8 with a probability of 96 %, and
above 0.9 with 99.9 %; candidate pairs are checked on the token ids themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

BANDS, _PER_BAND = 8, 5
_BINS = BANDS * _PER_BAND
_SHINGLE_BYTES = 8  # bytes
NEAR_SIMILARITY = 0.8
"""Least Jaccard similarity of near-duplicates."""
MOST_CHECKS = 20_000
"""Most pairs that a search checks unless it is thorough; they take about 2 s."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: multiplicative hashing, Knuth 6.4
_MIX = np.uint64(0xBF58476D1CE4E5B9)  # first multiplier of splitmix64
_MOST_CHARS = 100_000  # a longer row is compared by its beginning
_HASHED_BYTES = 2**17  # texts are hashed together up to this size, so that the hashes stay in the cache
_SHINGLE_TOKENS = 4  # shingle length where a pair is checked, token ids


def minhash_bands(texts: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Return [n, 8] hashes of texts, of which near-duplicates share at least one; case and white space do not count."""
    if not texts:
        return np.zeros((0, BANDS), dtype=np.uint32)
    passages = [" ".join(text[:_MOST_CHARS].lower().split()).encode("utf-8", "replace") for text in texts]
    least = np.full((len(texts), _BINS), np.iinfo(np.uint64).max, dtype=np.uint64)
    begin, held = 0, 0
    for end, each in enumerate(passages, start=1):
        held += len(each)
        if held >= _HASHED_BYTES or end == len(passages):
            _hash_shingles(passages[begin:end], least[begin:end])
            begin, held = end, 0
    for row in np.flatnonzero((least == np.iinfo(np.uint64).max).any(axis=1)).tolist():
        _fill_empty_bins(least[row])
    bands = np.zeros((len(texts), BANDS), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in range(_PER_BAND):
            bands = (bands ^ least[:, column::_PER_BAND]) * _FACTOR
            bands ^= bands >> np.uint64(31)
    return bands.astype(np.uint32)


def _hash_shingles(passages: Sequence[bytes], least: npt.NDArray[np.uint64]) -> None:
    """Put the least hash of each bin of each text into [n, bins] `least`."""
    padded = [each.ljust(_SHINGLE_BYTES, b" ") for each in passages]
    lengths = np.array([len(each) for each in padded])
    raw = np.frombuffer(b"".join(padded), dtype=np.uint8)
    stretches = np.lib.stride_tricks.sliding_window_view(raw, _SHINGLE_BYTES)
    hashes = np.ascontiguousarray(stretches).view(np.uint64).reshape(-1)
    with np.errstate(over="ignore"):
        hashes = hashes * _FACTOR
        hashes ^= hashes >> np.uint64(29)
        hashes *= _MIX
    hashes ^= hashes >> np.uint64(32)
    bins = (hashes >> np.uint64(32)).astype(np.int64) % _BINS
    bins += np.repeat(np.arange(len(passages)) * _BINS, lengths)[: len(bins)]
    inside = np.ones(len(raw), dtype=np.bool_)
    for back in range(1, _SHINGLE_BYTES):
        inside[np.cumsum(lengths) - back] = False  # shingles that would reach into the next text
    inside = inside[: len(bins)]
    np.minimum.at(least.reshape(-1), bins[inside], hashes[inside] & np.uint64(0xFFFFFFFF))


def _fill_empty_bins(least: npt.NDArray[np.uint64]) -> None:
    """Fill empty bins with the next filled bin's value (in place), so that short texts can be compared too."""
    filled = np.flatnonzero(least != np.iinfo(np.uint64).max)
    nearest = filled[np.searchsorted(filled, np.arange(_BINS)) % len(filled)]
    least[:] = least[nearest]


def earliest_near_duplicates(
    bands: npt.NDArray[np.uint32],
    ids: Callable[[int], npt.NDArray[np.int32]],
    considered: npt.NDArray[np.bool_],
    *,
    thorough: bool,
) -> tuple[npt.NDArray[np.int64], bool]:
    """Find, for each row, the earliest row that it nearly equals.

    Args:
        bands: [n, 8] band hashes of each row.
        ids: function from a row's number to its token ids.
        considered: [n] whether each row takes part in the search.
        thorough: whether to search to the end, however long that takes.

    Returns:
        [n] number of the earliest such row (a row's own number where it has none); whether the search was completed.
    """
    first = np.arange(len(bands), dtype=np.int64)
    checks = 0
    for earlier, later in _candidates(bands, considered):
        if first[later] != later:
            continue
        checks += 1
        if checks > MOST_CHECKS and not thorough:
            return first, False
        if _jaccard(ids(earlier), ids(later)) >= NEAR_SIMILARITY:
            first[later] = first[earlier]
    return first, True


def _candidates(bands: npt.NDArray[np.uint32], considered: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield pairs of rows that share a band, the earlier first: the first row of each group with each of the others."""
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


def _jaccard(one: npt.NDArray[np.int32], other: npt.NDArray[np.int32]) -> float:
    """Return the Jaccard similarity of two rows' shingles of four token ids."""
    first, second = _shingles(one), _shingles(other)
    both = len(np.intersect1d(first, second, assume_unique=True))
    return both / max(len(first) + len(second) - both, 1)


def _shingles(ids: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    padded = np.pad(ids.astype(np.uint64), (0, max(0, _SHINGLE_TOKENS - len(ids))))
    windows = np.lib.stride_tricks.sliding_window_view(padded, _SHINGLE_TOKENS)
    total = np.zeros(len(windows), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in windows.T:
            total = (total ^ column) * _FACTOR
            total ^= total >> np.uint64(29)
    return np.unique(total)
