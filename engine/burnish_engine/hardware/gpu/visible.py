"""Applies `CUDA_VISIBLE_DEVICES`: chooses and numbers GPUs as CUDA, and so torch, does in this process."""

from __future__ import annotations

import os
from collections.abc import Sequence

from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts
from burnish_engine.contract.paths import safe_name

VARIABLE = "CUDA_VISIBLE_DEVICES"


def lease_name_of(index: int) -> str:
    """The name of a GPU in leases, which all processes share: cuda-1, or cuda-GPU-1b4e... where chosen by UUID.

    Args:
        index: index of the GPU in this process.
    """
    entries = [entry.strip() for entry in os.environ.get(VARIABLE, "").split(",")]
    entry = entries[index] if index < len(entries) else ""
    return f"cuda-{safe_name(entry, str(index))}"


def only_visible(machine: MachineFacts, setting: str | None) -> MachineFacts:
    """Reduce a machine to its visible GPUs, in CUDA's order. Hiding all GPUs asks for the CPU and is no problem.

    Args:
        machine: facts with all GPUs, as NVML lists them (in PCI order, which Burnish's processes ask of CUDA too).
        setting: value of the variable; None where it is not set. It lists indices or UUIDs that begin with "GPU-",
            split by commas; entries after the first that names no GPU are hidden (CUDA C++ Programming Guide, "CUDA
            Environment Variables").
    """
    if setting is None or not machine.gpus:
        return machine
    chosen: list[GpuFacts] = []
    for entry in setting.split(","):
        gpu = _named(entry.strip(), machine.gpus)
        if gpu is None or gpu in chosen:
            break
        chosen.append(gpu)
    place = {gpu.index: number for number, gpu in enumerate(chosen)}
    links = []
    for link in machine.links:
        if link.first in place and link.second in place:
            first, second = sorted((place[link.first], place[link.second]))
            links.append(link.model_copy(update={"first": first, "second": second}))
    changes: dict[str, object] = {
        "gpus": [gpu.model_copy(update={"index": place[gpu.index]}) for gpu in chosen],
        "links": sorted(links, key=lambda link: (link.first, link.second)),
    }
    return machine.model_copy(update=changes)


def _named(entry: str, gpus: Sequence[GpuFacts]) -> GpuFacts | None:
    if entry.isdecimal():
        return next((gpu for gpu in gpus if gpu.index == int(entry)), None)
    matches = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None
