"""How long something still takes, from how its share grows."""

import itertools
import random

import pytest

from burnish_app.state.time_left import NOTABLY, ShareClock


def looks(*pairs):
    clock = ShareClock()
    return [clock.note(now, share) for now, share in pairs]


def last(*pairs):
    return looks(*pairs)[-1].middle_s


def test_nothing_is_told_before_it_has_grown_for_a_while():
    assert looks((0, 0.0), (1, 0.2), (4, 0.4)) == [None, None, None]


def test_even_growth_is_carried_on():
    assert last((0, 0.1), (10, 0.2)) == pytest.approx(80)


def test_between_two_steps_the_time_falls_by_the_work_of_one_at_most():
    assert last((0, 0.1), (10, 0.2), (15, 0.2)) == pytest.approx(75)
    assert last((0, 0.1), (10, 0.2), (20, 0.2)) == pytest.approx(70)


def test_work_that_does_not_grow_raises_the_time_and_time_that_passes_never_empties_it():
    later = [last((0, 0.1), (10, 0.2), (now, 0.2)) for now in (20, 40, 100, 1000)]
    assert later == sorted(later)
    assert later[-1] > 1000
    assert last((0, 0.9), (10, 1.0), (500, 1.0)) > 0


def test_old_growth_does_not_count():
    assert last((0, 0.01), (1000, 0.02), (1010, 0.22), (1020, 0.42)) == pytest.approx(29, abs=1)


def test_what_goes_before_the_first_growth_is_no_pace():
    assert last((0, 0.0), (58, 0.0), (60, 0.0), (62, 0.01), (70, 0.05)) == pytest.approx(190)


def test_what_begins_anew_is_measured_anew():
    assert looks((0, 0.1), (10, 0.5), (20, 0.0), (22, 0.01))[-2:] == [None, None]


def test_a_range_is_told_while_little_is_known():
    early, late = looks((0, 0.0), (5, 0.01), (10, 0.02))[-1], looks(*((at, at / 100) for at in range(60)))[-1]
    assert early.high_s >= 2 * early.low_s
    assert late.high_s == late.low_s


@pytest.mark.parametrize("load", [1, 8, 16])
def test_at_a_steady_load_the_estimate_is_within_a_third_and_rises_only_with_a_reason(load):
    """Work of uneven pieces, looked at each second as the window does."""
    draw = random.Random(load)
    pieces = [0.5 * load * draw.uniform(0.4, 1.6) for _ in range(120)]
    ends = [sum(pieces[: number + 1]) for number in range(len(pieces))]
    clock, told, wanted = ShareClock(), 0.0, {0.25, 0.5, 0.75}
    now = 0.0
    while now < ends[-1]:
        share = sum(end <= now for end in ends) / len(ends)
        left = clock.note(now, share)
        if left is not None:
            assert left.low_s > 0
            assert not told or left.middle_s <= NOTABLY * told or left.slower > 1
            told = left.middle_s
            for mark in [mark for mark in wanted if share >= mark]:
                wanted.discard(mark)
                assert left.middle_s == pytest.approx(ends[-1] - now, rel=0.3)
        now += 1.0
    assert not wanted


def test_a_machine_that_becomes_slower_is_said_to_be():
    quick = [(at, at / 200) for at in range(50)]
    slow = [(50 + 10 * at, 0.25 + at / 200) for at in range(30)]
    found = [left for left in looks(*quick, *slow) if left is not None]
    steps = list(itertools.pairwise(found))
    assert all(after.middle_s <= NOTABLY * before.middle_s or after.slower > NOTABLY for before, after in steps)
    assert found[-1].middle_s > 3 * found[20].middle_s
