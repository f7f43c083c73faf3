"""Ticks: round, within the axis, and told apart by their text."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish_app.curves.ticks import linear_ticks, log_ticks, size_ticks, time_text, x_ticks

RANGES = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-4, 1e6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@pytest.mark.full
@given(RANGES, st.integers(2, 10))
@settings(max_examples=80, deadline=None)
def test_linear_ticks_are_few_within_and_all_different(ends, most):
    low, high = ends
    ticks = linear_ticks(low, high, most)
    assert len(ticks) <= most / 0.8 + 1
    assert all(low - 1e-6 * (high - low) <= at <= high + 1e-6 * (high - low) for at, _ in ticks)
    assert len({text for _, text in ticks}) == len(ticks)


def test_ticks_say_what_they_are():
    assert [text for _, text in linear_ticks(0.9, 2.6, 5)] == ["1.0", "1.5", "2.0", "2.5"]
    assert linear_ticks(1.0, 1.0, 5) == linear_ticks(0, math.nan, 5) == []


@given(st.floats(-8, 4), st.floats(0.01, 6))
@settings(max_examples=80, deadline=None)
def test_log_ticks_lie_at_the_values_that_they_name(low, span):
    ticks = log_ticks(low, low + span, 6, lambda value, _decimals: repr(value))
    assert all(low - 1e-6 <= at <= low + span + 1e-6 for at, _ in ticks)
    assert all(math.log10(float(text)) == pytest.approx(at, abs=1e-9) for at, text in ticks)
    assert len({text for _, text in ticks}) == len(ticks)


@pytest.mark.parametrize("kind", ["step", "tokens", "time"])
@pytest.mark.parametrize("high", [1, 7, 90, 4000, 1.3e6, 5e9])
def test_the_horizontal_axis_has_ticks_at_any_length(kind, high):
    ticks = x_ticks(kind, -0.02 * high, 1.02 * high, 8)
    assert 2 <= len(ticks) <= 10
    assert all(at >= 0 for at, _ in ticks)
    assert len({text for _, text in ticks}) == len(ticks)


def test_times_read_as_clocks_do():
    assert [time_text(0), time_text(65), time_text(3661), time_text(9000, 60)] == ["0:00", "1:05", "1:01:01", "2:30 h"]


@given(st.floats(0.05, 50), st.floats(1.05, 60), st.floats(3, 30))
@settings(max_examples=80, deadline=None)
def test_sizes_on_a_logarithmic_axis_have_room_beside_each_other(low, ratio, most):
    ticks = size_ticks(low, low * ratio, most)
    values = [value for value, _ in ticks]
    assert all(low * (1 - 1e-9) <= value <= low * ratio * (1 + 1e-9) for value in values)
    assert len({text for _, text in ticks}) == len(ticks)
    if ticks != linear_ticks(low, low * ratio, 3):  # what is shown where no two round sizes have room
        assert all(math.log(after / before) > 0.99 * math.log(ratio) / most for before, after in pairwise(values))


def test_more_room_shows_more_sizes():
    assert [text for _, text in size_ticks(0.23, 1.45, 9)] == ["0.3", "0.4", "0.5", "0.7", "1.0"]
    assert len(size_ticks(0.23, 1.45, 22)) > 8
    assert size_ticks(0, 1, 5) == size_ticks(2, 1, 5) == []
