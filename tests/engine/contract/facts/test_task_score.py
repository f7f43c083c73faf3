"""Scores and their changes: figures, intervals and when a difference is called one."""

import pytest

from burnish_engine.contract.facts.intervals import share_interval
from burnish_engine.contract.facts.task_score import TaskChange, TaskScore


def score(passed):
    return TaskScore(metric="json", passed=passed)


def change(before, after):
    return TaskChange(before=score(before), after=score(after))


def test_the_interval_of_a_share_is_wilsons():
    # Newcombe 1998, Stat. Med. 17:857, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    assert share_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert share_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert share_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert share_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert share_interval(20, 20)[1] == 1.0
    assert share_interval(0, 0) == (0.0, 1.0)


def test_a_change_is_one_only_beyond_chance():
    assert change([False] * 6, [True] * 6).verdict == "better"  # p = 0.031
    assert change([False] * 5, [True] * 5).verdict == "not distinguishable"  # p = 0.0625
    assert change([True] * 6, [False] * 6).verdict == "worse"
    assert change([True, False], [True, False]).verdict == "equal"


def test_only_rows_that_differ_count():
    before, after = [True] * 40 + [False] * 10, [True] * 38 + [False] * 2 + [True] * 10
    found = change(before, after)
    assert (found.gained, found.lost) == (10, 2)
    assert "10 rows gained, 2 lost" in found.text
    assert "40 of 50 (80 %) -> 48 of 50 (96 %)" in found.text
    assert found.p_value == pytest.approx(2 * (1 + 12 + 66) / 2**12)
    assert found.verdict == "better"


def test_figures_say_count_and_share():
    assert score([True, False, True, True]).figures.startswith("3 of 4")
    assert score([]).share == 0.0
