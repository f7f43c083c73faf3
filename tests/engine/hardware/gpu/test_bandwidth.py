"""Rates measured on real machines, merged into the facts, and the advice that follows from them."""

import pytest

from burnish_engine.hardware.gpu.interconnect import parallel_settings
from burnish_engine.hardware.gpu.topology import beside_others

from support.machines.measured_hosts import four_h100, measured


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


def test_copies_of_all_cards_at_once_are_merged_and_what_did_not_measure_them_tells_nothing():
    recorded = measured("h100x4").machine.host_copies
    assert recorded.gpus == 4
    assert recorded.to_gpus_gb_s == pytest.approx(153, rel=0.01)
    assert four_h100(at_once=False).host_copies is None


# GB/s of each way as measured with so many cards copying at once.
@pytest.mark.parametrize(("count", "to", "back"), [(1, 54.3, 53.9), (2, 53.5, 53.6), (4, 43.1, 34.6)])
def test_cards_that_copy_at_once_share_what_the_host_gives(count, to, back):
    machine = four_h100()
    found = beside_others(machine, machine.gpus[0], count).pcie
    assert (found.to_gpu_gb_s, found.from_gpu_gb_s) == (pytest.approx(to, rel=0.03), pytest.approx(back, rel=0.03))


def test_where_copies_at_once_were_not_measured_a_card_keeps_its_rates():
    alone = four_h100(at_once=False)
    assert beside_others(alone, alone.gpus[0], 4) == alone.gpus[0]
    known = four_h100()
    idle = known.gpus[0].model_copy(update={"pcie": None})
    assert beside_others(known, idle, 4) == idle
    assert beside_others(known, None, 4) is None
