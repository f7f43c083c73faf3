"""Probes the machine: GPUs through NVML, processor, memory, disk. Loads no torch, never fails, never hangs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from burnish_engine.contract.facts.machine import GpuFacts, LinkFacts, MachineFacts
from burnish_engine.hardware.gpu.kept_links import with_kept_links
from burnish_engine.hardware.gpu.links import read_links
from burnish_engine.hardware.gpu.nvml import LIBRARY_NOT_FOUND, Driver, read_gpu
from burnish_engine.hardware.gpu.visible import VARIABLE, only_visible
from burnish_engine.hardware.host.system import SystemFacts, process_name, read_system

DRIVER_TIMEOUT_S = 8.0
"""Time after which a driver hangs. An idle driver loads on the first call, 1 to 3 s a GPU ("Driver Persistence")."""


@dataclass
class _Findings:
    """The driver's answers, filled while it answers."""

    gpus: list[GpuFacts] = field(default_factory=list)
    links: list[LinkFacts] = field(default_factory=list)
    driver: str | None = None
    cuda: str | None = None
    problem: str | None = None
    done: bool = False


def probe(
    nvml: Any = None,
    *,
    system: SystemFacts | None = None,
    name_of: Callable[[int], str] = process_name,
    timeout_s: float = DRIVER_TIMEOUT_S,
) -> MachineFacts:
    """Read the facts of this machine, with what was measured of its links before.

    Unreadable facts stay empty; a GPU that does not answer is named as a problem.

    Args:
        nvml: pynvml module, or an object with its functions, such as a recording; by default pynvml.
        system: facts beside the GPUs; read when not given.
        name_of: function from a process id to its name.
        timeout_s: seconds that the driver may take in all.
    """
    system = system or read_system()
    found = _Findings()
    # A hanging driver blocks inside its call for good. The thread is left behind then; it holds no lock of Burnish's.
    reader = threading.Thread(target=_read, args=(found, nvml, system, name_of), name="nvml", daemon=True)
    reader.start()
    reader.join(timeout_s)
    if not found.done:
        found = _Findings(problem=f"the driver did not answer within {timeout_s:g} s")
    machine = MachineFacts(
        **system.model_dump(exclude={"nvidia_on_bus"}),
        gpus=found.gpus,
        links=found.links,
        driver=found.driver,
        driver_cuda=found.cuda,
        gpu_problem=found.problem,
    )
    # A recording is of another machine, to which this machine's environment variables do not apply.
    return machine if nvml is not None else with_kept_links(only_visible(machine, os.environ.get(VARIABLE)))


def _read(found: _Findings, nvml: Any, system: SystemFacts, name_of: Callable[[int], str]) -> None:
    try:
        _read_driver(found, Driver(nvml or import_module("pynvml")), system, name_of)
    except Exception as problem:  # noqa: BLE001  whatever the library throws is the finding; no answer would read as a hang
        found.problem = f"NVML: {type(problem).__name__}: {problem}"
    found.done = True


def _read_driver(found: _Findings, driver: Driver, system: SystemFacts, name_of: Callable[[int], str]) -> None:
    try:
        driver.nvml.nvmlInit()
    except driver.error as error:
        # Without a view of the bus, an installed library that fails suggests a card; a missing library does not.
        missing = getattr(error, "value", None) == LIBRARY_NOT_FOUND
        card = system.nvidia_on_bus if system.nvidia_on_bus is not None else not missing
        found.problem = str(error) if card else None
        return
    try:
        found.driver = driver.text("nvmlSystemGetDriverVersion") or None
        number = driver.integer("nvmlSystemGetCudaDriverVersion_v2")
        found.cuda = f"{number // 1000}.{number % 1000 // 10}" if number else None
        count = driver.integer("nvmlDeviceGetCount") or 0
        if not count and system.nvidia_on_bus:
            found.problem = "the driver lists no GPU"
        memory = system.ram_total_bytes, system.ram_free_bytes
        for index in range(count):
            try:
                found.gpus.append(read_gpu(driver, index, system_memory=memory, process_name=name_of))
            except driver.error as error:
                found.problem = f"GPU {index}: {error}"
        found.links = read_links(driver, found.gpus)
    finally:
        with suppress(driver.error):
            driver.nvml.nvmlShutdown()
