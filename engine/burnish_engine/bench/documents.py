"""Documents to measure speed with: lengths as in instruction data, packed, every token learned."""

from __future__ import annotations

import numpy as np

from burnish_engine.data.pack import EpochPlan, epoch_batches
from burnish_engine.data.tokenize import Document

MEDIAN_LOG, SIGMA_LOG = 5.2, 0.9
"""Of the natural logarithm of a length: a median of 181 tokens."""
SHORTEST, LONGEST = 16, 2048
FIRST_ID, LAST_ID = 10, 40_000
"""Past the special tokens, within every vocabulary."""


def packs(tokens: int, count: int = 20_000, seed: int = 0) -> EpochPlan:
    """Passes of random documents, at most `tokens` each.

    Args:
        tokens: Budget of a pass.
        count: Documents in all.
        seed: Of everything.
    """
    random = np.random.default_rng(seed)
    longest = min(LONGEST, tokens)
    lengths = random.lognormal(MEDIAN_LOG, SIGMA_LOG, size=count).astype(int).clip(min(SHORTEST, longest), longest)
    ids = [random.integers(FIRST_ID, LAST_ID, size=int(length)).astype(np.int32) for length in lengths]
    documents = [Document(row, np.ones(len(row), dtype=bool), index, "made up") for index, row in enumerate(ids)]
    return epoch_batches(documents, tokens, pack=True, seed=seed, epoch=0)
