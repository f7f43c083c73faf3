"""Random bits from a counter as Triton draws them: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

_LOW = 0xFFFFFFFF
_ROUND = (0xD2511F53, 0xCD9E8D57)  # multipliers of Philox4x32
_WEYL = (0x9E3779B9, 0xBB67AE85)  # what the key grows by each round


def philox(seed: int, counter: Sequence[ArrayLike]) -> list[NDArray[np.uint32]]:
    """Draw from Philox4x32-10: four words of 32 random bits for each counter.

    NumPy and not torch: ten rounds on small arrays cost what their calls cost, and torch's are several times dearer.

    Args:
        seed: 64 bits, signed or not: the two words of the key.
        counter: four arrays of non-negative integers, of which the low 32 bits count; they broadcast.

    Returns:
        Four arrays. Those that depend on fewer counters are smaller and broadcast.
    """
    key = [seed & _LOW, seed >> 32 & _LOW]
    words = [np.atleast_1d(np.asarray(word)).astype(np.uint32) for word in counter]
    for _ in range(10):
        first, second = (_product(words[index], factor) for index, factor in zip((0, 2), _ROUND, strict=True))
        words = [
            second[1] ^ words[1] ^ np.uint32(key[0]),
            second[0],
            first[1] ^ words[3] ^ np.uint32(key[1]),
            first[0],
        ]
        key = [(word + step) & _LOW for word, step in zip(key, _WEYL, strict=True)]
    return words


def _product(word: NDArray[np.uint32], factor: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Low and high half of each 64-bit product."""
    halves = (word.astype("<u8", order="C") * np.uint64(factor)).view("<u4").reshape(*word.shape, 2)
    return halves[..., 0], halves[..., 1]
