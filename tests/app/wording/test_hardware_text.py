"""Text about samples of the hardware."""

import math

import pytest

from burnish_app.state.hardware_alarms import Alarm
from burnish_app.wording.hardware_text import (
    alarm_text,
    celsius_text,
    clocks_text,
    energy_per_point,
    holder_text,
    load_text,
    memory_split_text,
    pcie_now_text,
    price_text,
    reason_text,
    throttled_text,
    used_of_text,
    watts_text,
)
from burnish_engine.contract.facts.hardware import GpuSample, MemoryHolder, SampledGpu, ThrottleReason
from burnish_engine.contract.run.events import EvaluationDone
from burnish_engine.contract.run.fold import EvaluationHistory
from burnish_engine.contract.run.hardware_log import GpuHistory

GIB = 2**30


def gpu(**values):
    facts = SampledGpu(index=0, memory_total_bytes=24 * GIB, best_pcie_generation=4, best_pcie_width=16)
    return GpuHistory(facts).add(1.0, 1.0, GpuSample(index=0, **values))


@pytest.mark.parametrize("unknown", [None, math.nan])
def test_what_is_not_known_is_a_dash(unknown):
    assert {load_text(unknown), celsius_text(unknown), watts_text(unknown), used_of_text(unknown, 0)} == {"–"}
    assert used_of_text(unknown, 24 * GIB) == "24.0 GiB"


def test_figures():
    assert (load_text(0.976), celsius_text(67.2), watts_text(318.4)) == ("98 %", "67 °C", "318 W")
    assert used_of_text(10.3 * GIB, 24 * GIB) == "10.3 / 24.0 GiB"


def test_memory_is_split_where_the_driver_tells_ours():
    text = memory_split_text(gpu(used_bytes=12 * GIB, ours_bytes=9 * GIB))
    assert [part in text for part in ("9.0 GiB", "3.0 GiB", "12.0 GiB")] == [True] * 3
    assert memory_split_text(gpu(used_bytes=12 * GIB)) == "12.0 GiB in use"
    assert memory_split_text(gpu()) == ""


def test_every_reason_has_its_words():
    words = {reason_text(reason) for reason in ThrottleReason.__args__}
    assert len(words) == len(ThrottleReason.__args__)


def test_clocks_are_explained():
    held = clocks_text(gpu(clock_mhz=1200, throttle={"heat": 1.0, "power_limit": 1.0}))
    assert reason_text("heat") in held
    assert reason_text("power_limit") in held
    assert clocks_text(gpu(clock_mhz=2500)) != held
    assert clocks_text(gpu()) == ""


def test_shares_of_a_run_s_time_are_told_largest_first_without_idleness():
    text = throttled_text({"idle": 50, "power_limit": 20, "heat": 30, "sync_boost": 0.5}, 100)
    assert text.index("30 %") < text.index("20 %")
    assert "50 %" not in text
    assert reason_text("sync_boost") not in text
    assert throttled_text({"idle": 50}, 100) == throttled_text({}, 0) == ""


def test_the_connection_counts_under_load():
    working = gpu(load=0.9, pcie_generation=3, pcie_width=8, to_gpu_gb_s=1.5, from_gpu_gb_s=0.2)
    assert "3.0 x8 under load" in pcie_now_text(working)
    assert "4.0 x16" in pcie_now_text(working)  # what it could be
    idle = pcie_now_text(gpu(load=0.0, pcie_generation=1, pcie_width=16))
    assert "1.0 x16" in idle
    assert "4.0" not in idle  # an idle card's slow connection is no fault


def test_processes_by_name():
    assert "Burnish" in holder_text(MemoryHolder(pid=4, name="python", ours=True))
    assert holder_text(MemoryHolder(pid=4, name="firefox")) == "firefox (4)"
    assert "4" in holder_text(MemoryHolder(pid=4))


def test_alarms_say_what_happened_and_what_to_do():
    for alarm in (Alarm("spill", 0, 3 * GIB), Alarm("filled", 0, 3 * GIB), Alarm("filled", 0, 3 * GIB, "game.exe")):
        what, remedy = alarm_text(alarm)
        assert "3.0 GiB" in what
        assert remedy
        assert alarm.culprit in what


@pytest.mark.parametrize(
    ("joules", "price", "text"),
    [(3.6e6, 0.3, "0.30"), (3.6e6, 0, ""), (36_000, 0.3, "0.0030"), (7.2e9, 0.3, "600.00"), (3.6e6, -1, "")],
)
def test_price(joules, price, text):
    assert price_text(joules, price) == text


def evaluations(*losses):
    history = EvaluationHistory()
    for step, loss in enumerate(losses):
        history = history.add(EvaluationDone(step=step, loss=loss, tokens=1, seconds=1))
    return history


def test_energy_for_each_point_of_held_out_loss():
    assert energy_per_point(1000, evaluations(4.0, 3.0, 3.5)) == 1000  # by the best
    assert energy_per_point(1000, evaluations(4.0, math.nan, 3.5)) == 2000
    assert energy_per_point(1000, evaluations(4.0)) is None
    assert energy_per_point(1000, evaluations(4.0, 4.1)) is None
