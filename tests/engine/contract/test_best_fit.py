"""Rows packed into micro-batches."""

from burnish_engine.contract.best_fit import best_fit_decreasing


def test_best_fit_takes_the_tightest_place():
    lengths = [7, 6, 4, 3, 2]
    assert sorted(map(sorted, best_fit_decreasing(range(5), lengths, 10))) == [[0, 3], [1, 2], [4]]
