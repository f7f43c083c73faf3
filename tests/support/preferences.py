"""Passes of preferences over random tokens: pairs, and labeled replies with mismatched ones."""

from dataclasses import replace

import numpy as np

from burnish_engine.data.tokens.pack import IGNORED

from support import parity

LENGTHS = (12, 20, 9, 9, 31, 7)


def pairs(lengths=LENGTHS, seed=0):
    """Random pairs in one pass; the first tokens of each sequence are its prompt."""
    batch = parity.micro_batch(lengths, seed=seed, learned=1.0)
    for start in batch.boundaries[:-1]:
        batch.labels[start : start + 2] = IGNORED
    reference = np.random.default_rng(seed).normal(-30.0, 10.0, len(lengths)).astype(np.float32)
    return replace(batch, rows=tuple(range(len(lengths) // 2)), reference=reference)


def labeled(lengths=LENGTHS, seed=0):
    """Random replies labeled good or bad in one pass, and as many mismatched ones in another."""
    batch, other = pairs(lengths, seed), pairs(lengths[::-1], seed + 1)
    rows = tuple(range(len(lengths)))
    near = [-6.0 * batch.sequence_tokens, -6.4 * other.sequence_tokens]  # about what random weights say
    good = np.arange(len(lengths)) % 3 != 1
    other = replace(other, rows=rows, reference=near[1].astype(np.float32))
    return replace(batch, rows=rows, reference=near[0].astype(np.float32), desirable=good), other
