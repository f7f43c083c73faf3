"""Charts: means, thinning, gaps, and the values at the pointer."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish_app.widgets.basic.plot import ChartLine, thin_out
from burnish_app.widgets.runs.charts import Chart, moving_mean
from burnish_app.widgets.runs.run_charts import learning_rate_text, mean_window, newest_mean

NUMBERS = st.lists(st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf]), max_size=60)


@given(NUMBERS, st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_the_moving_mean_is_the_mean_of_the_last_finite_numbers(values, window):
    means = moving_mean(values, window)
    for place in range(len(values)):
        part = [value for value in values[max(0, place + 1 - window) : place + 1] if math.isfinite(value)]
        if part:
            assert means[place] == pytest.approx(sum(part) / len(part), abs=1e-6)
        else:
            assert math.isnan(means[place])


def test_thinning_keeps_the_ends_and_every_spike():
    x = np.arange(100_000, dtype=float)
    y = np.sin(x / 1000)
    y[54_321], y[7] = 50.0, -50.0
    few_x, few_y = thin_out(x, y)
    assert len(few_x) <= 1200 + 200
    assert (few_y.max(), few_y.min()) == (50.0, -50.0)
    assert few_x[np.argmax(few_y)] == 54_321
    assert np.all(np.diff(few_x) >= 0)
    assert few_x[-1] > 99_000


def test_thinning_survives_what_is_no_number():
    y = np.full(10_000, np.nan)
    y[:5000] = 1.0
    _, few = thin_out(np.arange(10_000.0), y)
    assert np.isnan(few).any()
    assert (few[np.isfinite(few)] == 1.0).all()


def test_short_lines_stay_as_they_are():
    x = np.arange(10.0)
    assert thin_out(x, x)[0] is x


@pytest.fixture
def chart(qtbot, theme):
    made = Chart("Loss", {"a": ChartLine("a", 0), "b": ChartLine("b", 1, points=True)}, lambda value: f"{value:.1f}")
    qtbot.addWidget(made)
    made.resize(600, 300)
    made.show()
    qtbot.waitUntil(lambda: made._plot is not None)
    return made


def test_the_legend_shows_the_newest_values_and_those_at_the_pointer(qtbot, chart):
    chart.set_line("a", [1, 2, 3], [10, 20, 30])
    chart.set_line("b", [2], [5])
    assert (chart.legend_text("a"), chart.legend_text("b")) == ("a 30.0", "b 5.0")
    chart.point_at(1.2)
    qtbot.waitUntil(lambda: chart.legend_text("a") == "a 10.0")
    assert chart.legend_text("b") == "b", "there is no value yet at step 1"
    chart.point_at(None)
    qtbot.waitUntil(lambda: chart.legend_text("a") == "a 30.0")


def test_bad_numbers_do_not_break_the_drawing(chart):
    chart.set_line("a", [1, 2, 3], [math.nan, math.inf, 2.0])
    chart.set_line("b", [], [])
    assert not chart.grab().isNull()
    (low, high) = chart._plot._box.viewRange()[1]
    assert math.isfinite(low)
    assert low < 2.0 < high


def test_the_highest_and_the_lowest_value_have_room(chart):
    chart.set_line("a", [0, 50, 100], [30.0, 20.0, 10.0])
    chart.set_line("b", [0], [32.0])
    (left, right), (low, high) = chart._plot._box.viewRange()
    box = chart._plot._box.sceneBoundingRect()
    mark_px = 5  # half a mark, and its rim
    assert (high - 32.0) / (high - low) * box.height() > mark_px
    assert (10.0 - low) / (high - low) * box.height() > mark_px
    assert min(0 - left, right - 100) / (right - left) * box.width() > mark_px


def test_words_and_windows():
    assert [mean_window(steps) for steps in (0, 100, 1000, 10**6)] == [5, 5, 20, 100]
    assert [learning_rate_text(rate) for rate in (2e-4, 1.85e-4, 0.0)] == ["2e-4", "1.85e-4", "0"]
    from array import array

    assert newest_mean(array("d", [1.0, 2.0, math.nan, 4.0]), 3) == 3.0
    assert math.isnan(newest_mean(array("d"), 3))
