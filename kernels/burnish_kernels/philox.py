"""Draw random bits from a counter as Triton does (Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

_LOW = 0xFFFFFFFF
_ROUND = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))  # multipliers of Philox4x32
_WEYL = (0x9E3779B9, 0xBB67AE85)  # constants that each round adds to the key


def philox(seed: int, counter: Sequence[ArrayLike]) -> list[NDArray[np.uint32]]:
    """Draw from Philox4x32-10: four words of 32 random bits for each counter.

    NumPy is used instead of torch: the ten rounds on small arrays cost as much as their calls, and torch's calls are
    several times more expensive.

    Args:
        seed: seed of 64 bits, signed or not: the two words of the key.
        counter: four arrays of non-negative integers, of which the low 32 bits count; they broadcast.

    Returns:
        Four arrays. Those that depend on fewer counters are smaller and broadcast.
    """
    key = [seed & _LOW, seed >> 32 & _LOW]
    words = [np.atleast_1d(np.asarray(word)).astype(np.uint32).astype(np.uint64) for word in counter]
    low, half = np.uint64(_LOW), np.uint64(32)
    for _ in range(10):
        first, second = words[0] * _ROUND[0], words[2] * _ROUND[1]
        words = [
            (second >> half) ^ words[1] ^ np.uint64(key[0]),
            second & low,
            (first >> half) ^ words[3] ^ np.uint64(key[1]),
            first & low,
        ]
        key = [(word + step) & _LOW for word, step in zip(key, _WEYL, strict=True)]
    return [word.astype(np.uint32) for word in words]
