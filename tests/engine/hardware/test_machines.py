"""Recorded machines (tests/golden/machines): the facts and the advice that an expert would give for each."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from burnish_engine.contract.facts.machine import HOST
from burnish_engine.hardware.checkup import driver_problem_text
from burnish_engine.hardware.gpu.gpu_table import gpu_rates
from burnish_engine.hardware.gpu.interconnect import parallel_settings
from burnish_engine.hardware.gpu.topology import topology
from burnish_engine.hardware.notes import notes

from support.machines.replay import load, replay

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "machines"
RECORDED = sorted(path.stem for path in FOLDER.glob("*.json"))
GIB = 2**30


@dataclass
class Expected:
    """What must come out. `facts` are of GPU 0; (low, high) are bounds; `words` must each be in one of the notes."""

    gpus: int
    facts: dict = field(default_factory=dict)
    pcie: tuple = ()  # best generation, best width, and bounds of GB/s to the host
    bandwidth_gb_s: float = 0
    bf16_tflops: float = 0
    link: dict = field(default_factory=dict)
    advice: dict = field(default_factory=dict)
    words: tuple = ()
    never: tuple = ()
    problem: str = ""
    remedy: str = ""


SINGLE = {"strategy": "single", "gpus": [0], "environment": {}}
H100 = {
    "name": "NVIDIA H100 80GB HBM3", "compute_capability": (9, 0), "multiprocessors": 132,
    "vram_total_bytes": (79 * GIB, 80.5 * GIB), "unified_memory": False, "memory_bus_bits": 5120,
}  # fmt: skip
H200 = {
    "name": "NVIDIA H200",
    "compute_capability": (9, 0),
    "vram_total_bytes": (138 * GIB, 142 * GIB),
    "multiprocessors": 132,
    "unified_memory": False,
    "memory_bus_bits": (5120, 6144),
}
EXPECTED = {
    "laptop_4060": Expected(
        gpus=1,
        facts={
            "name": "NVIDIA GeForce RTX 4060 Laptop GPU",
            "compute_capability": (8, 9),
            "multiprocessors": 24,
            "vram_free_bytes": (6.5 * GIB, 7 * GIB),
            "display": True,
            "power_limit_w": 80,
        },
        pcie=(4, 8, (11.5, 12.5)),
        bandwidth_gb_s=256,
        bf16_tflops=29.1,
        advice=SINGLE,
        words=("chrome.exe", "does not say how much", "30 min without use", "A screen hangs on GPU 0", "charger"),
        never=("even under load", "container", "devices.gpus"),
    ),
    "desktop_4060": Expected(
        gpus=1,
        facts={"multiprocessors": 24, "vram_free_bytes": (6 * GIB, 6.3 * GIB), "temperature_c": 38, "mig": None},
        pcie=(4, 8, (11.5, 12.5)),
        bandwidth_gb_s=272,
        bf16_tflops=30.2,
        advice=SINGLE,
        words=("chrome holds 1.1 GiB of GPU 0", "Xorg holds 0.35 GiB", "A screen hangs", "--bandwidth"),
        never=("gnome-shell", "without use", "charger", "even under load"),
    ),
    "pair_4090": Expected(
        gpus=2,
        facts={"multiprocessors": 128, "memory_bus_bits": 384, "display": False},
        pcie=(4, 8, (11.5, 12.5)),
        bandwidth_gb_s=1008,
        bf16_tflops=165.2,
        link={
            "kind": "host_staged", "nvlinks": 0, "p2p_read": False, "p2p_problem": "GPU not supported",
            "common_ancestor": "hostbridge", "gb_s": (5, 7),
        },
        advice={
            "strategy": "data_parallel", "gpus": [0, 1], "environment": {},
            "compress": False, "exchange_ms": (24, 34),
        },
        words=("burnish train RECIPE --gpus 2", "--bandwidth"),
        never=("holds", "devices.gpus"),
    ),
    "pair_4090_old_driver": Expected(
        gpus=2,
        facts={"compute_capability": (8, 9)},
        pcie=(4, 16, (23, 25)),
        bandwidth_gb_s=1008,
        bf16_tflops=165.2,
        link={"kind": "host_staged", "p2p_read": True, "gb_s": (5, 7)},
        advice={
            "strategy": "data_parallel", "gpus": [0, 1],
            "environment": {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"},
        },
    ),
    "pair_3090_nvlink": Expected(
        gpus=2,
        facts={"compute_capability": (8, 6), "multiprocessors": 82},
        pcie=(4, 8, (11.5, 12.5)),
        bandwidth_gb_s=936,
        bf16_tflops=71.2,
        link={"kind": "nvlink", "nvlinks": 4, "nvlink_gb_s": 56.25, "p2p_write": True, "gb_s": (44, 46)},
        advice={
            "strategy": "data_parallel", "gpus": [0, 1], "accumulation": 1,
            "environment": {}, "exchange_ms": (4.2, 5.2),
        },
        words=("burnish train RECIPE --gpus 2",),
    ),
    "pair_3090_windows": Expected(
        gpus=2,
        facts={"display": True},
        pcie=(4, 8, (11.5, 12.5)),
        bandwidth_gb_s=936,
        bf16_tflops=71.2,
        link={"kind": "host_staged", "common_ancestor": None, "p2p_read": False},
        advice={"strategy": "single", "gpus": [1], "environment": {}},
        words=("GPU 1 (RTX 3090) has 0.49 GiB more memory free: set devices.gpus = [1]",),
        never=("--gpus",),
    ),
    "unlike_3060_4090": Expected(
        gpus=2,
        facts={"name": "NVIDIA GeForce RTX 3060", "vram_total_bytes": 12 * GIB},
        pcie=(4, 16, (23, 25)),
        bandwidth_gb_s=360,
        bf16_tflops=25.5,
        link={"kind": "host_staged"},
        advice={"strategy": "single", "gpus": [1]},
        words=("GPU 1 (RTX 4090) is the faster one: set devices.gpus = [1]", "Xorg holds 0.59 GiB"),
    ),
    "single_5090": Expected(
        gpus=1,
        facts={"compute_capability": (12, 0), "multiprocessors": 170, "memory_bus_bits": 512},
        pcie=(5, 16, (47, 49)),
        bandwidth_gb_s=1792,
        bf16_tflops=209.5,
        advice=SINGLE,
        words=("A screen hangs",),
        never=("even under load",),
    ),
    "unified_gb10": Expected(
        gpus=1,
        facts={
            "unified_memory": True, "vram_total_bytes": 119 * GIB, "vram_free_bytes": 104 * GIB, "pcie": None,
            "compute_capability": (12, 1), "multiprocessors": 48, "power_limit_w": None, "memory_bus_bits": None,
        },
        bandwidth_gb_s=273,
        bf16_tflops=61.9,
        advice=SINGLE,
        words=("ollama holds 2.8 GiB", "shares the system's 119 GiB"),
        never=("--bandwidth",),
    ),
    "no_gpu": Expected(gpus=0, advice={"strategy": "single", "gpus": []}, words=("20 min without use",)),
    "driver_mismatch": Expected(
        gpus=0, problem="NVML/RM version mismatch", remedy="restart the computer", advice={"gpus": []}
    ),
    "driver_not_loaded": Expected(gpus=0, problem="Driver Not Loaded", remedy="Secure Boot", advice={"gpus": []}),
    "library_missing": Expected(gpus=0, problem="Library Not Found", remedy="install it", advice={"gpus": []}),
    # Recorded on real machines.
    "h100": Expected(gpus=1, facts=H100, bandwidth_gb_s=3352, bf16_tflops=989, advice=SINGLE),
    "h100x4": Expected(
        gpus=4,
        facts=H100,
        pcie=(5, 16, (47, 49)),
        bandwidth_gb_s=3352,
        bf16_tflops=989,
        link={
            "kind": "nvlink", "nvlinks": 18, "nvlink_gb_s": 450, "common_ancestor": "hostbridge", "p2p_read": True,
            "gb_s": (300, 450),
        },
        advice={
            "strategy": "data_parallel", "gpus": [0, 1, 2, 3], "accumulation": 1, "compress": False,
            "environment": {}, "exchange_ms": (0.7, 1.0),
        },
        words=("burnish train RECIPE --gpus 4", "--bandwidth"),
    ),
    "h200x1": Expected(gpus=1, facts=H200, bandwidth_gb_s=4800, bf16_tflops=989, advice=SINGLE),
    "h200x2": Expected(
        gpus=2,
        facts=H200,
        bandwidth_gb_s=4800,
        bf16_tflops=989,
        link={"kind": "nvlink", "nvlinks": 18, "nvlink_gb_s": 450, "gb_s": (300, 450)},
        advice={
            "strategy": "data_parallel", "gpus": [0, 1], "accumulation": 1,
            "environment": {}, "exchange_ms": (0.3, 0.7),
        },
    ),
    "h200x4": Expected(
        gpus=4,
        facts=H200,
        bandwidth_gb_s=4800,
        bf16_tflops=989,
        link={"kind": "nvlink", "nvlinks": 18, "nvlink_gb_s": 450, "gb_s": (300, 450)},
        advice={
            "strategy": "data_parallel", "gpus": [0, 1, 2, 3], "accumulation": 1,
        },
    ),
}  # fmt: skip
REAL = {"h100", "h100x4", "h200x1", "h200x2", "h200x4"}


def agrees(actual, expected):
    if isinstance(expected, tuple) and len(expected) == 2 and isinstance(actual, int | float):
        return expected[0] <= actual <= expected[1]
    if isinstance(expected, float):
        return actual == pytest.approx(expected, rel=1e-3)
    return actual == expected


def compare(thing, expected):
    for name, value in expected.items():
        actual = getattr(thing, name)
        assert agrees(actual, value), f"{name}: {actual}, expected {value}"


@pytest.fixture(params=RECORDED)
def name(request):
    return request.param


@pytest.fixture
def machine(name):
    return replay(load(FOLDER / f"{name}.json"))


def test_every_constructed_machine_is_there_and_says_where_it_comes_from():
    assert set(EXPECTED) - REAL <= set(RECORDED)
    for name in RECORDED:
        recording = load(FOLDER / f"{name}.json")
        assert recording["constructed"] is (name not in REAL)
        assert bool(recording["note"]) or name in REAL


def test_facts(name, machine):
    expected = EXPECTED[name]
    assert len(machine.gpus) == expected.gpus
    assert machine.ram_total_bytes > machine.ram_free_bytes > 0
    if expected.gpus:
        gpu = machine.gpus[0]
        compare(gpu, expected.facts)
        rates = gpu_rates(gpu)
        assert (rates.bandwidth_gb_s, round(rates.bf16_tflops, 1)) == (expected.bandwidth_gb_s, expected.bf16_tflops)
        assert rates.bf16
        assert machine.driver
        assert machine.driver_cuda


def test_the_way_to_the_host(name, machine):
    expected = EXPECTED[name]
    if not expected.pcie:
        pytest.skip("not described")
    generation, width, rate = expected.pcie
    compare(machine.gpus[0].pcie, {"best_generation": generation, "best_width": width, "under_load": False})
    assert agrees(topology(machine).between(0, HOST).gb_s, rate)


def test_links(name, machine):
    expected = EXPECTED[name].link
    assert len(machine.links) == len(machine.gpus) * (len(machine.gpus) - 1) // 2
    if expected:
        facts = {key: value for key, value in expected.items() if key not in {"kind", "gb_s"}}
        for link in machine.links:
            compare(link, facts)
            edge = topology(machine).between(link.first, link.second)
            compare(edge, {key: value for key, value in expected.items() if key in {"kind", "gb_s"}})


def test_advice(name, machine):
    advice = parallel_settings(machine)
    compare(advice, EXPECTED[name].advice)
    assert all(reason.endswith(".") and len(reason) > 20 for reason in advice.reasons)
    assert advice.reasons
    if advice.strategy != "single":
        assert advice.exchange_ms > 0
        assert any("GB/s" in reason for reason in advice.reasons)


def test_notes(name, machine):
    expected = EXPECTED[name]
    found = notes(machine, parallel_settings(machine))
    for word in expected.words:
        assert any(word in note for note in found), f"{word!r} is in none of {found}"
    for word in expected.never:
        assert not any(word in note for note in found), f"{word!r} is in one of {found}"


def test_what_is_broken_is_named_with_what_helps(name, machine):
    expected = EXPECTED[name]
    if not expected.problem:
        assert machine.gpu_problem is None
    else:
        assert expected.problem in machine.gpu_problem
        assert expected.remedy in driver_problem_text(machine.gpu_problem)
