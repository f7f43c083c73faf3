"""Which torch device and precision a run uses. A GPU that is there but cannot be used is an error, never a CPU run."""

from __future__ import annotations

import psutil
import torch

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.machine import MachineFacts
from burnish_engine.contract.recipe import DevicesSection
from burnish_engine.hardware.cpu import usable_cores
from burnish_engine.hardware.probe import probe


def choose_device(devices: DevicesSection, machine: MachineFacts | None = None) -> torch.device:
    """The device that the recipe asks for.

    Args:
        devices: The recipe's section.
        machine: Facts of the machine; probed when not given.

    Raises:
        SetupError: A GPU is present (or asked for) and torch cannot use it.
        UsageError: The recipe names a GPU that does not exist.
    """
    if devices.kind == "cpu":
        return torch.device("cpu")
    machine = machine or probe()
    wanted = devices.gpus[0]
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        if wanted >= count:
            raise UsageError(
                f"The recipe names GPU {wanted}; this machine has {count}, numbered from 0.",
                "Set devices.gpus to one that `burnish doctor` lists.",
            )
        return torch.device("cuda", wanted)
    if machine.gpu_problem:
        raise SetupError(
            f"There seems to be an NVIDIA GPU, but it does not answer: {machine.gpu_problem}.",
            'Repair the driver (`burnish doctor` says more), or set devices.kind = "cpu" to use the CPU knowingly.',
        )
    if machine.gpus:
        build = torch.version.cuda or "none, this is a CPU build"
        raise SetupError(
            f"The GPU {machine.gpus[0].name} is present, but torch {torch.__version__} cannot use it "
            f"(CUDA of the build: {build}; driver {machine.driver}).",
            'Run the set-up again to get a matching torch, or set devices.kind = "cpu" to train on the CPU knowingly.',
        )
    if devices.kind == "cuda":
        raise SetupError(
            "The recipe asks for a GPU (devices.kind = cuda) and there is none.", 'Set devices.kind = "auto" or "cpu".'
        )
    return torch.device("cpu")


def lease_name(device: torch.device) -> str:
    """The device's name in leases and in the run's state, such as cuda-0 or cpu."""
    return "cpu" if device.type == "cpu" else f"{device.type}-{device.index or 0}"


def describe(device: torch.device) -> str:
    """The device for people."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def choose_precision(asked: str, device: torch.device) -> str:
    """Precision of the base weights: as asked, or for "auto" bf16 where the device has instructions for it.

    Raises:
        UsageError: bf16 was asked for on a GPU without it (before compute capability 8.0).
    """
    if device.type == "cuda":
        has_bf16 = torch.cuda.get_device_capability(device) >= (8, 0)
        if asked == "bf16" and not has_bf16:
            raise UsageError(
                f"{torch.cuda.get_device_name(device)} has no bf16 units (compute capability below 8.0).",
                'Set train.precision = "fp32".',
            )
    else:
        capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
        has_bf16 = bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))
    if asked == "auto":
        return "bf16" if has_bf16 else "fp32"
    return asked


def choose_threads(asked: int) -> int:
    """CPU threads: as asked, or one per physical core this process may use."""
    return asked or usable_cores()


def memory_bytes(device: torch.device) -> int:
    """Peak device memory (CUDA: allocator's peak; CPU: this process's resident memory now)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return psutil.Process().memory_info().rss


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch or Python ran out of memory; on the CPU torch says so in words only."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
