"""Machines elsewhere, from what hosts print and services list."""

import pytest

from burnish_engine.remote.backends.machines import find_card, host_machine, service_machine


@pytest.mark.parametrize(
    ("name", "memory", "found"),
    [
        ("T4", 16, "T4"),
        ("a100", 0, "A100"),
        ("A100-80GB", 0, "A100"),
        ("L40S", 48, "L40S"),
        ("Nvidia A10G", 24, "A10G"),
        ("H200", 141, "H200"),
        ("RTX 4090", 24, "RTX 4090"),
        ("RTX-PRO-6000", 96, "RTX PRO 6000"),
        ("MI300X", 192, None),
    ],
)
def test_cards_are_found_by_the_names_of_services(name, memory, found):
    row = find_card(name, memory)
    assert (row is None) == (found is None)
    assert row is None or row.name.startswith(found)


def test_memory_tells_cards_of_one_name_apart():
    assert find_card("A100", 40).memory_gb == 40
    assert find_card("A100", 80).memory_gb == find_card("A100-80GB").memory_gb == 80


def test_a_host_says_what_it_has():
    gpu = "gpu=NVIDIA GeForce RTX 4090, 24564, 24000, 8.9\n"
    machine = host_machine(gpu + "cores=16\nram=65536000\nfree=60000000\ndisk=1000000\nos=Linux\n")
    assert (machine.gpus[0].compute_capability, machine.gpus[0].vram_free_bytes) == ((8, 9), 24000 * 2**20)
    assert (machine.cpu_cores, machine.ram_free_bytes, machine.disk_free_bytes) == (16, 60000000 * 1024, 1024000000)


def test_a_host_without_a_card_trains_on_its_processor():
    machine = host_machine("gpu=nvidia-smi has failed\ncores=8\nos=Linux\n")
    assert machine.gpus == []
    assert machine.ram_free_bytes


def test_a_service_without_a_known_card_is_guessed_low():
    machine = service_machine("Unheard 9000", 2, memory_gib=24)
    assert len(machine.gpus) == 2
    assert machine.gpus[1].vram_total_bytes == 24 * 2**30
