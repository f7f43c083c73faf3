"""Recordings of the hardware: the one in tests/golden, and made-up ones of machines that nobody here has."""

import math
import random
from functools import reduce
from pathlib import Path

from burnish_engine.contract.facts.hardware import (
    GpuHolders,
    GpuSample,
    HardwareSample,
    HardwareStart,
    MemoryHolder,
    MemoryUsers,
    SampledGpu,
    parse_hardware_line,
)
from burnish_engine.contract.run.hardware_log import HardwareHistory, fold_line

GIB = 2**30
T = 1.7e9
RECORDED = Path(__file__).resolve().parents[2] / "golden" / "hardware" / "h100.jsonl"


def history_of(lines):
    """The history of a recording's lines."""
    return reduce(fold_line, lines, HardwareHistory())


def recorded():
    """the lines of the recording: eight minutes of a run on one card."""
    return [parse_hardware_line(line) for line in RECORDED.read_bytes().splitlines()]


def made_up(gpus=1, seconds=600, *, name="NVIDIA GeForce RTX 4090", total=24 * GIB, others=1.2, filled=0, spilled=0.0):
    """Lines of a machine that idles for a minute and then trains: a warm-up, two minutes of heat, a power limit.

    Args:
        gpus: number of GPUs.
        seconds: number of samples.
        name: name of the GPUs.
        total: memory of each, bytes.
        others: GiB that other programs hold.
        filled: last seconds in which another program fills the card.
        spilled: GiB in system memory in those seconds.
    """
    chance, warmth = random.Random(3), 45.0
    facts = [
        SampledGpu(
            index=index, name=name, memory_total_bytes=total, power_limit_w=450, best_clock_mhz=2520, slowdown_c=90,
            best_pcie_generation=4, best_pcie_width=16,
        )
        for index in range(gpus)
    ]  # fmt: skip
    yield HardwareStart(t=T, pid=1, gpus=facts, ram_total_bytes=64 * GIB)
    holders = [
        MemoryHolder(pid=1, name="python", bytes=int(17.9 * GIB), ours=True),
        MemoryHolder(pid=2, name="firefox", bytes=int(others * 0.7 * GIB)),
        MemoryHolder(pid=3, name="Xorg", bytes=int(others * 0.3 * GIB)),
    ]
    if gpus:
        yield MemoryUsers(t=T, gpus=[GpuHolders(index=index, holders=holders) for index in range(gpus)])
    for second in range(1, seconds + 1):
        busy, hot, full = second > 60, 300 < second < 420, second > seconds - filled
        warmth += ((84 if hot else 74 if busy else 45) - warmth) * 0.03
        values = []
        for index in range(gpus):
            ours = int(17.9 * GIB * min(max((second - 60) / 15, 0), 1))
            theirs = total - ours - GIB // 4 if full else int(others * GIB)
            throttle = {"heat": 1.0} if hot else {"power_limit": 1.0} if busy and chance.random() < 0.4 else {}
            values.append(
                GpuSample(
                    index=index, used_bytes=ours + theirs, ours_bytes=ours,
                    spilled_bytes=int(spilled * GIB) if full and spilled else None,
                    load=round((0.96 if busy else 0.01) + 0.03 * chance.random(), 2),
                    temperature_c=round(warmth + index),
                    power_w=round((405 if busy else 31) + 30 * chance.random(), 1),
                    clock_mhz=2175 if hot else 2520 - chance.randrange(45) if busy else 210, memory_clock_mhz=10_501,
                    fan=0.62 if busy else 0.3, throttle=throttle if busy else {"idle": 1.0},
                    to_gpu_gb_s=round(2.2 * chance.random(), 2) if busy else 0.0,
                    from_gpu_gb_s=round(0.6 * chance.random(), 2) if busy else 0.0,
                    pcie_generation=4 if busy else 1, pcie_width=16,
                )
            )  # fmt: skip
        yield HardwareSample(
            t=T + second, seconds=1.0, cpu=round(0.2 + 0.1 * math.sin(second / 20), 3), ram_used_bytes=18 * GIB,
            process_bytes=5 * GIB, gpus=values,
        )  # fmt: skip
