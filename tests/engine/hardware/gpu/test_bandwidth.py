"""Rates measured on real machines, merged into the facts, and the advice that follows from them."""

import json
from pathlib import Path

import pytest

from burnish_engine.hardware.gpu.bandwidth import merge_measurements
from burnish_engine.hardware.gpu.interconnect import parallel_settings
from burnish_engine.hardware.recording import load, replay

GOLDEN = Path(__file__).resolve().parents[3] / "golden"


def measured(name, change=lambda answer: None):
    answer = json.loads((GOLDEN / "links" / f"{name}.json").read_text(encoding="utf-8"))
    change(answer)
    return merge_measurements(replay(load(GOLDEN / "machines" / f"{name}.json")), answer)


@pytest.mark.parametrize(("name", "gpus"), [("h200x2", 2), ("h200x4", 4), ("h100x4", 4)])
def test_two_and_four_cards_as_measured(name, gpus):
    found = measured(name)
    assert not found.problems
    machine = found.machine
    assert len(machine.links) == gpus * (gpus - 1) // 2
    for link in machine.links:
        assert link.measured.peer_access
        assert 0.8 * link.nvlink_gb_s < link.measured.copy_gb_s < link.nvlink_gb_s
        assert link.measured.both_ways_gb_s > 1.9 * link.measured.copy_gb_s
    assert all(gpu.pcie.under_load and gpu.pcie.generation == 5 and gpu.pcie.width == 16 for gpu in machine.gpus)
    advice = parallel_settings(machine)
    assert advice.strategy == "data_parallel"
    assert advice.gpus == list(range(gpus))
    assert not advice.compress
    assert advice.exchange_gb_s == pytest.approx(machine.all_reduce_gb_s)
    assert advice.exchange_ms < 1.5


def test_a_measurement_overrules_the_table_and_says_so():
    def slow(answer):
        answer["all_reduce_gb_s"] = 4.0
        for link in answer["links"]:
            link["copy_gb_s"] = 5.0

    found = measured("h200x2", slow)
    advice = parallel_settings(found.machine)
    assert advice.exchange_gb_s == pytest.approx(4.0)
    assert advice.exchange_ms > 30
    assert any("5.0 GB/s measured" in reason for reason in advice.reasons)


def test_copies_that_arrive_broken_are_told():
    def broken(answer):
        answer["links"][0]["intact"] = False

    found = measured("h200x2", broken)
    assert found.problems
