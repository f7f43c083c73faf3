"""Thinning to pixel columns: no extreme is lost, and columns stay in place while a view moves."""

import numpy as np

from burnish_app.curves.thinning import columns, visible


def test_every_spike_survives_at_its_place():
    x = np.arange(100_000, dtype=float)
    y = np.sin(x / 1000)
    y[54_321], y[7] = 50.0, -50.0
    found = columns(x, y, 100.0)
    assert len(found.x) == 1000
    assert (found.highest.max(), found.lowest.min()) == (50.0, -50.0)
    assert abs(found.x[found.highest.argmax()] - 54_321) <= 50
    assert abs(found.x[found.lowest.argmin()] - 7) <= 50


def test_columns_have_the_extremes_and_the_mean_of_their_values():
    found = columns(np.array([0.0, 1, 2, 3, 7]), np.array([4.0, np.nan, 8, np.inf, 1]), 4.0)
    assert list(found.x) == [2.0, 6.0]
    assert (list(found.lowest), list(found.highest), list(found.mean)) == ([4.0, 1.0], [8.0, 1.0], [6.0, 1.0])


def test_without_a_finite_value_there_is_no_column():
    assert len(columns(np.arange(5.0), np.full(5, np.nan), 2.0).x) == 0


def test_columns_do_not_change_while_the_view_moves():
    x, y = np.arange(1000.0), np.random.default_rng(1).normal(size=1000)
    one, other = (columns(x[part], y[part], 10.0) for part in (visible(x, 100, 600), visible(x, 137, 637)))
    shared = np.intersect1d(one.x[1:-1], other.x[1:-1])
    assert len(shared) > 40
    assert np.array_equal(one.highest[np.isin(one.x, shared)], other.highest[np.isin(other.x, shared)])


def test_a_line_goes_on_to_the_edge_of_the_view():
    x = np.arange(10.0)
    assert list(x[visible(x, 2.5, 4.5)]) == [2.0, 3.0, 4.0, 5.0]
    assert list(x[visible(x, -5, 50)]) == list(x)
