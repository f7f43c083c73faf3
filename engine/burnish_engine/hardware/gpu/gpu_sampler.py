"""Samples one GPU through NVML: memory, load, temperature, energy, clocks and what holds them down, PCIe traffic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from burnish_engine.contract.facts.hardware import GpuSample, MemoryHolder, SampledGpu, ThrottleReason
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.hardware.gpu.nvml import CLOCK_MEMORY, CLOCK_SM, SENSOR_GPU, Driver, read_holders

# Values of nvml.h: nvmlPcieUtilCounter_t, nvmlTemperatureThresholds_t, nvmlClocksEventReasons.
_PCIE_FROM_GPU, _PCIE_TO_GPU, _THRESHOLD_SLOWDOWN = 0, 1, 1
_REASONS: Final[dict[int, ThrottleReason]] = {
    0x001: "idle",
    0x002: "set_clocks",
    0x004: "power_limit",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "heat",
    0x040: "hardware_heat",
    0x080: "power_brake",
    0x100: "display_clocks",
}
_REASON_FUNCTIONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_MOST_POWER = 3.0  # times the limit; a counter that says more was reset meanwhile
_UNLIMITED_W = 3000.0
_SAME_BYTES = 64 * 2**20
_MOST_HOLDERS = 16


class GpuSampler:
    """Samples one GPU. Every value is read on its own, so that a driver without one still gives the others.

    Args:
        driver: initialized NVML.
        facts: facts of the GPU.
    """

    def __init__(self, driver: Driver, facts: GpuFacts) -> None:
        self._driver, self._facts = driver, facts
        self._handle: Any = None
        if facts.uuid:
            self._handle = driver.ask("nvmlDeviceGetHandleByUUID", facts.uuid)
        if self._handle is None:
            self._handle = driver.ask("nvmlDeviceGetHandleByIndex", facts.index)
        self._energy_mj = self._read_energy()
        self._energy_lasts = self._energy_mj is not None

    @property
    def facts(self) -> GpuFacts:
        """Facts of the GPU."""
        return self._facts

    def describe(self) -> SampledGpu:
        """Describe what does not change from sample to sample."""
        facts = self._facts
        return SampledGpu(
            index=facts.index,
            name=facts.name,
            memory_total_bytes=facts.vram_total_bytes,
            unified_memory=facts.unified_memory,
            power_limit_w=facts.power_limit_w,
            best_clock_mhz=facts.best_clock_mhz,
            slowdown_c=self._integer("nvmlDeviceGetTemperatureThreshold", _THRESHOLD_SLOWDOWN),
            best_pcie_generation=facts.pcie.best_generation if facts.pcie else None,
            best_pcie_width=facts.pcie.best_width if facts.pcie else None,
        )

    def sample(self, seconds: float) -> GpuSample:
        """Read the GPU. What belongs to whom is filled in by the caller.

        Args:
            seconds: time since the last call.
        """
        memory = None if self._facts.unified_memory else self._driver.ask("nvmlDeviceGetMemoryInfo", self._handle)
        load = self._driver.ask("nvmlDeviceGetUtilizationRates", self._handle)
        fan = self._integer("nvmlDeviceGetFanSpeed")
        return GpuSample(
            index=self._facts.index,
            used_bytes=int(memory.used) if memory else None,
            load=load.gpu / 100 if load else None,
            temperature_c=self._integer("nvmlDeviceGetTemperature", SENSOR_GPU),
            power_w=self._power(seconds),
            clock_mhz=self._integer("nvmlDeviceGetClockInfo", CLOCK_SM),
            memory_clock_mhz=self._integer("nvmlDeviceGetClockInfo", CLOCK_MEMORY),
            fan=None if fan is None else fan / 100,
            throttle=dict.fromkeys(self._reasons(), 1.0),
            to_gpu_gb_s=self._traffic(_PCIE_TO_GPU),
            from_gpu_gb_s=self._traffic(_PCIE_FROM_GPU),
            pcie_generation=self._integer("nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_width=self._integer("nvmlDeviceGetCurrPcieLinkWidth"),
        )

    def holders(
        self, name_of: Callable[[int], str], owns: Callable[[int], bool], held: int | None = None
    ) -> list[MemoryHolder]:
        """List the processes that hold memory of the GPU, largest first.

        Args:
            name_of: function from a process id to its name; empty where not known.
            owns: function that says of a process id whether it is Burnish's.
            held: bytes that Burnish holds, where another source tells it.
        """
        found = [
            MemoryHolder(pid=pid, name=name_of(pid), bytes=count, ours=owns(pid))
            for pid, count in read_holders(self._driver, self._handle)
        ][:_MOST_HOLDERS]
        if held and found and not any(holder.ours for holder in found):
            # In a container the driver lists the host's process ids: ours is the one that holds what we hold.
            likely = min(found, key=lambda holder: abs((holder.bytes or 0) - held))
            if abs((likely.bytes or 0) - held) <= _SAME_BYTES + held // 50:
                found = [holder.model_copy(update={"ours": True}) if holder is likely else holder for holder in found]
        return found

    def _integer(self, function: str, *arguments: Any) -> int | None:
        return self._driver.integer(function, self._handle, *arguments)

    def _read_energy(self) -> int | None:
        return self._integer("nvmlDeviceGetTotalEnergyConsumption")

    def _power(self, seconds: float) -> float | None:
        """Return the mean power since the last call by the energy counter, or the power now where there is none."""
        if self._energy_lasts and seconds > 0:
            before, self._energy_mj = self._energy_mj, self._read_energy()
            if before is not None and self._energy_mj is not None:
                watts = (self._energy_mj - before) / 1000 / seconds
                if 0 < watts <= _MOST_POWER * (self._facts.power_limit_w or _UNLIMITED_W):
                    return round(watts, 1)
        now = self._integer("nvmlDeviceGetPowerUsage")
        return None if now is None else round(now / 1000, 1)

    def _reasons(self) -> list[ThrottleReason]:
        for function in _REASON_FUNCTIONS:
            bits = self._integer(function)
            if bits is not None:
                return [reason for bit, reason in _REASONS.items() if bits & bit]
        return []

    def _traffic(self, direction: int) -> float | None:
        """Read the PCIe traffic in one direction, 10^9 bytes/s. The driver counts for 20 ms, in which it blocks."""
        kilobytes = self._integer("nvmlDeviceGetPcieThroughput", direction)
        return None if kilobytes is None else round(kilobytes / 1e6, 3)
