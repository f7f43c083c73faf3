"""The instrument itself: it must see a slow handler, or the tests that rely on it prove nothing."""

import time

import pytest
from PySide6.QtCore import QTimer

from burnish_app.instrument import HandlerTimes, process_age_s


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@pytest.mark.measured
def test_a_handler_that_works_long_is_seen_with_its_thread_time(qtbot, qapp):
    qapp.times = HandlerTimes()
    QTimer.singleShot(0, lambda: burn(0.08))
    qtbot.wait(200)
    assert qapp.times.slowest_cpu_ms >= 75
    assert qapp.times.slowest


@pytest.mark.measured
def test_waiting_costs_wall_time_but_no_thread_time(qtbot, qapp):
    qapp.times = HandlerTimes()
    QTimer.singleShot(0, lambda: time.sleep(0.08))
    qtbot.wait(200)
    assert max(qapp.times.wall_ms) >= 75
    assert qapp.times.slowest_cpu_ms < max(qapp.times.wall_ms) / 2


def test_the_99th_percentile():
    times = HandlerTimes()
    assert times.wall_p99_ms == 0.0
    for number in range(200):
        times.add(float(number), 0.0, "")
    assert times.wall_p99_ms == 198.0


def test_the_age_of_the_process_goes_with_the_clock():
    began, before, since = time.time(), process_age_s(), time.time()
    time.sleep(0.05)
    until, after, ended = time.time(), process_age_s(), time.time()
    assert until - since - 0.01 <= after - before <= ended - began + 0.01
    assert before > 0
