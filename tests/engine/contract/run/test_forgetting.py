"""The figures of forgetting as a person reads them."""

import math

import pytest

from burnish_engine.contract.run.forgetting import Forgetting


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [(3.21, 3.29, "+0.08"), (5.8449, 5.7951, "-0.04"), (6.1951, 6.1549, "-0.05"), (2.0, math.inf, "+inf")],
)
def test_the_difference_is_that_of_the_figures_beside_it(before, after, shown):
    assert Forgetting(before=before, after=after, tokens=9).figures.endswith(f"({shown})")


@pytest.mark.parametrize(("after", "marked"), [(2.0999, False), (2.1001, True), (math.nan, True), (1.0, False)])
def test_a_rise_is_pointed_out_by_the_losses_as_they_are(after, marked):
    assert Forgetting(before=2.0, after=after, tokens=9).is_marked is marked
