"""Reads GPUs through NVIDIA's management library (NVML), or any object with pynvml's functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from burnish_engine.contract.facts.machine import GpuFacts, MemoryUser, PcieFacts

# Values of nvml.h (nvmlReturn_t, nvmlClockType_t, nvmlTemperatureSensors_t). Not taken from pynvml, so that a recording
# needs no constants; besides, pynvml 13 defines NVML_P2P_CAPS_INDEX_READ as a tuple.
NOT_SUPPORTED: Final = 3
LIBRARY_NOT_FOUND: Final = 12
CLOCK_SM, CLOCK_MEMORY, SENSOR_GPU = 1, 2, 0
# CUDA cores per multiprocessor (CUDA C programming guide, "arithmetic instructions": fp32 lanes); 128 from 8.6 on.
_CORES_PER_SM = {(6, 0): 64, (7, 0): 64, (7, 5): 64, (8, 0): 64}
_SHARES_SYSTEM_MEMORY = re.compile(r"\b(GB10|Orin|Thor|Xavier|Tegra)\b", flags=re.IGNORECASE)


class Driver:
    """A wrapper of NVML that answers None where NVML cannot tell.

    Args:
        nvml: pynvml module, or any object with its functions and its `NVMLError`.
    """

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.error: type[Exception] = nvml.NVMLError

    def ask(self, function: str, *arguments: Any) -> Any:
        """Ask an NVML function; None where the driver, the GPU or pynvml's version has no answer."""
        with suppress(self.error, AttributeError):
            return getattr(self.nvml, function)(*arguments)
        return None

    def integer(self, function: str, *arguments: Any) -> int | None:
        """Ask a function that answers with a number, like `ask`."""
        value = self.ask(function, *arguments)
        return None if value is None else int(value)

    def text(self, function: str, *arguments: Any) -> str:
        """Ask a function that answers with text, like `ask`; empty where there is no answer."""
        value = self.ask(function, *arguments)
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def read_gpu(
    driver: Driver, index: int, *, system_memory: tuple[int, int], process_name: Callable[[int], str]
) -> GpuFacts:
    """Read the facts of one GPU.

    Args:
        driver: initialized NVML.
        index: index of the GPU in NVML, which follows the order on the PCI bus.
        system_memory: (total, free) bytes of the system, which a GPU without memory of its own uses.
        process_name: function from a process id to its name; empty where not known.

    Raises:
        driver.error: The GPU does not answer at all.
    """
    handle = driver.nvml.nvmlDeviceGetHandleByIndex(index)
    name = driver.text("nvmlDeviceGetName", handle)
    total, free, unified = _memory(driver, handle, name, system_memory)
    capability = driver.ask("nvmlDeviceGetCudaComputeCapability", handle)
    capability = (int(capability[0]), int(capability[1])) if capability else None
    mig = driver.ask("nvmlDeviceGetMigMode", handle)
    return GpuFacts(
        index=index,
        name=name,
        uuid=driver.text("nvmlDeviceGetUUID", handle),
        pci_bus_id=bus_id(driver.ask("nvmlDeviceGetPciInfo", handle)),
        compute_capability=capability,
        vram_total_bytes=total,
        vram_free_bytes=free,
        unified_memory=unified,
        multiprocessors=_multiprocessors(driver, handle, capability),
        memory_bus_bits=driver.integer("nvmlDeviceGetMemoryBusWidth", handle) or None,
        power_w=_watts(driver.integer("nvmlDeviceGetPowerUsage", handle)),
        power_limit_w=_watts(driver.integer("nvmlDeviceGetEnforcedPowerLimit", handle)),
        temperature_c=driver.integer("nvmlDeviceGetTemperature", handle, SENSOR_GPU),
        clock_mhz=driver.integer("nvmlDeviceGetClockInfo", handle, CLOCK_SM),
        best_clock_mhz=driver.integer("nvmlDeviceGetMaxClockInfo", handle, CLOCK_SM),
        memory_clock_mhz=driver.integer("nvmlDeviceGetMaxClockInfo", handle, CLOCK_MEMORY) or None,
        display=_display(driver, handle),
        mig=bool(mig[0]) if mig else None,
        pcie=None if unified else read_pcie(driver, handle),
        users=_users(driver, handle, process_name),
    )


def read_pcie(driver: Driver, handle: Any) -> PcieFacts | None:
    """Read the GPU's current connection to the host; None where the driver does not tell it."""
    facts = PcieFacts(
        generation=driver.integer("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        width=driver.integer("nvmlDeviceGetCurrPcieLinkWidth", handle),
        best_generation=driver.integer("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        best_width=driver.integer("nvmlDeviceGetMaxPcieLinkWidth", handle),
        card_generation=driver.integer("nvmlDeviceGetGpuMaxPcieLinkGeneration", handle),
    )
    return None if facts == PcieFacts() else facts


def read_holders(driver: Driver, handle: Any) -> list[tuple[int, int | None]]:
    """List (process id, bytes) of the processes that hold memory of a GPU, largest first.

    A process that computes and draws is listed once.

    Args:
        driver: initialized NVML.
        handle: handle of the GPU.
    """
    held: dict[int, int | None] = {}
    for pid, count in _processes(driver, handle):
        before = held.get(pid)
        held[pid] = count if before is None else max(before, count or 0)
    return sorted(held.items(), key=lambda user: (-(user[1] or 0), user[0]))


def bus_id(pci: Any) -> str:
    """Spell a GPU's address on the PCI bus in one way, such as 00000000:01:00.0; empty where it is not known.

    Args:
        pci: structure nvmlPciInfo_t of NVML, or None.
    """
    raw = getattr(pci, "busId", "") or ""
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    domain, _, rest = text.strip("\0").partition(":")
    return f"{domain.zfill(8)}:{rest}".lower() if rest else ""


def _memory(driver: Driver, handle: Any, name: str, system: tuple[int, int]) -> tuple[int, int, bool]:
    """Read (total bytes, free bytes, whether the memory is the system's) of a GPU."""
    shares = _SHARES_SYSTEM_MEMORY.search(name) is not None
    if not shares:
        try:
            memory = driver.nvml.nvmlDeviceGetMemoryInfo(handle)
            return int(memory.total), int(memory.free), False
        except driver.error as error:
            # A GPU without memory of its own answers "not supported"; any other error means that it is not well.
            if getattr(error, "value", None) != NOT_SUPPORTED:
                raise
    return *system, True


def _multiprocessors(driver: Driver, handle: Any, capability: tuple[int, int] | None) -> int | None:
    cores = driver.integer("nvmlDeviceGetNumGpuCores", handle)
    if not cores or not capability:
        return None
    return cores // _CORES_PER_SM.get(capability, 128)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _display(driver: Driver, handle: Any) -> bool | None:
    """Whether the desktop draws on a GPU. Display mode alone is no sign: data-center cards without ports have it on."""
    active = driver.integer("nvmlDeviceGetDisplayActive", handle)
    mode = driver.integer("nvmlDeviceGetDisplayMode", handle)
    known = mode if active is None else active
    return None if known is None else bool(known)


def _users(driver: Driver, handle: Any, process_name: Callable[[int], str]) -> list[MemoryUser]:
    return [MemoryUser(pid=pid, name=process_name(pid), bytes=count) for pid, count in read_holders(driver, handle)]


def _processes(driver: Driver, handle: Any) -> Iterator[tuple[int, int | None]]:
    for kind in ("Compute", "Graphics"):
        for process in driver.ask(f"nvmlDeviceGet{kind}RunningProcesses", handle) or []:
            count = process.usedGpuMemory
            yield int(process.pid), None if count is None else int(count)
