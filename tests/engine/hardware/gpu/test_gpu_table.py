"""The table of GPUs gives the datasheets' figures; a GPU it does not know is estimated, low rather than high."""

import pytest

from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.hardware.gpu.gpu_table import gpu_rates, gpu_rows, normal_name, short_name


def gpu(name, memory_gib=0, **facts):
    return GpuFacts(index=0, name=name, vram_total_bytes=memory_gib * 2**30, **facts)


@pytest.mark.parametrize(
    ("name", "memory", "bandwidth", "tflops"),
    [
        # Dense with fp32 accumulation, as printed in the whitepapers and datasheets.
        ("NVIDIA GeForce RTX 2080 Ti", 11, 616, 53.8),
        ("NVIDIA TITAN RTX", 24, 672, 130.5),
        ("Quadro RTX 8000", 48, 672, 130.5),
        ("Tesla T4", 16, 320, 65),
        ("NVIDIA GeForce RTX 3080", 10, 760, 59.5),
        ("NVIDIA GeForce RTX 3090", 24, 936, 71),
        ("NVIDIA GeForce RTX 3090 Ti", 24, 1008, 80),
        ("NVIDIA RTX A6000", 48, 768, 154.8),
        ("NVIDIA A10", 24, 600, 125),
        ("NVIDIA A100-SXM4-80GB", 80, 2039, 312),
        ("NVIDIA GeForce RTX 4080", 16, 717, 97.5),
        ("NVIDIA GeForce RTX 4090", 24, 1008, 165.2),
        ("NVIDIA RTX 6000 Ada Generation", 48, 960, 364.2),
        ("NVIDIA L4", 23, 300, 121),
        ("NVIDIA L40S", 45, 864, 362),
        ("NVIDIA H100 80GB HBM3", 80, 3352, 989),
        ("NVIDIA H200", 140, 4800, 989),
        ("NVIDIA B200", 179, 7700, 2250),
        ("NVIDIA GeForce RTX 5080", 16, 960, 112.6),
        ("NVIDIA GeForce RTX 5090", 32, 1792, 209.5),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 95, 1792, 503.8),
    ],
)
def test_printed_figures(name, memory, bandwidth, tflops):
    rates = gpu_rates(gpu(name, memory))
    assert rates.bandwidth_gb_s == bandwidth
    assert rates.bf16_tflops == pytest.approx(tflops, rel=0.006)
    assert "estimated" not in rates.source


def known(name, capability, sms, clock, memory_clock, bus):
    return gpu(
        name, compute_capability=capability, multiprocessors=sms, best_clock_mhz=clock, memory_clock_mhz=memory_clock,
        memory_bus_bits=bus,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "tops"),
    [
        (gpu("NVIDIA GeForce RTX 3090", 24), 284),
        (gpu("NVIDIA GeForce RTX 4090", 24), 660),
        (gpu("NVIDIA GeForce RTX 5090", 32), 838),
        (gpu("NVIDIA L40S", 45), 733),
        (gpu("NVIDIA A100-SXM4-80GB", 80), 624),
        (gpu("NVIDIA H100 80GB HBM3", 80), 1979),
        (known("NVIDIA GeForce RTX 4091", (8, 9), 128, 2520, 10501, 384), 660),
        (known("NVIDIA RTX 6001 Ada", (8, 9), 142, 2505, 10001, 384), 728),
    ],
)
def test_rates_in_int8_are_the_makers(facts, tops):
    """Twice those in bf16, of which GeForce has half."""
    rates = gpu_rates(facts)
    assert rates.bf16_tflops * rates.int8_rate == pytest.approx(tops, rel=0.015)


def test_a_name_sold_with_several_memories_is_told_apart_by_memory():
    small, large = gpu_rates(gpu("NVIDIA GeForce RTX 3060", 8)), gpu_rates(gpu("NVIDIA GeForce RTX 3060", 12))
    assert (small.bandwidth_gb_s, large.bandwidth_gb_s) == (240, 360)


def test_a_laptop_gpu_is_not_its_desktop_namesake():
    laptop = gpu_rates(gpu("NVIDIA GeForce RTX 4090 Laptop GPU", 16))
    assert laptop.bandwidth_gb_s == 576
    assert laptop.bf16_tflops < 0.6 * gpu_rates(gpu("NVIDIA GeForce RTX 4090", 24)).bf16_tflops


def test_turing_has_no_bf16():
    assert not gpu_rates(gpu("NVIDIA GeForce RTX 2080 Ti", 11)).bf16
    assert gpu_rates(gpu("NVIDIA GeForce RTX 3060", 12)).bf16


@pytest.mark.parametrize(
    ("facts", "bandwidth", "tflops"),
    [
        # What the driver says of cards in the table, under a name that is not in it.
        (known("NVIDIA GeForce RTX 4091", (8, 9), 128, 2520, 10501, 384), 1008, 165.2),
        (known("NVIDIA GeForce RTX 3091", (8, 6), 82, 1695, 9751, 384), 936, 71.2),
        (known("NVIDIA RTX 6001 Ada", (8, 9), 142, 2505, 10001, 384), 960, 364.2),
        (known("NVIDIA H101", (9, 0), 132, 1830, 2619, 5120), 3352, 989),
        (known("NVIDIA GeForce GTX 1080 Ti", (6, 1), 28, 1911, 5505, 352), 484, 6.8),
    ],
)
def test_an_unknown_gpu_is_estimated_from_what_the_driver_says(facts, bandwidth, tflops):
    rates = gpu_rates(facts)
    assert rates.bandwidth_gb_s == pytest.approx(bandwidth, rel=0.01)
    assert rates.bf16_tflops == pytest.approx(tflops, rel=0.01)
    assert "estimated" in rates.source


def test_a_gpu_of_which_nothing_is_known_is_slower_than_any_in_the_table():
    rates = gpu_rates(gpu("NVIDIA Mystery"))
    assert "guessed low" in rates.source
    with_bf16 = [row.rates for row in gpu_rows() if row.rates.bf16]
    assert rates.bf16_tflops <= min(row.bf16_tflops for row in with_bf16)


def test_rows_are_complete_and_no_two_are_the_same():
    rows = gpu_rows()
    keys = [(normal_name(row.name), row.memory_gb) for row in rows]
    assert len(set(keys)) == len(keys)
    for row in rows:
        assert row.rates.source
        assert 0 < row.memory_gb < 300
        assert 100 < row.rates.bandwidth_gb_s < 10000
        assert 10 < row.rates.bf16_tflops < 3000


def test_names_for_people():
    assert short_name("NVIDIA GeForce RTX 4060 Laptop GPU") == "RTX 4060 Laptop GPU"
    assert short_name("NVIDIA") == "NVIDIA"
