"""Even bars of lengths, and the steps that a cut takes."""

import pytest

from burnish_app.state.length_bins import LengthBins

EVEN = [(at, 100 - at, (100 - at) ** 2) for at in range(0, 96, 8)]


def test_every_row_is_in_one_bar_and_the_bars_are_even():
    bins = LengthBins([*EVEN, (100, 0, 0)], 6)
    assert sum(bar.rows for bar in bins.bars) == 100
    assert {bar.upper - bar.lower for bar in bins.bars[:-1]} == {16}
    assert len(bins.bars) <= 7
    assert (bins.bars[0].left, bins.bars[-1].right) == (0.0, 1.0)


def test_one_endless_row_takes_no_more_room_than_others():
    bins = LengthBins([*EVEN[:-1], (88, 1, 30_000), (30_088, 0, 0)], 32)
    last = bins.bars[-1]
    assert (last.lower, last.upper, last.rows) == (88, 30_088, 1)
    assert last.right - last.left == pytest.approx(bins.bars[0].right)
    assert bins.share_of(30_088) == bins.share_of(99_999) == 1.0


def test_a_place_and_its_length_belong_together():
    bins = LengthBins([*EVEN, (100, 0, 0)], 32)
    for length in (16, 40, 88):
        assert bins.step_at(bins.share_of(length)) == length
    assert bins.step_at(0.0) == 16, "the shortest row that a recipe takes"
    assert bins.step_at(1.0) == 100


def test_keys_go_from_step_to_step_and_stop_at_the_ends():
    bins = LengthBins([*EVEN, (100, 0, 0)], 32)
    assert (bins.step_from(40, 1), bins.step_from(40, -1)) == (48, 32)
    assert (bins.step_from(43, 1), bins.step_from(43, -1)) == (48, 40)
    assert (bins.step_from(16, -1), bins.step_from(2048, 1), bins.step_from(2048, -1)) == (16, 100, 100)
    assert (bins.step_from(40, 1000), bins.step_from(40, -1000)) == (100, 16)


def test_nothing_to_show_is_no_bar():
    assert LengthBins([], 32).bars == LengthBins([(0, 0, 0)], 32).bars == []
