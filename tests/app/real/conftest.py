"""The real studio for each test of it, and a tiny model with a data file."""

from collections import Counter

import pytest
from app.measures.handler_budget import HandlerBudget
from app.real.studio import Studio, assert_light, make_tiny

over_budget: Counter[str] = Counter()
"""Handlers that were over the budget, by the number of tests."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folder of a tiny model and a data file."""
    return make_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def studio(qtbot, qapp, theme, collector, burnish_home):
    """The real studio, measured: whatever a test does, no handler holds up the window, and nothing heavy is loaded."""
    budget = HandlerBudget(qapp)
    collector.freeze_and_start()  # what other tests left is not this test's
    made = Studio(qtbot, theme, collector, burnish_home)
    yield made
    made.close()
    share, slowest = budget.used()
    assert_light()
    # Neighbors on the same core inflate even thread CPU time now and then; what is slow by itself is so in every test.
    assert share < 2, slowest
    over_budget[slowest] += share >= 1
    assert over_budget[slowest] < 3, f"{slowest} is over the budget again and again"
