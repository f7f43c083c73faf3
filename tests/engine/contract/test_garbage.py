"""A starting process looks for cyclic garbage seldom, and as usual again when it trains."""

import gc
import weakref

import pytest

from burnish_engine.contract.garbage import collect_as_usual, collect_seldom, collection_paused


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


def test_a_cycle_lives_on_while_collection_is_paused():
    class Node:
        pass

    def cycle():
        one = Node()
        one.itself = one
        return weakref.ref(one)

    with collection_paused():
        ref = cycle()
        kept = [[] for _ in range(5 * gc.get_threshold()[0])]  # would start several collections
        assert ref() is not None
    assert gc.isenabled()
    del kept
    gc.collect()
    assert ref() is None


def test_collection_that_was_off_stays_off():
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
