"""Student's t and the sign test against printed tables, and intervals against what they promise."""

import math
import random

import pytest

from burnish_engine.contract.facts.intervals import sign_test
from burnish_engine.duel.verdict.statistics import incomplete_beta, paired_interval, t_cdf, t_quantile

# Abramowitz and Stegun, table 26.10.
TABLE = [
    (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 3, 3.182), (0.975, 9, 2.262), (0.975, 30, 2.042),
    (0.95, 2, 2.920), (0.995, 2, 9.925), (0.995, 4, 4.604), (0.9995, 10, 4.587), (0.75, 5, 0.727),
]  # fmt: skip


@pytest.mark.parametrize(("probability", "freedom", "expected"), TABLE)
def test_quantiles_are_those_of_the_printed_table(probability, freedom, expected):
    assert t_quantile(probability, freedom) == pytest.approx(expected, abs=6e-4)
    assert t_quantile(1 - probability, freedom) == pytest.approx(-expected, abs=6e-4)


def test_quantiles_are_exact_where_there_is_a_formula():
    for probability in (0.6, 0.9, 0.975, 0.999):
        assert t_quantile(probability, 1) == pytest.approx(math.tan(math.pi * (probability - 0.5)), rel=1e-9)
        two = (2 * probability - 1) * math.sqrt(2 / (4 * probability * (1 - probability)))
        assert t_quantile(probability, 2) == pytest.approx(two, rel=1e-9)
    assert t_quantile(0.975, 1e6) == pytest.approx(1.95997, abs=1e-4)


@pytest.mark.parametrize("freedom", [1, 2, 7, 50])
def test_probability_and_quantile_are_each_others_inverse(freedom):
    for probability in (0.01, 0.3, 0.5, 0.8, 0.9999):
        assert t_cdf(t_quantile(probability, freedom), freedom) == pytest.approx(probability, abs=1e-10)


def test_incomplete_beta_has_its_known_values():
    assert incomplete_beta(2, 3, 0.4) == pytest.approx(0.5248)  # 1 - 0.6^4 - 4 * 0.4 * 0.6^3
    assert incomplete_beta(1, 1, 0.3) == pytest.approx(0.3)
    assert incomplete_beta(0.5, 0.5, 0.5) == pytest.approx(0.5)
    assert (incomplete_beta(2, 3, 0.0), incomplete_beta(2, 3, 1.0)) == (0.0, 1.0)


def test_the_interval_of_students_own_example():
    """Student 1908, hours of sleep gained by the second drug over the first: mean 1.58, standard deviation 1.23."""
    gained = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    interval = paired_interval(gained)
    assert (interval.mean, interval.spread) == (pytest.approx(1.58), pytest.approx(1.2300, abs=1e-4))
    assert (interval.low, interval.high) == (pytest.approx(0.7001, abs=1e-4), pytest.approx(2.4599, abs=1e-4))
    assert interval.excludes_zero


@pytest.mark.full
@pytest.mark.parametrize("count", [3, 5, 12])
def test_ninety_five_of_a_hundred_intervals_cover_the_true_difference(count):
    chance = random.Random(count)
    covered, trials = 0, 4000
    for _ in range(trials):
        interval = paired_interval([chance.gauss(0.7, 0.3) for _ in range(count)])
        covered += interval.low <= 0.7 <= interval.high
    assert covered / trials == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / trials))


def test_three_readings_that_agree_make_no_interval_without_width():
    interval = paired_interval([1.0, 1.0, 1.0], least_spread=1.0)
    assert not interval.excludes_zero
    assert paired_interval([5.0, 5.0, 5.0], least_spread=1.0).excludes_zero


@pytest.mark.parametrize("differences", [[], [1.0], [1.0, math.inf], [math.nan, 0.0]])
def test_what_has_no_interval_is_refused(differences):
    with pytest.raises(ValueError, match="two or more finite"):
        paired_interval(differences)


def test_the_sign_test_counts_coins():
    assert sign_test(3, 0) == pytest.approx(0.25)
    assert sign_test(6, 0) == pytest.approx(0.03125)
    assert sign_test(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert sign_test(2, 2) == sign_test(0, 0) == 1.0
