"""Alarms: lasting, on a full card, with somebody to blame."""

import pytest

from burnish_app.state.hardware_alarms import Alarm, find_alarms
from burnish_engine.contract.facts.hardware import GpuSample, HardwareSample, HardwareStart, SampledGpu

from support.machines.hardware import GIB, history_of, made_up, recorded


def alarms(lines):
    return find_alarms(history_of(lines))


def card(samples, *, total=24 * GIB, unified=False):
    """A card with samples of (used, ours, spilled), GiB."""
    yield HardwareStart(t=0, gpus=[SampledGpu(index=0, memory_total_bytes=total, unified_memory=unified)])
    for second, values in enumerate(samples, 1):
        used, ours, spilled = (None if value is None else int(value * GIB) for value in values)
        gpu = GpuSample(index=0, used_bytes=used, ours_bytes=ours, spilled_bytes=spilled)
        yield HardwareSample(t=second, seconds=1, gpus=[gpu])


@pytest.mark.full
def test_a_run_that_has_room_raises_none():
    assert alarms(made_up()) == []
    assert alarms(recorded()) == []
    assert alarms([]) == []


@pytest.mark.full
def test_a_card_that_others_fill():
    (alarm,) = alarms(made_up(filled=3))
    assert (alarm.kind, alarm.gpu) == ("filled", 0)
    assert alarm.bytes > 5 * GIB


def test_memory_that_spilled_comes_first():
    (alarm,) = alarms(made_up(filled=3, spilled=1.5))
    assert alarm == Alarm("spill", 0, int(1.5 * GIB))


@pytest.mark.parametrize(
    ("samples", "kind"),
    [
        ([(23.8, 20, None)] * 3, "filled"),
        ([(23.8, 20, None)] * 2, None),  # not yet for long
        ([(23.8, 20, None)] * 2 + [(21, 20, None)], None),  # over
        ([(23.8, 23.6, None)] * 3, None),  # the run fills it itself
        ([(23.8, 0, None)] * 3, None),  # no run of ours suffers
        ([(23.8, None, None)] * 3, None),  # nobody tells whose it is
        ([(None, None, None)] * 3, None),
        ([(23.8, 23.6, 1.0)] * 3, "spill"),
        ([(23.8, 23.6, 0.1)] * 3, None),  # the driver's own buffers
        ([(20, 19, 1.0)] * 3, None),  # page-locked memory of a card with room
    ],
)
def test_what_raises_one(samples, kind):
    found = alarms(card(samples))
    assert [alarm.kind for alarm in found] == ([kind] if kind else [])


def test_memory_that_is_shared_with_the_system_raises_none():
    assert alarms(card([(23.8, 20, None)] * 3, unified=True)) == []


@pytest.mark.parametrize(("others", "culprit"), [(6.0, "firefox"), (1.2, "")])
def test_a_program_is_named_only_where_most_of_it_is_its(others, culprit):
    assert alarms(made_up(filled=3, others=others))[0].culprit == culprit
