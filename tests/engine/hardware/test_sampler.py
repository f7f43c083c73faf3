"""Samples of a machine, against a driver that answers as the test says."""

import os

import pytest

from burnish_engine.contract.facts.hardware import HardwareSample, MemoryUsers
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.hardware.sampler import HardwareSampler

from support.machines.fake_nvml import GIB, FakeNvml
from support.machines.made_up import cpu_machine, gpu_machine

FULL = {
    "used": 20 * GIB, "load": 97, "temperature": 71, "energy": 1_000_000, "power": 250_000, "clock": 2505,
    "memory_clock": 10_501, "fan": 62, "reasons": 0x4, "rx": 1_500_000, "tx": 250_000, "generation": 4, "width": 16,
    "processes": [(os.getpid(), 18 * GIB), (77, GIB)],
}  # fmt: skip


class Clock:
    """Monotonic and wall-clock time, which move when a test says so."""

    def __init__(self):
        self.seconds, self.wall = 100.0, 1.7e9

    def go(self, seconds):
        self.seconds += seconds
        self.wall += seconds


def sampler_of(nvml, clock, *, own=None, only=None, count=None, **facts):
    machine = gpu_machine("NVIDIA GeForce RTX 4090", 24 * GIB, count=count or max(len(nvml.gpus), 1))
    gpus = [
        gpu.model_copy(update={"uuid": f"GPU-{gpu.index}", "power_limit_w": 450.0, **facts}) for gpu in machine.gpus
    ]
    return HardwareSampler(
        only, own=own, machine=machine.model_copy(update={"gpus": gpus}), nvml=nvml, clock=lambda: clock.seconds,
        now=lambda: clock.wall, name_of=lambda pid: f"program {pid}",
    )  # fmt: skip


def sample_of(sampler):
    return next(line for line in sampler.sample() if isinstance(line, HardwareSample))


def test_a_sample_has_what_the_driver_tells():
    clock, nvml = Clock(), FakeNvml(dict(FULL))
    sampler = sampler_of(nvml, clock)
    nvml.gpus[0]["energy"] += 318_000
    clock.go(1.0)
    sample = sample_of(sampler)
    (gpu,) = sample.gpus
    assert (sample.seconds, sample.t) == (1.0, 1.7e9 + 1)
    assert (gpu.used_bytes, gpu.ours_bytes, gpu.others_bytes) == (20 * GIB, 18 * GIB, 2 * GIB)
    assert (gpu.load, gpu.temperature_c, gpu.fan) == (0.97, 71, 0.62)
    assert (gpu.clock_mhz, gpu.memory_clock_mhz) == (2505, 10_501)
    assert (gpu.to_gpu_gb_s, gpu.from_gpu_gb_s) == (1.5, 0.25)
    assert (gpu.pcie_generation, gpu.pcie_width) == (4, 16)
    assert gpu.throttle == {"power_limit": 1.0}
    assert gpu.power_w == 318.0  # by the energy counter, not the 250 W of this moment


def test_the_driver_s_reasons_are_taken_apart():
    clock, nvml = Clock(), FakeNvml({**FULL, "reasons": 0x1 | 0x20 | 0x40 | 0x200})
    assert set(sample_of(sampler_of(nvml, clock)).gpus[0].throttle) == {"idle", "heat", "hardware_heat"}


@pytest.mark.parametrize("energy", [None, 5, 9e12], ids=["no counter", "it went back", "it jumped"])
def test_without_a_counter_to_trust_the_power_now_counts(energy):
    clock, nvml = Clock(), FakeNvml(dict(FULL))
    if energy is None:
        del nvml.gpus[0]["energy"]
    sampler = sampler_of(nvml, clock)
    if energy is not None:
        nvml.gpus[0]["energy"] = energy
    clock.go(1.0)
    assert sample_of(sampler).gpus[0].power_w == 250.0


def test_the_mean_power_of_a_longer_interval():
    clock, nvml = Clock(), FakeNvml(dict(FULL))
    sampler = sampler_of(nvml, clock)
    nvml.gpus[0]["energy"] += 900_000
    clock.go(3.0)
    sample = sample_of(sampler)
    assert sample.gpus[0].power_w * sample.seconds == 900.0


def test_a_driver_that_tells_little_leaves_the_rest_out():
    sample = sample_of(sampler_of(FakeNvml({"used": GIB}), Clock()))
    assert sample.gpus[0].model_dump(exclude_none=True) == {"index": 0, "used_bytes": GIB, "ours_bytes": 0,
                                                            "throttle": {}}  # fmt: skip


def test_a_lost_card_takes_only_its_own_values():
    nvml = FakeNvml(dict(FULL))
    sampler = sampler_of(nvml, Clock())
    nvml.broken = True
    sample = sample_of(sampler)
    assert sample.gpus[0].used_bytes is None
    assert sample.ram_used_bytes


