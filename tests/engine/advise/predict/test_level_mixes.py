"""Mixes of levels, and how they are arranged."""

import math

import numpy as np
import pytest

from burnish_engine.advise.predict.level_mixes import arrange_layers, level_mixes, neighboring_mixes
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES

ALLOWED = ("rotated", "products", "offloaded", "narrow", "attention", "host", "input")


def counts(**given):
    return np.array([[given.get(level, 0) for level in LEVEL_NAMES]], dtype=np.int16)


def levels(mix, clear=0):
    return [LEVEL_NAMES[level] for level in arrange_layers(mix, clear)[0]]


@pytest.mark.parametrize("layers", [1, 2, 4, 8])
def test_small_models_have_every_mix(layers):
    found = level_mixes(layers, ALLOWED)
    assert len(np.unique(found, axis=0)) == len(found) == math.comb(layers + 6, 6)
    assert (found.sum(axis=1) == layers).all()


@pytest.mark.parametrize("layers", [28, 36, 80, 126])
def test_large_models_have_a_net_of_mixes(layers):
    found = level_mixes(layers, ALLOWED)
    assert (found.sum(axis=1) == layers).all()
    assert (found >= 0).all()
    assert ((found > 0).sum(axis=1) <= 3).all()
    assert len(np.unique(found, axis=0)) == len(found) < 8000
    assert all((found[:, LEVEL_NAMES.index(level)] == layers).any() for level in ALLOWED)
    assert not found[:, LEVEL_NAMES.index("all")].any()


def test_a_model_of_one_level_has_one_mix():
    assert level_mixes(30, ("attention",)).tolist() == counts(attention=30).tolist()


def test_neighbors_differ_in_a_few_layers():
    found = neighboring_mixes(counts(products=10, host=30), ALLOWED)
    assert (found.sum(axis=1) == 40).all()
    moved = np.abs(found - counts(products=10, host=30)).sum(axis=1) / 2
    assert moved.min() == 0
    assert moved.max() == 3
    assert (found >= 0).all()


def test_what_keeps_least_is_at_the_bottom():
    assert levels(counts(products=2, attention=3, rotated=1, narrow=2)) == (
        ["attention"] * 3 + ["narrow"] * 2 + ["products"] * 2 + ["rotated"]
    )


@pytest.mark.parametrize(("moving", "clear"), [(1, 0), (10, 0), (15, 4), (29, 4), (30, 2)])
def test_what_moves_is_spread_and_not_on_top(moving, clear):
    found = levels(counts(host=moving, products=30 - moving), clear)
    places = [place for place, level in enumerate(found) if level == "host"]
    assert len(places) == moving
    top = min(clear, 30 - moving)
    assert all(level == "products" for level in found[30 - top :])
    gaps = np.diff(places)
    assert not len(gaps) or gaps.max() - gaps.min() <= 1


def test_both_ways_of_moving_take_turns():
    found = levels(counts(host=10, offloaded=5, narrow=15))
    wide = [place for place, level in enumerate(level for level in found if level != "narrow") if level == "offloaded"]
    assert np.diff(wide).tolist() == [3] * 4


def test_three_ways_of_moving_take_turns_too():
    found = [level for level in levels(counts(host=5, offloaded=5, input=5, narrow=3)) if level != "narrow"]
    assert all(len({*found[first : first + 3]}) == 3 for first in range(13))


def test_mixes_are_arranged_as_each_alone():
    many = level_mixes(36, ALLOWED)[::37]
    for clear in (0, 4):
        together = arrange_layers(many, clear)
        for number in range(0, len(many), 5):
            assert together[number].tolist() == arrange_layers(many[number : number + 1], clear)[0].tolist()
            for level in range(len(LEVEL_NAMES)):
                assert (together[number] == level).sum() == many[number, level]
    assert arrange_layers(many[:0], 0).shape[0] == 0
