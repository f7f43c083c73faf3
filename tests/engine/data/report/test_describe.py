"""Figures of a dataset's lengths."""

from itertools import pairwise

import numpy as np

from burnish_engine.data.report.describe import MOST_STEPS, length_steps


def test_steps_of_length_tell_what_any_cut_loses():
    lengths = np.random.RandomState(0).randint(20, 900, 400)
    steps = length_steps(lengths)
    assert len(steps) <= MOST_STEPS + 2
    apart = {after[0] - before[0] for before, after in pairwise(steps[:-1])}
    assert len(apart) == 1, "even"
    for length, rows, tokens in steps:
        assert rows == (lengths > length).sum()
        assert tokens == np.maximum(lengths - length, 0).sum()
    assert steps[0][1:] == (400, lengths.sum())
    assert steps[-1] == (lengths.max(), 0, 0)
    assert length_steps(lengths, 3.0)[0][1] == 1200


def test_one_endless_row_leaves_the_steps_of_the_others_fine():
    lengths = [*range(40, 240), 30_000]
    steps = length_steps(lengths)
    assert steps[1][0] <= 16
    assert steps[-1] == (30_000, 0, 0)
    assert steps[-2][1] == 1
    assert length_steps([5]) == [(0, 1, 5), (5, 0, 0)]
