"""Lengths and hashes of the prompts and replies of preference pairs, for many pairs at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from burnish_engine.data.tokens.shard import Ints, Shard

_CHUNK_TOKENS = 1 << 20
"""Tokens that are hashed at once, so that the arrays beside them take tens of megabytes."""


def pair_keys(shard: Shard) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
    """Measure and hash the parts of each pair of a shard. n pairs.

    The hash is multilinear: the sum of each token's id times a random number of its place, modulo 2**64 (Carter and
    Wegman 1979). Ids differ by less than 2**31, so that two unlike parts have the same hash with a probability of at
    most 2**-33.

    Args:
        shard: documents that are pairs.

    Returns:
        [n, 2] supervised tokens of chosen and rejected reply, and [n, 3] hashes of prompt, chosen and rejected reply.
    """
    count = len(shard)
    lengths, keys = np.zeros((count, 2), dtype=np.int32), np.zeros((count, 3), dtype=np.uint64)
    longest = int(shard.lengths.max(initial=0))
    weights = np.random.default_rng(0).integers(0, 2**64, longest, dtype=np.uint64)
    begin = 0
    while begin < count:
        most = _start(shard.token_ends, begin) + _CHUNK_TOKENS
        end = max(begin + 1, int(np.searchsorted(shard.token_ends, most, side="right")))
        lengths[begin:end], keys[begin:end] = _keys_of(shard, begin, end, weights)
        begin = end
    return lengths, keys


def _keys_of(
    shard: Shard, begin: int, end: int, weights: npt.NDArray[np.uint64]
) -> tuple[Ints, npt.NDArray[np.uint64]]:
    """Measure and hash the pairs `begin` to `end` of a shard: T tokens, two sequences a pair."""
    first, ends = _start(shard.token_ends, begin), shard.token_ends[begin:end]
    starts = np.concatenate([[first], ends[:-1]]) - first
    ids = shard.tokens[first : int(ends[-1])]
    bounds = np.append(np.stack([starts, starts + shard.rejected_from[begin:end]], axis=1).ravel(), len(ids))
    sizes = np.diff(bounds)

    seen = _supervised_before(shard, begin, end, starts, len(ids))
    seen_here = seen - np.append(np.repeat(seen[bounds[:-1]], sizes), 0)  # before the token, in its own sequence
    is_reply = np.diff(seen) > 0
    is_prompt = ~is_reply & (seen_here[:-1] == 0)
    place = np.where(is_prompt, np.arange(len(ids)) - np.repeat(bounds[:-1], sizes), seen_here[:-1])
    hashed = (ids.astype(np.uint64) + np.uint64(1)) * weights[place]
    prompts, replies = (_sums(np.where(part, hashed, np.uint64(0)), bounds) for part in (is_prompt, is_reply))
    return np.diff(seen[bounds]).reshape(-1, 2), np.stack([prompts[::2], replies[::2], replies[1::2]], axis=1)


def _supervised_before(shard: Shard, begin: int, end: int, starts: Ints, tokens: int) -> Ints:
    """Count [T + 1] the supervised tokens before each token of the pairs `begin` to `end`."""
    first, ends = _start(shard.span_ends, begin), shard.span_ends[begin:end]
    spans = shard.spans[first : int(ends[-1])] + np.repeat(starts, np.diff(ends, prepend=first))[:, None]
    change = np.zeros(tokens + 1, dtype=np.int64)
    np.add.at(change, spans[:, 0], 1)
    np.add.at(change, spans[:, 1], -1)
    return np.concatenate([[0], np.cumsum(np.cumsum(change[:-1]))])


def _sums(values: npt.NDArray[np.uint64], bounds: Ints) -> npt.NDArray[np.uint64]:
    """Return [sequences] the sum of each sequence's values, modulo 2**64."""
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(values, dtype=np.uint64)])
    return total[bounds[1:]] - total[bounds[:-1]]


def _start(ends: Ints, index: int) -> int:
    return int(ends[index - 1]) if index else 0
