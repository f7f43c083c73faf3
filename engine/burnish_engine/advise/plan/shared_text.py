"""Writes what a plan says of several GPUs: why they cannot share a run, and how they would."""

from __future__ import annotations

from burnish_engine.contract.facts.advice import SharedSteps
from burnish_engine.contract.facts.machine import LinkKind, MachineFacts
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.units import memory_size, short_time
from burnish_engine.hardware.gpu.gpu_table import gpu_rates

_LINKS: dict[LinkKind | None, str] = {
    "nvlink": "over NVLink",
    "pcie_p2p": "over PCIe",
    "pcie": "over PCIe",
    "host_staged": "through the host's memory",
    None: "at most: nothing is told of their links",
}


def shared_problems(devices: DevicesSection, machine: MachineFacts) -> list[str]:
    """Explain why the GPUs of a recipe cannot share its steps on a machine; nothing where they can.

    Args:
        devices: section of the recipe.
        machine: facts of the machine.
    """
    if not devices.shares or len(devices.gpus) < 2 or devices.kind == "cpu" or not machine.gpus:
        return []
    known = {gpu.index: gpu for gpu in machine.gpus}
    missing = [index for index in devices.gpus if index not in known]
    if missing:
        return [
            f"GPU {missing[0]} is to share the run; this machine has {len(known)}, numbered from 0. Name those that "
            "`burnish doctor` lists in devices.gpus."
        ]
    if machine.os.startswith("Windows"):
        return ["GPUs share a run over NCCL, which Windows does not have. Use WSL2, or one GPU."]
    names = {known[index].name: index for index in devices.gpus}
    found = " and ".join(f"GPU {index} ({name})" for name, index in names.items())
    if len(names) > 1 and (devices.exact or devices.strategy == "sharded"):
        what = "cannot train the bits of one (devices.exact)" if devices.exact else "cannot share a whole model out"
        return [f"{found} are of several models and {what}. Name alike ones in devices.gpus."]
    if len({gpu_rates(known[index]).bf16 for index in devices.gpus}) > 1:
        return [f"Of {found} not all compute in bf16, so they cannot share a run. Name others in devices.gpus."]
    return []


def shared_note(shared: SharedSteps | None) -> str:
    """Say how GPUs would share each step; empty where one trains."""
    if shared is None:
        return ""
    passes = f"{shared.passes} pass{'es' * (shared.passes > 1)}"
    if shared.exchange_ms is None:
        return f"{shared.gpus} processes share each step, with at most {passes} each.{_idle(shared)}"
    bits = " in bf16" if shared.rounded else ""
    return (
        f"{shared.gpus} GPUs share each step, with at most {passes} each: {shared.times:.2f} times as fast as one. Of "
        f"{short_time(shared.step_ms / 1000)} a step, sending {memory_size(shared.exchange_bytes)}{bits} between "
        f"them takes {short_time(shared.exchange_ms / 1000)} ({_LINKS[shared.link]}).{_idle(shared)}"
    )


def _idle(shared: SharedSteps) -> str:
    if not shared.idle:
        return ""
    return f" {shared.idle} of them would have nothing to do: raise train.accumulation to {shared.gpus}."
