"""How long something still takes, from how its share grows."""

import pytest

from burnish_app.state.time_left import ShareClock


def looks(*pairs):
    left = ShareClock()
    return [left.note(now, share) for now, share in pairs]


def test_nothing_is_told_before_it_has_grown_for_a_while():
    assert looks((0, 0.0), (1, 0.2), (4, 0.4)) == [None, None, None]


def test_even_growth_is_carried_on():
    assert looks((0, 0.1), (10, 0.2))[-1] == pytest.approx(80)


def test_between_two_steps_the_time_goes_down():
    assert looks((0, 0.1), (10, 0.2), (15, 0.2))[-1] == pytest.approx(75)


def test_it_never_goes_below_nothing():
    assert looks((0, 0.1), (10, 0.2), (1000, 0.2))[-1] == 0


def test_old_growth_does_not_count():
    slow_then_fast = [(0, 0.01), (1000, 0.02), (1010, 0.22), (1020, 0.42)]
    assert looks(*slow_then_fast)[-1] == pytest.approx(29, abs=1)


def test_what_goes_before_the_first_growth_is_no_pace():
    loading_then_steps = [(0, 0.0), (58, 0.0), (60, 0.0), (62, 0.01), (70, 0.05)]
    assert looks(*loading_then_steps)[-1] == pytest.approx(190)


def test_what_begins_anew_is_measured_anew():
    assert looks((0, 0.1), (10, 0.5), (20, 0.0), (22, 0.01))[-2:] == [None, None]
