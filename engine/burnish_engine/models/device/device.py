"""Choose the torch device and precision of a run. A GPU that cannot be used is an error, never a run on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.on_gpus import refuse_missing_gpu
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.units import memory_size
from burnish_engine.hardware.gpu.visible import lease_name_of
from burnish_engine.hardware.host.cpu import usable_cores
from burnish_engine.hardware.host.host_memory import is_wsl
from burnish_engine.hardware.host.peak_memory import held_bytes, peak_bytes
from burnish_engine.hardware.probe import probe

_MIB, _GIB = 2**20, 2**30
_CONTEXT_BYTES = (
    480 * _MIB
)  # what a context takes before any kernel; an H100 was seen to take 0.74 GiB with all of them
_LATER_BYTES = 128 * _MIB  # kernels and graphs that come after the cap is set, outside the allocator
_DESKTOP_BYTES = 256 * _MIB
"""Memory that Windows' desktop and browser may take more of the card while a run continues: WDDM makes room for whoever
is in the foreground by moving others' memory to the system's, and ours is the largest."""
_SYSTEM_BYTES, _SYSTEM_SHARE = 4 * _GIB, 0.1  # left to everything else where GPU and system share one memory
_LEAST_BYTES = 64 * _MIB

MEMORY_ERRORS = (MemoryError, RuntimeError)
"""Kinds of all errors that `is_out_of_memory` may take for one of memory."""
_OUT_OF_MEMORY = (
    "DefaultCPUAllocator",
    "CUDA error: out of memory",  # outside torch's allocator, as for page-locked memory
    "CUDA driver error: out of memory",
    "Triton Error [CUDA]: out of memory",  # a kernel's code could not be loaded
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # cuBLAS had no memory for its handle
    "CUDNN_STATUS_ALLOC_FAILED",
)
_DRIVER_ERRORS = (
    "CUDA error:",
    "CUDA driver error:",
    "Triton Error [CUDA]:",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_INTERNAL_ERROR",
    "CUDNN_STATUS_EXECUTION_FAILED",
)


def choose_device(devices: DevicesSection, machine: MachineFacts | None = None) -> torch.device:
    """Return the device that the recipe asks for.

    Args:
        devices: devices section of the recipe.
        machine: facts of the machine; probed when not given.

    Raises:
        SetupError: A GPU is present (or asked for) and torch cannot use it.
        UsageError: The recipe names a GPU that does not exist.
    """
    if devices.kind == "cpu":
        return torch.device("cpu")
    machine = machine or probe()
    wanted = devices.gpus[0]
    if torch.cuda.is_available():
        names = {gpu.index: gpu.name for gpu in machine.gpus}
        usable = range(torch.cuda.device_count())
        refuse_missing_gpu(wanted, {index: names.get(index, "name unknown") for index in usable})
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
    """Return the device's name in leases and in the run's state, such as cuda-0 or cpu."""
    return "cpu" if device.type == "cpu" else lease_name_of(device.index or 0)


def describe(device: torch.device) -> str:
    """Describe the device for people."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def capability_of(device: torch.device) -> int | None:
    """Return a GPU's compute capability, such as 89; None for the CPU."""
    if device.type != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def choose_precision(asked: str, device: torch.device) -> str:
    """Return the precision of the base weights: as asked, or for "auto" bf16 where the device supports it.

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
    """Return the number of CPU threads: as asked, or one per physical core this process may use; see `usable_cores`."""
    return asked or usable_cores()


def cap_memory(
    device: torch.device, budget_gib: float = 0.0, beside: Callable[[], int | None] = lambda: None, later: int = 0
) -> int:
    """Keep torch's allocator below what the card has, so that too large a run raises instead of crawling.

    Args:
        device: device to train on; nothing is done on the CPU.
        budget_gib: recipe's `memory.budget_gib`: most GiB that the process may take; 0: no limit.
        beside: bytes that the process holds beside torch's allocator now; None where that is not known.
        later: bytes that libraries take beside it later, kernels apart.

    Returns:
        Most bytes that the allocator may hold; 0 on the CPU.

    Raises:
        UsageError: The budget is less than the process takes without any tensor.
    """
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)  # makes the context where there is none yet
    shared = bool(getattr(torch.cuda.get_device_properties(device), "is_integrated", False))
    context = beside()
    most = allocator_limit(
        free + torch.cuda.memory_reserved(device),
        total,
        budget=round(budget_gib * _GIB),
        beside=context,
        later=later,
        spills=sys.platform == "win32" or is_wsl(),
        integrated=shared,
    )
    if most <= 0:
        raise UsageError(
            f"memory.budget_gib = {budget_gib:g} leaves nothing for tensors: the CUDA context and kernels take about "
            f"{memory_size((context or _CONTEXT_BYTES) + _LATER_BYTES + later)}.",
            "Raise memory.budget_gib, or set it to 0 for all that is free.",
        )
    torch.cuda.set_per_process_memory_fraction(min(1.0, most / total), device)
    return most


def allocator_limit(
    free: int,
    total: int,
    *,
    budget: int = 0,
    beside: int | None = None,
    later: int = 0,
    spills: bool,
    integrated: bool = False,
) -> int:
    """Return the most bytes that the allocator may hold; 0 or less where a budget leaves nothing.

    Args:
        free: bytes that are free on the device, the allocator's own included.
        total: bytes of the device.
        budget: most bytes that the process may take; 0: no limit.
        beside: bytes that the process holds beside the allocator now, where that is known.
        later: bytes that libraries take beside it later, kernels apart.
        spills: whether the driver moves to system memory what does not fit (Windows, WSL2).
        integrated: whether the GPU's memory is the system's.
    """
    later += _LATER_BYTES
    most = total - later
    if integrated:
        most = total - max(_SYSTEM_BYTES, int(_SYSTEM_SHARE * total))
    elif spills:  # elsewhere the driver refuses by itself, and memory that other programs free may be used
        most = min(most, free - later - _DESKTOP_BYTES)
    most = max(most, _LEAST_BYTES)  # a full card is the plan's to refuse, not ours
    if budget:
        most = min(most, budget - (_CONTEXT_BYTES if beside is None else beside) - later)
    return most


def memory_bytes(device: torch.device) -> int:
    """Return peak memory in bytes: the allocator's (CUDA), or the process's as the system counts it (CPU)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_bytes() or held_bytes()


def is_driver_error(error: BaseException) -> bool:
    """Return whether the GPU or its driver failed: CUDA is of no more use to this process then."""
    if not isinstance(error, RuntimeError) or is_out_of_memory(error):
        return False
    # torch's own class of such errors, which is a RuntimeError.
    return type(error).__name__ == "AcceleratorError" or any(words in str(error) for words in _DRIVER_ERRORS)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether torch, Python or a library ran out of memory; most of them say so only in the error's text."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if not isinstance(error, MEMORY_ERRORS):
        return False
    # What ends a capture after that raises an error of its own.
    before = error.__cause__ or error.__context__
    return any(words in str(error) for words in _OUT_OF_MEMORY) or (before is not None and is_out_of_memory(before))