def test_a_machine_without_a_gpu_is_sampled_too():
    clock = Clock()
    sampler = HardwareSampler(machine=cpu_machine(), clock=lambda: clock.seconds, now=lambda: clock.wall)
    assert sampler.start().t == 1.7e9
    clock.go(1.0)
    sample = sample_of(sampler)
    assert sample.t == 1.7e9 + 1
    assert sample.gpus == []
    assert 0 <= sample.cpu <= 1
    assert sample.process_bytes > 10 * 2**20
    assert sampler.start().ram_total_bytes > sample.ram_used_bytes > sample.process_bytes


def test_only_the_run_s_gpus():
    sampler = sampler_of(FakeNvml(dict(FULL), dict(FULL)), Clock(), only=[1])
    assert [gpu.index for gpu in sampler.start().gpus] == [1]
    assert [gpu.index for gpu in sample_of(sampler).gpus] == [1]


def test_holders_are_told_when_they_change():
    nvml = FakeNvml(dict(FULL))
    sampler = sampler_of(nvml, Clock())

    def told():
        return [line for line in sampler.sample() if isinstance(line, MemoryUsers)]

    (first,) = told()
    assert [(holder.name, holder.ours) for holder in first.gpus[0].holders] == [
        (f"program {os.getpid()}", True), ("program 77", False),
    ]  # fmt: skip
    nvml.gpus[0]["processes"] = [(os.getpid(), 18 * GIB + 2**20), (77, GIB)]
    assert told() == []
    nvml.gpus[0]["processes"] = [(os.getpid(), 18 * GIB), (77, 2 * GIB)]
    assert [holder.bytes for holder in told()[0].gpus[0].holders] == [18 * GIB, 2 * GIB]
    nvml.gpus[0]["processes"] = [(77, 2 * GIB)]
    assert len(told()[0].gpus[0].holders) == 1


class Own:
    """A run that knows its memory where the driver lists other process ids."""

    def __init__(self, held, spilled=None):
        self.held, self.spilled = held, spilled

    def pids(self):
        return [4]

    def owns(self, pid):
        return pid == 4

    def held_bytes(self, gpu):
        return self.held

    def spilled_bytes(self, gpu):
        return self.spilled


def test_in_a_container_the_holder_of_what_we_hold_is_ours():
    nvml = FakeNvml({**FULL, "processes": [(901, 18 * GIB), (902, 2 * GIB)]})
    users, sample = sampler_of(nvml, Clock(), own=Own(18 * GIB - 10 * 2**20, 3)).sample()
    assert [holder.ours for holder in users.gpus[0].holders] == [True, False]
    assert (sample.gpus[0].ours_bytes, sample.gpus[0].spilled_bytes) == (18 * GIB - 10 * 2**20, 3)


def test_where_processes_come_without_bytes_ours_is_not_known():
    """Windows."""
    nvml = FakeNvml({**FULL, "processes": [(os.getpid(), None)]})
    gpu = sample_of(sampler_of(nvml, Clock())).gpus[0]
    assert (gpu.ours_bytes, gpu.others_bytes) == (None, None)


def test_a_card_that_shares_the_system_s_memory():
    sampler = sampler_of(FakeNvml({}), Clock(), unified_memory=True)
    sample = sample_of(sampler)
    assert sample.gpus[0].used_bytes == sample.ram_used_bytes


def test_a_clock_that_is_set_meanwhile_does_not_disorder_samples():
    clock = Clock()
    sampler = sampler_of(FakeNvml(dict(FULL)), clock)
    first = sample_of(sampler)
    clock.go(1.0)
    clock.wall -= 3600
    assert sample_of(sampler).t == first.t + 1


def test_closing_lets_go_of_the_driver():
    nvml = FakeNvml(dict(FULL))
    sampler = sampler_of(nvml, Clock())
    assert nvml.open == 1
    sampler.close()
    sampler.close()
    assert nvml.open == 0
    assert sample_of(sampler).gpus == []


def test_a_driver_that_does_not_start_is_a_problem_and_no_failure():
    class Broken(FakeNvml):
        def nvmlInit(self):  # noqa: N802
            raise OSError("libnvidia-ml.so.1")

    sampler = sampler_of(Broken(dict(FULL)), Clock())
    assert "libnvidia-ml" in sampler.start().problem
    assert sample_of(sampler).gpus == []


def test_facts_that_a_chart_needs_stand_in_the_first_line():
    start = sampler_of(FakeNvml(dict(FULL)), Clock(), best_clock_mhz=2520).start()
    assert (start.gpus[0].power_limit_w, start.gpus[0].best_clock_mhz) == (450.0, 2520)
    assert (
        start.gpus[0].memory_total_bytes
        == GpuFacts.model_validate({"index": 0, "name": "", "vram_total_bytes": 24 * GIB}).vram_total_bytes
    )
