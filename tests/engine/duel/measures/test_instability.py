"""Spikes are found where they were put, and healthy runs have none."""

import math
import random

import pytest

from burnish_engine.duel.measures.instability import LEAST_STEPS, event_places, gradient_spikes, judge, loss_spikes


def healthy(steps, seed, noise=0.05):
    """A loss that falls from 4 to about 2.5, and gradient norms around 1."""
    chance = random.Random(seed)
    losses = [2.5 + 1.5 * math.exp(-step / 40) + chance.gauss(0, noise) for step in range(steps)]
    return losses, [math.exp(chance.gauss(0, 0.25)) for _ in range(steps)]


@pytest.mark.full
def test_healthy_runs_have_next_to_no_spikes():
    counts = [judge(*healthy(500, seed)).total for seed in range(40)]
    assert sum(counts) <= 2  # of 20,000 steps


@pytest.mark.parametrize("at", [LEAST_STEPS, 40, 399])
def test_a_spike_is_found_where_it_is(at):
    losses, norms = healthy(400, 1)
    losses[at] += 1.5
    norms[at] *= 20
    assert loss_spikes(losses) == gradient_spikes(norms) == [at]


def test_an_excursion_counts_once_and_the_next_one_again():
    losses, norms = healthy(200, 2)
    for step in (100, 101, 102, 150, 151):
        losses[step] += 2.0
    found = judge(losses, norms)
    assert (found.loss_spikes, found.gradient_spikes, found.total) == (2, 0, 2)


def test_a_lasting_shift_is_one_event():
    losses, _ = healthy(300, 3)
    losses[150:] = [loss + 2.0 for loss in losses[150:]]
    assert loss_spikes(losses) == [150]


def test_constant_values_need_a_real_height():
    assert loss_spikes([1.0] * 50 + [1.05] + [1.0] * 9) == []
    assert loss_spikes([1.0] * 50 + [1.2] + [1.0] * 9) == [50]
    assert gradient_spikes([1.0] * 50 + [1.9]) == []
    assert gradient_spikes([1.0] * 50 + [2.1]) == [50]


def test_falling_is_no_spike_and_the_first_steps_are_not_judged():
    losses, norms = healthy(100, 4)
    losses[60] -= 2.0
    losses[LEAST_STEPS - 1] += 5.0
    norms[60] /= 30
    assert judge(losses, norms).total == 0


def test_values_that_are_not_finite_are_counted_and_judge_nothing():
    losses, norms = healthy(100, 5)
    losses[30], norms[30] = math.nan, math.nan
    norms[50] = math.inf  # fp16: the step is skipped, its loss stands
    found = judge(losses, norms, broke_off=True)
    assert (found.non_finite, found.skipped_steps, found.loss_spikes, found.gradient_spikes) == (2, 1, 0, 0)
    assert judge([], []).total == 0
    assert event_places(losses, norms) == [30, 50]


def test_places_are_those_of_all_that_is_counted():
    losses, norms = healthy(200, 6)
    losses[80], norms[120], losses[150], norms[170] = 9.0, 1e3, math.inf, math.nan
    places = event_places(losses, norms)
    assert places == [80, 120, 150, 170]
    assert len(places) == judge(losses, norms).total
