import threading

import pytest

from burnish_engine.contract.errors import StoppedError
from burnish_engine.install.files.meter import Meter


def test_the_rate_is_of_what_came_not_of_what_was_there():
    now = [0.0]
    meter = Meter(1000, threading.Event(), lambda: now[0])
    meter.found(500)
    for _ in range(4):
        now[0] += 1.0
        meter.came(50)
    reading = meter.reading()
    assert reading.done_bytes == 700
    assert reading.rate == pytest.approx(50)
    assert reading.left_s == pytest.approx(6)


def test_the_rate_follows_a_change():
    now = [0.0]
    meter = Meter(10**6, threading.Event(), lambda: now[0])
    for count in (10,) * 20 + (1000,) * 20:
        now[0] += 1.0
        meter.came(count)
    assert meter.reading().rate == pytest.approx(1000)


def test_a_pause_and_a_failure_end_all_who_fetch():
    stop = threading.Event()
    meter = Meter(10, stop)
    meter.came(1)
    stop.set()
    with pytest.raises(StoppedError):
        meter.came(1)
    other = Meter(10, threading.Event())
    other.end()
    with pytest.raises(StoppedError):
        other.check()
