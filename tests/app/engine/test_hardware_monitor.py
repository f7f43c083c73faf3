"""Live samples: asked for while the window is seen, again after the engine died, and never more than ten minutes."""

import pytest

from burnish_app.engine import hardware_monitor
from burnish_app.engine.hardware_monitor import HardwareMonitor

from support.machines.hardware import made_up


def messages(lines):
    return [{"type": "hardware", "line": line.model_dump(mode="json")} for line in lines]


@pytest.fixture
def monitor(client, monkeypatch):
    monkeypatch.setattr(hardware_monitor, "_AGAIN_MS", 20)
    made = HardwareMonitor(client)
    yield made
    made.stop()


@pytest.mark.full
def test_samples_arrive(qtbot, client, answers, monitor):
    answers.set("hardware", *messages(made_up(2, seconds=5)), {"hold": True})
    client.start()
    monitor.start()
    monitor.start()
    qtbot.waitUntil(lambda: len(monitor.history) == 5)
    assert set(monitor.history.gpus) == {0, 1}
    assert len(answers.asked("hardware")) == 1


def test_stopping_lets_the_engine_stop_and_starting_goes_on(qtbot, client, answers, monitor):
    answers.set("hardware", *messages(made_up(seconds=3)), {"hold": True})
    client.start()
    monitor.start()
    qtbot.waitUntil(lambda: len(monitor.history) == 3)
    monitor.stop()
    qtbot.waitUntil(lambda: len(answers.asked("cancel")) == 1)
    monitor.start()
    qtbot.waitUntil(lambda: len(answers.asked("hardware")) == 2)


def test_an_engine_that_died_is_asked_again(qtbot, client, answers, monitor):
    answers.set("hardware", *messages(made_up(seconds=2)), {"exit": 3})
    client.start()
    monitor.start()
    qtbot.waitUntil(lambda: len(answers.asked("hardware")) >= 2)


def test_ten_minutes_are_kept(monitor):
    energy = 0.0
    for line in made_up(seconds=2000):
        monitor._received(line)
        energy += sum((gpu.power_w or 0) for gpu in getattr(line, "gpus", ()) if hasattr(gpu, "power_w"))
    kept = monitor.history.t.values()
    assert 600 <= len(kept) <= 660
    assert kept[-1] - kept[0] <= hardware_monitor._TRIM_S
    assert len(monitor.history.gpus[0].power_w) == len(kept)
    assert monitor.history.energy_j == pytest.approx(energy)
