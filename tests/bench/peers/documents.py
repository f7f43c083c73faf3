"""The documents of all speed comparisons: lengths as in instruction data, ids that no model has seen."""

from __future__ import annotations

import numpy as np

COUNT = 20_000
LONGEST = 2048
SHORTEST = 16
MEDIAN_LOG, SIGMA_LOG = 5.2, 0.9  # of the length's natural logarithm: a median of 181 tokens
FIRST_ID, LAST_ID = 10, 30_000  # past the special tokens, within every vocabulary


def documents(count: int = COUNT, seed: int = 0, length: int = 0) -> list[np.ndarray]:
    """Token ids of `count` documents, 269 tokens on average, every token to be learned.

    Args:
        count: number of documents. Another count gives other documents, not the first ones of these.
        seed: seed of lengths and tokens.
        length: tokens of every document; 0 draws lengths as in instruction data.
    """
    random = np.random.default_rng(seed)
    lengths = random.lognormal(MEDIAN_LOG, SIGMA_LOG, size=count).astype(int).clip(SHORTEST, LONGEST)
    if length:
        lengths[:] = length
    return [random.integers(FIRST_ID, LAST_ID, size=int(size)).astype(np.int32) for size in lengths]
