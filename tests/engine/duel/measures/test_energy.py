# ruff: noqa: N802  the functions of NVML have these names
"""Energy: read from NVML's counter or from the power draw, and summed over the steps that count."""

import json
import time

import pytest

from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.duel.measures.energy import LONGEST_GAP_S, EnergyWatch, GpuMeter, energy_along, meter_for

from support.app.serve import wait_for


class FakeNvml:
    """A card that draws 200 W at first and each second 1 W more; its counter may be missing."""

    class NVMLError(Exception):
        pass

    def __init__(self, clock, *, counter=True, power=True):
        self._clock, self._counter, self._power = clock, counter, power

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "GPU-1":
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        if not self._counter:
            raise self.NVMLError("not supported")
        return int(1e9 + 200_000 * self._clock() + 500 * self._clock() ** 2)

    def nvmlDeviceGetPowerUsage(self, handle):
        if not self._power:
            raise self.NVMLError("not supported")
        return int(200_000 + 1000 * self._clock())


@pytest.mark.parametrize(("counter", "source"), [(True, "NVML energy counter"), (False, "NVML power draw, integrated")])
def test_a_card_is_read_by_counter_or_by_power(counter, source):
    now = [10.0]
    meter = GpuMeter("GPU-1", FakeNvml(lambda: now[0], counter=counter), clock=lambda: now[0])
    assert meter.source == source
    first = meter.read()
    now[0] = 40.0
    second = meter.read()
    assert second[1] - first[1] == pytest.approx(225 * 30)


def test_a_card_that_tells_nothing_is_not_measured():
    assert GpuMeter("GPU-1", FakeNvml(time.time, counter=False, power=False)).source == ""
    missing = GpuMeter("GPU-2", FakeNvml(time.time))
    assert (missing.source, missing.read()) == ("", None)
    assert meter_for(DevicesSection(kind="cpu")) is None


def write(path, samples):
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples), encoding="ascii")


def energy_of(path, windows):
    """All of it."""
    along = energy_along(path, windows)
    return along[-1] if along else None


def test_energy_is_summed_over_steps_and_what_lies_between_is_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, [[t / 4, 100.0 * t / 4] for t in range(401)])  # 100 W for 100 s
    assert energy_of(path, [(10.0, 12.0), (50.0, 50.5)]) == pytest.approx(250.0)
    assert energy_of(path, []) is None
    assert energy_of(tmp_path / "none.jsonl", [(1.0, 2.0)]) is None


def test_energy_is_told_along_the_way(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, [[t / 4, 100.0 * t / 4] for t in range(401)])
    assert energy_along(path, [(10.0, 12.0), (50.0, 50.5)]) == [pytest.approx(200.0), pytest.approx(250.0)]
    assert energy_along(path, [(10.0, 12.0), (150.0, 151.0), (20.0, 21.0)]) == [pytest.approx(200.0), None, None]
    assert energy_along(path, []) == []


def test_steps_that_nobody_watched_make_it_not_measured(tmp_path):
    path = tmp_path / "a.jsonl"
    gap = 40 + 4 * int(LONGEST_GAP_S) + 8
    write(path, [[t / 4, 25.0 * t] for t in (*range(41), *range(gap, 200))])
    assert energy_of(path, [(1.0, 9.0)]) == pytest.approx(800.0)
    assert energy_of(path, [(1.0, 9.0), (11.0, 12.0)]) is None
    assert energy_of(path, [(45.0, 60.0)]) is None


def test_a_meter_that_begins_anew_and_a_torn_line_do_not_add_up(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, [[t / 4, 5000 + 25.0 * t] for t in range(41)])
    with path.open("a", encoding="ascii") as file:
        file.write('[10.2, 60\n"piece"\n')
        file.writelines(f"{json.dumps([10.5 + t / 4, 25.0 * t])}\n" for t in range(41))
    assert energy_of(path, [(1.0, 9.0), (12.0, 14.0)]) == pytest.approx(1000.0)


def test_a_watch_writes_beside_what_goes_on(tmp_path):
    began = time.time()
    meter = GpuMeter("GPU-1", FakeNvml(lambda: time.time() - began))
    file = tmp_path / "deep" / "a.jsonl"

    def readings():
        """Number of readings of each piece."""
        return [part.count("[") for part in file.read_text().split('"piece"')[1:]] if file.exists() else []

    for piece in (1, 2):
        with EnergyWatch(meter, file):
            wait_for(lambda piece=piece: len(readings()) == piece and readings()[-1] > 2)
    first = file.read_text().split('"piece"')[1]
    begin, *_, end = [json.loads(line)[0] for line in first.split("\n") if line]
    assert energy_of(file, [(begin, end)]) == pytest.approx(200 * (end - begin), rel=0.05)
    with EnergyWatch(None, tmp_path / "none.jsonl"):
        pass
    assert not (tmp_path / "none.jsonl").exists()
