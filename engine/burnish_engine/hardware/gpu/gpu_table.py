"""Looks up the rates of a GPU's memory and tensor cores in a table of datasheets, or estimates them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache

from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.paths import assets_dir

_WORDS_TO_DROP = {"nvidia", "geforce", "quadro", "tesla"}
_NO_TENSOR_CORES = re.compile(r"\b(gtx|mx\d+|t4\d\d|t5\d\d|t6\d\d|t1000|t1200|t2000)\b")
# Dense tensor FLOPs with fp32 accumulation per multiprocessor and clock, where it is the same for a whole generation:
# Volta and Turing 1024 (V100 and Turing whitepapers), A100 2048 (A100 whitepaper), Hopper 4096 (H100 whitepaper), and
# data-center Blackwell 8192 (B200: 2250 TFLOP/s over 148 multiprocessors at 1.86 GHz).
_PER_SM_CLOCK = {(7, 0): 1024, (7, 5): 1024, (8, 0): 2048, (8, 7): 1024, (9, 0): 4096, (10, 0): 8192, (10, 3): 8192}
_PROFESSIONAL_PER_SM_CLOCK = 1024  # GA10x, AD10x, GB20x; half of it on GeForce (whitepapers, appendix A)
_FP32_PER_SM_CLOCK = 128  # 64 multiply-adds: the least of all generations since Pascal's GP100
# When not even clocks are known: about an RTX 3050, the slowest card of compute capability 8.0 and later.
_UNKNOWN_BANDWIDTH_GB_S, _UNKNOWN_TFLOPS = 170.0, 13.0


@dataclass(frozen=True)
class GpuRates:
    """The peak rates of a GPU, as its maker states them.

    Attributes:
        bandwidth_gb_s: rate of device memory, 10^9 bytes/s.
        bf16_tflops: dense tensor-core rate with fp32 accumulation, 10^12 operations/s; for fp16 where `bf16` is False.
        bf16: whether the tensor cores take bf16 (compute capability 8.0 and later).
        source: origin of the numbers, for people.
        int8_rate: dense tensor-core rate in INT8, times `bf16_tflops`; that in MXFP8 is the same on RTX 50.
        multiprocessors: number of streaming multiprocessors; 0: not known.
    """

    bandwidth_gb_s: float
    bf16_tflops: float
    bf16: bool
    source: str
    int8_rate: float = 2.0
    multiprocessors: int = 0


@dataclass(frozen=True)
class GpuRow:
    """One row of the table.

    Attributes:
        name: name that the driver gives, without maker and brand.
        memory_gb: memory as sold, GB.
        rates: peak rates.
    """

    name: str
    memory_gb: float
    rates: GpuRates


@cache
def gpu_rows() -> tuple[GpuRow, ...]:
    """Read the whole table, `assets/gpus.toml`."""
    groups = tomllib.loads((assets_dir() / "gpus.toml").read_text(encoding="utf-8"))["group"]
    rows = []
    for group in groups:
        for name, memory, bandwidth, sms, clock in group.get("gpus", []):
            tflops = sms * clock * group["flops_per_sm_clock"] / 1e6
            rows.append((group, name, memory, bandwidth, sms, tflops))
        rows += [(group, *row) for row in group.get("gpus_tflops", [])]
    return tuple(
        GpuRow(
            name,
            memory,
            GpuRates(
                bandwidth,
                tflops,
                group.get("bf16", True),
                group["source"],
                _int8_rate(group.get("flops_per_sm_clock", 0)),
                sms,
            ),
        )
        for group, name, memory, bandwidth, sms, tflops in rows
    )


@cache
def normal_name(name: str) -> str:
    """Normalize a GPU's name: without maker, brand, case and punctuation, so that spellings of one card are equal."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return " ".join(word for word in words if word not in _WORDS_TO_DROP)


def short_name(name: str) -> str:
    """Shorten a GPU's name for people: without maker and brand, such as "RTX 4060 Laptop GPU"."""
    return " ".join(word for word in name.split() if word.lower() not in _WORDS_TO_DROP) or name


def gpu_rates(gpu: GpuFacts) -> GpuRates:
    """Find a GPU's peak rates in the table by name (and memory, where a name was sold with several), or estimate them.

    The estimate goes by multiprocessors, clocks and bus width. Values that the driver does not tell are those of the
    slowest card in use, so that predictions are rather too slow than too fast.
    """
    wanted = normal_name(gpu.name)
    rows = [row for row in gpu_rows() if normal_name(row.name) == wanted]
    if rows:
        memory_gb = gpu.vram_total_bytes / 2**30
        return min(rows, key=lambda row: abs(row.memory_gb - memory_gb)).rates
    return _estimate(gpu)


def _estimate(gpu: GpuFacts) -> GpuRates:
    bandwidth, tflops = _UNKNOWN_BANDWIDTH_GB_S, _UNKNOWN_TFLOPS
    missing = []
    if gpu.memory_clock_mhz and gpu.memory_bus_bits:
        # NVML counts the memory clock so that two transfers a cycle give the datasheet's rate: 10501 MHz x 384 bit
        # on an RTX 4090 are its 1008 GB/s, 2619 MHz x 5120 bit on an H100 its 3352 GB/s.
        bandwidth = gpu.memory_clock_mhz * 1e6 * 2 * gpu.memory_bus_bits / 8 / 1e9
    else:
        missing.append("memory")
    if gpu.multiprocessors and gpu.best_clock_mhz:
        tflops = gpu.multiprocessors * gpu.best_clock_mhz * _per_sm_clock(gpu) / 1e6
    else:
        missing.append("compute")
    source = "estimated from multiprocessors, clocks and bus width"
    if missing:
        source = f"guessed low ({' and '.join(missing)}): the driver does not tell enough"
    bf16, int8_rate = (gpu.compute_capability or (0, 0)) >= (8, 0), _int8_rate(_per_sm_clock(gpu))
    return GpuRates(bandwidth, tflops, bf16, source, int8_rate, gpu.multiprocessors or 0)


def _int8_rate(per_sm_clock: int) -> float:
    """The rate in INT8 over that in bf16: twice, but GeForce halves only that with fp32 accumulation."""
    return 4.0 if per_sm_clock == _PROFESSIONAL_PER_SM_CLOCK // 2 else 2.0


def _per_sm_clock(gpu: GpuFacts) -> int:
    capability = gpu.compute_capability or (0, 0)
    name = normal_name(gpu.name)
    if capability < (7, 0) or _NO_TENSOR_CORES.search(name):
        return _FP32_PER_SM_CLOCK
    per_clock = _PER_SM_CLOCK.get(capability, _PROFESSIONAL_PER_SM_CLOCK)
    halved = ("geforce" in gpu.name.lower() and capability != (7, 0)) or capability == (12, 1)  # (12, 1): GB10
    return per_clock // 2 if halved else per_clock
