from app.facts.machine_facts import gpu, machine, pair

from burnish_app.wording.machine_text import (
    edge_rates_text,
    edge_text,
    gpu_memory_text,
    link_text,
    memory_users_text,
    pcie_text,
    settings_figures,
    sleep_text,
    training_device_text,
)
from burnish_engine.contract.facts.machine import HOST, EdgeFacts, LinkFacts, MemoryUser, ParallelSettings, PcieFacts


def test_an_idle_card_is_not_called_slow():
    words, hint = pcie_text(PcieFacts(generation=1, width=16, best_generation=4, best_width=16))
    assert words == "PCIe 4.0 x16"
    assert "Idle now at PCIe 1.0 x16" in hint


def test_missing_lanes_are_said():
    words, hint = pcie_text(PcieFacts(generation=4, width=4, best_generation=4, best_width=16))
    assert words == "PCIe 4.0 x4"
    assert "could use 16 lanes; it has 4" in hint


def test_a_slow_link_under_load_is_the_truth():
    words, hint = pcie_text(PcieFacts(generation=3, width=16, best_generation=4, best_width=16, under_load=True))
    assert (words, hint) == ("PCIe 3.0 x16", "It could reach PCIe 4.0 x16.")


def test_a_full_link_needs_no_hint():
    assert pcie_text(PcieFacts(generation=5, width=16, best_generation=5, best_width=16)) == ("PCIe 5.0 x16", "")
    assert pcie_text(PcieFacts()) == ("not reported", "")


def test_links_say_what_they_are_and_what_was_measured():
    assert "no direct copies (chipset not supported); measured 13 GB/s" in link_text(pair().links[0])
    nvlink = LinkFacts(first=0, second=1, nvlinks=18, nvlink_gb_s=450.0)
    assert link_text(nvlink) == "18 NVLink links, 450 GB/s each way"


def test_a_connection_s_rates_are_called_what_they_are():
    given = {"first": 0, "second": 1, "kind": "pcie_p2p", "gb_s": 22.4, "table_gb_s": 26.0, "measured": True}
    measured = EdgeFacts(**given, spec_gb_s=31.5)
    expected = measured.model_copy(update={"measured": False, "gb_s": 26.0})
    detour = measured.model_copy(update={"kind": "host_staged", "gb_s": 6.14})
    rates = [edge_rates_text(edge) for edge in (measured, expected, detour)]
    assert rates == ["32 GB/s, measured 22", "32 GB/s", "measured 6 GB/s"]
    assert edge_rates_text(detour.model_copy(update={"measured": False})) == "≈ 6.1 GB/s"
    assert "32 GB/s specified, 22 GB/s measured" in edge_text(measured)
    assert "about 26 GB/s expected" in edge_text(expected)
    assert "specified" not in edge_text(detour)
    assert "far from the 26 GB/s" in edge_text(detour)
    assert "GPU 0 and the host" in edge_text(measured.model_copy(update={"second": HOST, "kind": "pcie"}))


def test_what_several_gpus_would_use_is_listed_and_one_alone_needs_no_settings():
    shared = ParallelSettings(
        strategy="data_parallel", gpus=[0, 1], accumulation=4, compress=True, exchange_ms=35.4,
        environment={"NCCL_P2P_DISABLE": "1"}, reasons=[],
    )  # fmt: skip
    first, *others = settings_figures(shared)
    assert first[1:] == ("data parallel", "GPU 0, 1")
    assert [figure for _, figure, _ in others] == ["4 or more", "35", "bf16", "NCCL_P2P_DISABLE=1"]
    assert len(settings_figures(shared.model_copy(update={"strategy": "single", "gpus": [0]}))) == 1


def test_users_of_the_memory_are_named_up_to_a_few():
    users = [MemoryUser(pid=n, name=f"p{n}", bytes=2**30) for n in range(5)] + [MemoryUser(pid=77)]
    assert memory_users_text(users, 2) == "Used by p0 1.0 GiB, p1 1.0 GiB and 4 more"
    assert memory_users_text(users[-1:]) == "Used by process 77"
    assert memory_users_text([]) == ""


def test_the_answer_names_gpus_once():
    assert training_device_text(pair()) == "2 x NVIDIA GeForce RTX 4090"
    assert "processor" in training_device_text(machine())
    assert "does not answer" in training_device_text(machine(gpu_problem="NVML says no"))
    assert "shared with the system" in gpu_memory_text(gpu(unified_memory=True))


def test_sleep_is_only_mentioned_where_it_may_happen():
    assert "30 idle minutes" in sleep_text(machine(sleep_after_s=1800))
    assert sleep_text(machine(sleep_after_s=0)) == ""
    assert sleep_text(machine()) == ""
