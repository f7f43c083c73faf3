"""Rows packed into micro-batches, and numbers thinned out."""

import pytest

from burnish_engine.contract.best_fit import best_fit_decreasing, even_quantiles


def test_best_fit_takes_the_tightest_place():
    lengths = [7, 6, 4, 3, 2]
    assert sorted(map(sorted, best_fit_decreasing(range(5), lengths, 10))) == [[0, 3], [1, 2], [4]]


@pytest.mark.parametrize(
    ("count", "most", "kept"), [(3, 3, [0, 1, 2]), (4, 3, [0, 2, 3]), (10, 2, [2, 7]), (10, 1, [5]), (0, 2, [])]
)
def test_what_is_kept_of_numbers_stands_in_the_middle_of_equal_parts(count, most, kept):
    assert even_quantiles(range(count), most) == kept
