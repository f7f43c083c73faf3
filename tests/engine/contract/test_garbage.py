"""A starting process looks for cyclic garbage seldom, and as usual again when it trains."""

import gc

import pytest

from burnish_engine.contract.garbage import collect_as_usual, collect_seldom


@pytest.fixture(autouse=True)
def _usual():
    yield
    collect_as_usual()


def test_seldom_is_far_beyond_python_s_own_pace_and_usual_is_that_pace():
    usual = gc.get_threshold()
    collect_seldom()
    assert gc.get_threshold()[0] > 100 * usual[0]
    collect_as_usual()
    assert gc.get_threshold() == usual
