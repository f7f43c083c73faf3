"""Scores of a side by learning rate: which rates count, and in which order."""

import random

import pytest

from burnish_engine.duel.sides.spec import RunSpec
from burnish_engine.duel.verdict.rates import best_rate, complete_rates, grid_rate

SEEDS = [8, 9, 10]
SCORES = {("seeds", 1e-3): [1.5, 1.1, 1.3], ("second look", 3e-3): [1.0, 1.4, 1.2], ("second look", 1e-4): [2.0, 2.1]}


def scores(order):
    """Scores of side 0 as they come in, with runs of the grid and of another side among them."""
    runs = [
        (RunSpec(side=0, phase=phase, rate=rate, seed=seed), score)
        for (phase, rate), each in SCORES.items()
        for seed, score in zip(SEEDS, each, strict=False)
    ]
    runs += [(RunSpec(side=0, phase="grid", rate=rate, seed=7), 0.1) for rate in (1e-4, 1e-3, 3e-3)]
    runs += [(RunSpec(side=1, phase="seeds", rate=1e-3, seed=seed), 0.2) for seed in SEEDS]
    return dict(random.Random(order).sample(runs, len(runs)))


@pytest.mark.parametrize("order", range(12))
def test_the_rate_of_the_grid_comes_first_and_scores_follow_the_seeds_in_whatever_order_runs_end(order):
    found = complete_rates(0, SEEDS, scores(order))
    assert list(found.items()) == [(1e-3, [1.5, 1.1, 1.3]), (3e-3, [1.0, 1.4, 1.2])], "1e-4 lacks a seed"


def test_of_equal_rates_the_one_that_the_grid_picked_is_the_best():
    assert best_rate({3e-3: [1.0, 2.0], 1e-3: [2.0, 1.0]}) == 3e-3
    assert best_rate({3e-3: [1.0, 2.0], 1e-3: [1.9, 1.0]}) == 1e-3


def test_of_equal_rates_of_a_grid_the_lowest_is_taken(duel_side):
    assert grid_rate(duel_side, {1e-2: 1.0, 1e-3: 1.0, 1e-4: 1.5}) == 1e-3
    assert grid_rate(duel_side, {}) == duel_side.rate


@pytest.fixture
def duel_side():
    from burnish_engine.duel.sides.spec import Side

    return Side(letter="A", name="a", file="a.toml", rate=5e-4)
