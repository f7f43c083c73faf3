"""Machines elsewhere, from what hosts print and services list."""

import pytest

from burnish_engine.hardware.gpu.topology import topology
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


CARDS = "".join("gpu=NVIDIA GeForce RTX 3090, 24576, 24000, 8.6, 4, 16\n" for _ in range(3))
REST = "cores=16\nram=65536000\nfree=60000000\ndisk=1000000\nos=Linux\n"


def table(name, *rows):
    """A table of `nvidia-smi topo`, whose head is underlined."""
    head = "".join(f"\t\x1b[4mGPU{number}" for number in range(len(rows))) + "\tCPU Affinity\tNUMA Affinity\x1b[0m"
    cells = [f"GPU{number}\t" + "\t".join(row.split()) + "\t0-15\t0" for number, row in enumerate(rows)]
    return "".join(f"{name}={line}\n" for line in (head, *cells, "", "Legend:", "", "  X    = Self"))


def test_a_host_says_how_its_cards_are_connected():
    paths = table("path", "X NV4 SYS", "NV4 X PHB", "SYS PHB X")
    reads = table("read", "X OK CNS", "OK X OK", "CNS OK X")
    machine = host_machine(CARDS + paths + reads + REST)
    linked, apart, bridged = machine.links
    assert (linked.nvlinks, linked.nvlink_gb_s, linked.p2p_read) == (4, 4 * 14.0625, True)
    assert (apart.nvlinks, apart.common_ancestor, apart.p2p_read) == (0, "system", False)
    assert apart.p2p_problem
    kinds = {(edge.first, edge.second): (edge.kind, edge.gb_s) for edge in topology(machine).edges}
    assert kinds[0, 1] == ("nvlink", pytest.approx(45.0))
    assert kinds[0, 2][0] == "host_staged"
    assert kinds[1, 2] == ("pcie_p2p", pytest.approx(0.76 * 1.969 * 16))
    assert bridged.common_ancestor == "hostbridge"
    assert machine.cpu_cores == 16


def test_an_old_driver_that_tells_no_links_leaves_them_unknown():
    machine = host_machine(CARDS + "path=Invalid argument\n" + REST)
    assert (len(machine.gpus), machine.links) == (3, [])
