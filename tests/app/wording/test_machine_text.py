from app.facts.machine_facts import gpu, machine, pair

from burnish_app.wording.machine_text import (
    gpu_memory_text,
    link_text,
    memory_users_text,
    pcie_text,
    sleep_text,
    training_device_text,
)
from burnish_engine.contract.facts.machine import LinkFacts, MemoryUser, PcieFacts


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
