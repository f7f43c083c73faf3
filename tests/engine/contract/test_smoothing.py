"""Smoothing: the mean around each step, which neither lags nor leaves the values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish_engine.contract.smoothing import WINDOWS, default_window, smoothed

NUMBERS = st.lists(st.floats(-1e3, 1e3) | st.sampled_from([math.nan, math.inf]), max_size=60)
ODD = st.sampled_from([5, 11, 21, 51])


@given(NUMBERS, ODD)
@settings(max_examples=60, deadline=None)
def test_it_is_the_mean_of_the_window_or_at_the_ends_the_line_that_fits_best(values, window):
    half, means = window // 2, smoothed(values, window)
    for at in range(len(values)):
        start, end = max(0, at - half), min(len(values), at + half + 1)
        known = [(place, value) for place, value in enumerate(values[start:end], start) if math.isfinite(value)]
        numbers = [value for _, value in known]
        if not known:
            assert math.isnan(means[at])
        elif end - start == window or len(known) == 1:
            assert means[at] == pytest.approx(np.mean(numbers), abs=1e-6)
        else:
            line = np.polyfit([place - at for place, _ in known], numbers, 1)
            assert means[at] == pytest.approx(np.clip(line[1], min(numbers), max(numbers)), abs=1e-6)


@pytest.mark.full
@given(st.floats(-2, 2), st.integers(2, 200), ODD)
@settings(max_examples=40, deadline=None)
def test_a_straight_fall_is_followed_without_a_lag(slope, count, window):
    values = 3.0 + slope * np.arange(count)
    assert smoothed(values, window) == pytest.approx(values, abs=1e-6)


def test_the_mean_stays_within_the_values_of_its_window():
    values = np.exp(-np.arange(300) / 20) + np.random.default_rng(0).normal(0, 0.05, 300)
    means = smoothed(values, 51)
    for at in range(300):
        around = values[max(0, at - 25) : at + 26]
        assert around.min() - 1e-9 <= means[at] <= around.max() + 1e-9


def test_a_window_of_one_leaves_the_numbers():
    assert list(smoothed([1.0, 5.0], 1)) == [1.0, 5.0]
    assert math.isnan(smoothed([math.inf], 1)[0])
    assert len(smoothed([], 5)) == 0


def test_longer_runs_are_averaged_over_more_steps():
    found = [default_window(steps) for steps in (0, 100, 1000, 10**6)]
    assert found == sorted(found)
    assert set(found) <= set(WINDOWS)
    assert found[0] > 1
