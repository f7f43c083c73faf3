"""Settings follow from the graph: what is exchanged, over what, and whether a second GPU is worth it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish_engine.contract.facts.machine import (
    HOST,
    ExchangeFacts,
    GpuFacts,
    LinkFacts,
    LinkMeasurement,
    MachineFacts,
    PcieFacts,
)
from burnish_engine.hardware.gpu.interconnect import exchange_ms, is_slow_exchange, parallel_settings
from burnish_engine.hardware.gpu.topology import pcie_gb_s, peer_gb_s, topology

from support.machines.measured_hosts import four_h100

GB = 10**9
QWEN_4B_R16, LLAMA_8B_R16, LLAMA_8B_R64, QWEN_32B_R16 = 132_000_000, 168_000_000, 671_000_000, 537_000_000


def gpu(index, name="NVIDIA GeForce RTX 3090", free=24, generation=4, width=16, **more):
    pcie = PcieFacts(generation=1, width=width, best_generation=generation, best_width=width)
    facts = {"vram_total_bytes": 24 * GB, "vram_free_bytes": int(free * GB), "compute_capability": (8, 6), "pcie": pcie}
    return GpuFacts(index=index, name=name, **{**facts, **more})


def machine(*gpus, os="Linux 6.8", driver="580.95.05", link=None, **more):
    pairs = [(a.index, b.index) for a in gpus for b in gpus if a.index < b.index]
    links = [LinkFacts(first=a, second=b, **(link or {})) for a, b in pairs]
    return MachineFacts(
        os=os, architecture="x86_64", python="3.12", cpu="", cpu_cores=8, ram_total_bytes=64 * GB,
        ram_free_bytes=50 * GB, disk_free_bytes=GB, gpus=list(gpus), links=links, driver=driver, **more,
    )  # fmt: skip


P2P = {"p2p_read": True, "p2p_write": True}
NO_P2P = {"p2p_read": False, "p2p_write": False, "p2p_problem": "GPU not supported"}
BRIDGE = {**P2P, "nvlinks": 4, "nvlink_gb_s": 56.25}


def pair(link, **more):
    return machine(gpu(0, **more), gpu(1, **more), link=link)


@pytest.mark.parametrize(
    ("generation", "width", "gb_s"), [(3, 8, 7.9), (3, 16, 15.8), (4, 8, 15.8), (4, 16, 31.5), (5, 16, 63.0)]
)
def test_pcie_has_the_rates_of_its_specification(generation, width, gb_s):
    assert pcie_gb_s(generation, width) == pytest.approx(gb_s, rel=0.005)


@pytest.mark.parametrize(
    ("link", "width", "adapter", "ms"),
    [
        (NO_P2P, 16, QWEN_4B_R16, 22),
        (NO_P2P, 16, LLAMA_8B_R16, 28),
        (P2P, 8, QWEN_4B_R16, 11),
        (P2P, 8, LLAMA_8B_R16, 14),
        (P2P, 16, LLAMA_8B_R64, 28),
        (P2P, 16, QWEN_32B_R16, 22),
        (BRIDGE, 8, LLAMA_8B_R16, 4.7),
        (BRIDGE, 8, LLAMA_8B_R64, 18.6),
    ],
)
def test_an_exchange_takes_as_long_as_worked_out_by_hand(link, width, adapter, ms):
    advice = parallel_settings(pair(link, width=width), adapter_bytes=adapter)
    assert advice.exchange_ms == pytest.approx(ms, rel=0.05)


def test_short_steps_over_host_memory_accumulate_and_then_compress():
    slow = pair(NO_P2P)
    long_step, short, shorter = (parallel_settings(slow, step_s=seconds) for seconds in (1.0, 0.2, 0.05))
    assert (long_step.accumulation, short.accumulation, shorter.accumulation) == (1, 4, 8)
    assert (long_step.compress, short.compress, shorter.compress) == (False, False, True)
    assert shorter.exchange_ms == pytest.approx(long_step.exchange_ms / 2)


@pytest.mark.parametrize(
    ("link", "exchange_s", "busy_s", "is_slow"),
    [
        (BRIDGE, 0.4, 1.0, False),
        (BRIDGE, 0.6, 1.0, True),
        (P2P, 0.4, 1.0, False),
        (P2P, 0.6, 1.0, True),
        (NO_P2P, 0.04, 1.0, False),
        (NO_P2P, 0.06, 1.0, True),
        (NO_P2P, 0.06, 2.0, False),  # more passes between two exchanges
    ],
)
def test_how_much_of_a_step_an_exchange_may_take_depends_on_the_link(link, exchange_s, busy_s, is_slow):
    assert is_slow_exchange(pair(link), [0, 1], exchange_s, busy_s) is is_slow


def test_between_machines_of_one_gpu_the_network_is_a_slow_link():
    assert is_slow_exchange(machine(gpu(0)), [0], 0.06, 1.0)
    assert not is_slow_exchange(machine(gpu(0)), [0], 0.04, 1.0)


# Measured, `burnish bench step --gpus`: GPUs, bytes of the gradients, milliseconds.
EXCHANGES = [(2, 40_370_176, 0.176), (2, 45_088_768, 0.198), (2, 132_120_576, 0.5), (4, 40_370_176, 0.207)]


@pytest.mark.parametrize(("count", "size", "ms"), EXCHANGES)
def test_exchanges_between_h200s_are_predicted_within_a_fifth(count, size, ms):
    """Over NVLink through a switch, 18 links each."""
    switched = machine(*(gpu(index) for index in range(count)), link={**P2P, "nvlinks": 18, "nvlink_gb_s": 450})
    assert exchange_ms(switched, range(count), size) == pytest.approx(ms, rel=0.2)


def unlinked(machine):
    """As NCCL_P2P_DISABLE=1 leaves it."""
    return machine.model_copy(update={"links": [], "all_reduce_gb_s": None})


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(("size", "ms"), [(40_370_176, 2.557), (45_088_768, 2.658)])
def test_exchanges_through_a_servers_memory_are_predicted_within_a_fifth(size, ms, at_once):
    """By generation and width alone, and by measured copies of all cards at once."""
    assert exchange_ms(unlinked(four_h100(at_once=at_once)), range(4), size) == pytest.approx(ms, rel=0.2)


def test_copies_of_all_cards_at_once_set_the_pace_through_host_memory():
    fast = unlinked(four_h100())
    slow = fast.model_copy(update={"host_copies": fast.host_copies.model_copy(update={"both_ways_gb_s": 17.52})})
    assert exchange_ms(slow, range(4), GB) == pytest.approx(10 * exchange_ms(fast, range(4), GB), rel=0.01)
    advice = parallel_settings(slow)
    assert advice.exchange_gb_s == pytest.approx(17.52 / 8 * 4 / 6)
    assert any("2.2 GB/s" in reason for reason in advice.reasons)


def test_nothing_better_is_promised_of_desktops_that_were_not_measured():
    """GeForce cards on PCIe 5: their boards have two channels of memory, and none was measured."""
    desktop = pair(NO_P2P, name="NVIDIA GeForce RTX 5090", generation=5)
    server = pair(NO_P2P, name="NVIDIA H100 80GB HBM3", generation=5)
    assert exchange_ms(desktop, [0, 1], GB) == pytest.approx(exchange_ms(pair(NO_P2P), [0, 1], GB))
    assert exchange_ms(desktop, [0, 1], GB) > 3 * exchange_ms(server, [0, 1], GB)


def test_what_a_run_measured_over_the_same_gpus_counts_at_other_sizes_too():
    four = machine(*(gpu(index) for index in range(4)), link=NO_P2P)
    runs = [
        ExchangeFacts(gpus=[0, 1], bytes=40 * 10**6, ms=20.0),
        ExchangeFacts(gpus=[0, 1], bytes=400 * 10**6, ms=300.0),
        ExchangeFacts(gpus=[2, 3], bytes=40 * 10**6, ms=2.0),
    ]
    known = four.model_copy(update={"exchanges": runs})
    assert exchange_ms(known, [1, 0], 40 * 10**6) == pytest.approx(20.0)
    assert exchange_ms(known, [0, 1], 80 * 10**6) == pytest.approx(40.0, rel=0.01)
    assert exchange_ms(known, [0, 1], 200 * 10**6) == pytest.approx(150.0, rel=0.01)
    assert exchange_ms(known, [0, 2], 40 * 10**6) == exchange_ms(four, [0, 2], 40 * 10**6)
    alone = machine(gpu(0), gpu(1), link=NO_P2P).model_copy(update={"exchanges": runs[:1]})
    advice = parallel_settings(alone, adapter_bytes=40 * 10**6)
    assert (advice.exchange_ms, advice.exchange_gb_s) == (pytest.approx(20.0), pytest.approx(2.0))
    assert any("20 ms" in reason for reason in advice.reasons)


def test_links_that_are_too_slow_leave_one_gpu():
    advice = parallel_settings(pair(NO_P2P), adapter_bytes=2 * GB, step_s=0.02)
    assert (advice.strategy, advice.gpus) == ("single", [0])
    assert "one GPU is faster" in advice.reasons[0]


def test_four_gpus_exchange_around_a_ring_at_the_pace_of_the_slowest_link():
    four = machine(*(gpu(index) for index in range(4)), link=BRIDGE)
    links = [
        link if (link.first, link.second) != (1, 2) else LinkFacts(first=1, second=2, **P2P) for link in four.links
    ]
    advice = parallel_settings(four.model_copy(update={"links": links}))
    assert advice.gpus == [0, 1, 2, 3]
    # 2 (n - 1) / n of the buffer passes each link; PCIe 4 x16 carries about 24 GB/s.
    assert advice.exchange_ms == pytest.approx(168 / 24 * 1.5, rel=0.03)


def test_weights_are_shared_out_only_when_they_do_not_fit_one_gpu():
    two = pair(P2P)
    fits, too_big, far_too_big = (parallel_settings(two, base_bytes=size * GB) for size in (16, 40, 90))
    assert (fits.strategy, too_big.strategy, far_too_big.strategy) == ("data_parallel", "sharded", "single")
    # Half of 40 GB is received twice a pass at about 24 GB/s.
    assert too_big.exchange_ms == pytest.approx(40 / 24 * 1e3, rel=0.03)
    assert "too small too" in far_too_big.reasons[0]


def test_a_single_gpu_that_is_too_small_is_told_how_much_is_missing():
    advice = parallel_settings(machine(gpu(0)), base_bytes=40 * GB)
    assert advice.strategy == "single"
    assert "38.9 GiB" in advice.reasons[0]
    assert "22.4 GiB" in advice.reasons[0]


def test_a_gpu_in_use_is_left_out():
    advice = parallel_settings(machine(gpu(0), gpu(1, free=3), link=P2P), base_bytes=8 * GB)
    assert (advice.strategy, advice.gpus) == ("single", [0])
    assert any("GPU 1 is left out: 2.8 GiB" in reason for reason in advice.reasons)


@pytest.mark.parametrize(
    ("names", "used"),
    [
        (["RTX 3060", "RTX 4090"], [1]),
        (["RTX 4090", "RTX 4090", "RTX 3060"], [0, 1]),
        (["RTX 3090", "RTX 3090 Ti"], [0, 1]),
        (["RTX 3090", "RTX 2080 Ti"], [0]),
        (["RTX 3090", "RTX 5060"], [0]),
    ],
)
def test_unlike_gpus_work_together_only_where_that_is_faster(names, used):
    cards = [gpu(index, name=f"NVIDIA GeForce {name}") for index, name in enumerate(names)]
    assert parallel_settings(machine(*cards, link=NO_P2P)).gpus == used


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"os": "Windows 11"}, "Windows"),
        ({"gpus": [gpu(0, mig=True), gpu(1, mig=True)]}, "MIG"),
        ({"gpus": [gpu(0, unified_memory=True), gpu(1, unified_memory=True)]}, "system's memory"),
    ],
)
def test_what_keeps_gpus_apart_is_said(change, word):
    advice = parallel_settings(pair(P2P).model_copy(update=change))
    assert advice.strategy == "single"
    assert word in advice.reasons[0]


@pytest.mark.parametrize(
    ("name", "driver", "disabled"),
    [
        ("RTX 4090", "535.104.05", True),
        ("RTX 4090", "550.40.06", True),
        ("RTX 4090", "550.40.07", False),
        ("RTX 3090", "535.104.05", False),
        ("RTX 4000 Ada Generation", "535.104.05", False),
    ],
)
def test_only_geforce_40_with_an_old_driver_loses_peer_to_peer(name, driver, disabled):
    brand = "NVIDIA" if "Ada" in name else "NVIDIA GeForce"
    advice = parallel_settings(machine(gpu(0, f"{brand} {name}"), gpu(1, f"{brand} {name}"), link=P2P, driver=driver))
    assert (advice.environment.get("NCCL_P2P_DISABLE") == "1") is disabled


def measured(link, copy_gb_s, peer_access):
    return {**link, "measured": LinkMeasurement(copy_gb_s=copy_gb_s, peer_access=peer_access)}


def test_cuda_has_the_last_word_on_peer_to_peer():
    advice = parallel_settings(pair(measured(P2P, 5.0, False)))
    assert advice.environment == {"NCCL_P2P_DISABLE": "1"}
    assert advice.exchange_gb_s == 5.0


def test_a_patched_driver_that_was_measured_gets_peer_to_peer_across_the_host_bridge():
    link = {**measured(P2P, 24.5, True), "common_ancestor": "hostbridge"}
    assert parallel_settings(pair(link)).environment == {"NCCL_P2P_LEVEL": "PHB"}
    assert parallel_settings(pair({**P2P, "common_ancestor": "hostbridge"})).environment == {}


def test_a_measured_all_reduce_counts_only_for_the_gpus_it_was_measured_with():
    both = pair(BRIDGE).model_copy(update={"all_reduce_gb_s": 41.0})
    assert parallel_settings(both).exchange_gb_s == 41.0
    three = machine(gpu(0), gpu(1), gpu(2, free=1), link=BRIDGE, all_reduce_gb_s=9.0)
    assert parallel_settings(three).exchange_gb_s == pytest.approx(0.8 * 45.0)


def test_gpus_read_each_other_as_fast_as_the_slowest_two_or_not_at_all():
    assert peer_gb_s(machine(gpu(0), gpu(1), link=BRIDGE), [0, 1]) == pytest.approx(45.0)
    slow = LinkFacts(first=0, second=2, **P2P)
    three = machine(gpu(0), gpu(1), gpu(2), link=BRIDGE)
    mixed = three.model_copy(
        update={"links": [link for link in three.links if link.second != 2 or link.first] + [slow]}
    )
    assert peer_gb_s(mixed, [0, 1, 2]) == topology(mixed).between(0, 2).gb_s < 45
    assert peer_gb_s(mixed, [0, 1]) == pytest.approx(45.0)
    assert not peer_gb_s(machine(gpu(0), gpu(1), link=NO_P2P), [0, 1])
    assert not peer_gb_s(three, [0, 3]), "a GPU of another machine"


def test_an_idle_link_is_not_taken_for_a_slow_one():
    assert topology(pair(P2P)).between(0, HOST).gb_s == pytest.approx(24, rel=0.01)
    loaded = PcieFacts(generation=3, width=4, best_generation=4, best_width=16, under_load=True)
    assert topology(machine(gpu(0, pcie=loaded))).between(0, HOST).gb_s == pytest.approx(3.0, rel=0.01)


@pytest.mark.full
@given(
    count=st.integers(0, 5),
    link=st.sampled_from([P2P, NO_P2P, BRIDGE, {}]),
    adapter=st.integers(0, 4 * GB),
    base=st.integers(0, 400 * GB),
    step=st.floats(0.001, 60),
    windows=st.booleans(),
)
def test_every_machine_gets_settings_that_hold_together(count, link, adapter, base, step, windows):
    facts = machine(*(gpu(i) for i in range(count)), link=link, os="Windows 11" if windows else "Linux")
    advice = parallel_settings(facts, adapter_bytes=adapter, base_bytes=base, step_s=step)
    assert set(advice.gpus) <= set(range(count))
    assert bool(advice.gpus) == bool(count)
    assert (advice.strategy == "single") == (len(advice.gpus) <= 1)
    assert advice.reasons
    assert all(reason.endswith(".") for reason in advice.reasons)
    if advice.strategy == "data_parallel":
        assert base <= 24 * GB
        assert advice.exchange_ms <= 0.51e3 * step * 8
