"""The machine as it is now: GPUs through NVML, CPU, memory, disk. Loads no torch and never fails."""

from __future__ import annotations

import os
import platform
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from burnish_engine.contract.machine import GpuFacts, MachineFacts
from burnish_engine.contract.paths import user_data_dir

_NVIDIA_PCI_VENDOR = "0x10de"
_PCI_DISPLAY_CLASS = "0x03"  # PCI class code: display controller


def probe() -> MachineFacts:
    """Facts about this machine. What cannot be read is left empty; a GPU that does not answer is named as a problem."""
    gpus, driver, cuda, problem = _gpus()
    folder = user_data_dir()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    memory = psutil.virtual_memory()
    return MachineFacts(
        os=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        python=platform.python_version(),
        cpu=_cpu_name(),
        cpu_cores=psutil.cpu_count(logical=False) or os.cpu_count() or 1,
        ram_total_bytes=memory.total,
        ram_free_bytes=memory.available,
        disk_free_bytes=shutil.disk_usage(folder).free,
        gpus=gpus,
        driver=driver,
        driver_cuda=cuda,
        gpu_problem=problem,
    )


def _gpus() -> tuple[list[GpuFacts], str | None, str | None, str | None]:
    """GPUs, driver version, the driver's highest CUDA version, and what is wrong."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [], None, None, _silent_gpu(str(error))
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        number = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        cuda = f"{number // 1000}.{number % 1000 // 10}"
        gpus = [_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        return gpus, driver, cuda, None if gpus else _silent_gpu("the driver lists no GPU")
    except pynvml.NVMLError as error:
        return [], None, None, f"NVML: {error}"
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> GpuFacts:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    capability = None
    with suppress(nvml.NVMLError):
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        capability = (int(major), int(minor))
    return GpuFacts(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        compute_capability=capability,
        vram_total_bytes=int(memory.total),
        vram_free_bytes=int(memory.free),
    )


def _silent_gpu(reason: str) -> str | None:
    """The reason, if the PCI bus shows an NVIDIA display device; None where it shows none or cannot be read."""
    for device in Path("/sys/bus/pci/devices").glob("*"):
        with suppress(OSError):
            vendor = (device / "vendor").read_text(encoding="ascii").strip()
            kind = (device / "class").read_text(encoding="ascii").strip()
            if vendor == _NVIDIA_PCI_VENDOR and kind.startswith(_PCI_DISPLAY_CLASS):
                return reason
    return None


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
