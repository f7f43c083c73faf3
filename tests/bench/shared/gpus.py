"""GPUs that a measurement may use, and their memory as NVML sees it: reading it makes no CUDA context."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES has them; none without NVML."""
    import pynvml

    if named := os.environ.get(VISIBLE, ""):
        return [name.strip() for name in named.split(",")]
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    return [str(index) for index in range(pynvml.nvmlDeviceGetCount())]


def memory_reader(gpu: str) -> Callable[[], Any]:
    """Return a function that reads a GPU's memory: bytes that are `used` and `free`, of all processes.

    Args:
        gpu: index or UUID.
    """
    import pynvml

    pynvml.nvmlInit()
    by_name = pynvml.nvmlDeviceGetHandleByIndex if gpu.isdecimal() else pynvml.nvmlDeviceGetHandleByUUID
    handle = by_name(int(gpu) if gpu.isdecimal() else gpu)
    return lambda: pynvml.nvmlDeviceGetMemoryInfo(handle)
