"""Text about a machine's GPUs, links and settings. Pure functions, no Qt."""

from __future__ import annotations

from burnish_engine.contract.facts.machine import GpuFacts, LinkFacts, MachineFacts, MemoryUser, PcieFacts
from burnish_engine.contract.units import memory_size

_ANCESTORS = {
    "internal": "on one board",
    "single": "at one PCIe switch",
    "multiple": "over several PCIe switches",
    "hostbridge": "over the host bridge",
    "node": "within one processor",
    "system": "across processors",
}


def gpu_memory_text(gpu: GpuFacts) -> str:
    """Return the free and total memory of a GPU."""
    shared = ", shared with the system" if gpu.unified_memory else ""
    return f"{memory_size(gpu.vram_free_bytes)} free of {memory_size(gpu.vram_total_bytes)}{shared}"


def memory_users_text(users: list[MemoryUser], most: int = 3) -> str:
    """Return which processes hold a GPU's memory; empty if there are none.

    Args:
        users: processes, largest first.
        most: number of processes to name.
    """
    if not users:
        return ""
    named = [_user(user) for user in users[:most]]
    rest = len(users) - len(named)
    return f"Used by {', '.join(named)}{f' and {rest} more' if rest else ''}"


def pcie_text(pcie: PcieFacts) -> tuple[str, str]:
    """Return (the PCIe connection, a hint if it is slower than it could be or empty)."""
    if pcie.generation is None or pcie.width is None:
        return "not reported", ""
    now = f"PCIe {pcie.generation}.0 x{pcie.width}"
    best = (pcie.best_generation or pcie.generation, pcie.best_width or pcie.width)
    if best == (pcie.generation, pcie.width):
        return now, ""
    could = f"PCIe {best[0]}.0 x{best[1]}"
    if pcie.width < best[1]:
        return now, f"The card could use {best[1]} lanes; it has {pcie.width}. Another slot may be faster."
    if pcie.under_load:
        return now, f"It could reach {could}."
    return could, f"Idle now at {now}: cards save power while they have nothing to do."


def link_text(link: LinkFacts) -> str:
    """Return how two GPUs are connected, in one line."""
    if link.nvlinks:
        rate = f", {link.nvlink_gb_s:.0f} GB/s each way" if link.nvlink_gb_s else ""
        text = f"{link.nvlinks} NVLink {'link' if link.nvlinks == 1 else 'links'}{rate}"
    else:
        text = f"PCIe, {_ANCESTORS[link.common_ancestor]}" if link.common_ancestor else "PCIe"
        if link.p2p_read is False:
            text += f", no direct copies{f' ({link.p2p_problem})' if link.p2p_problem else ''}"
        elif link.p2p_read:
            text += ", direct copies"
    if link.measured:
        text += f"; measured {link.measured.copy_gb_s:.0f} GB/s"
    return text


def sleep_text(machine: MachineFacts) -> str:
    """Return a warning that the machine may sleep during a run; empty if it will not or nothing is known."""
    if machine.sleep_note:
        return machine.sleep_note
    if machine.sleep_after_s:
        return (
            f"This machine goes to sleep after {machine.sleep_after_s // 60} idle minutes, which interrupts a run. "
            "Switch that off in the system's power settings for long runs."
        )
    return ""


def training_device_text(machine: MachineFacts) -> str:
    """Return the device that a run would use, in one line."""
    if machine.gpu_problem:
        return "There seems to be a GPU, but it does not answer."
    if not machine.gpus:
        return "No NVIDIA GPU: training runs on the processor."
    names: dict[str, int] = {}
    for gpu in machine.gpus:
        names[gpu.name] = names.get(gpu.name, 0) + 1
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in names.items())


def _user(user: MemoryUser) -> str:
    size = f" {memory_size(user.bytes)}" if user.bytes else ""
    return f"{user.name or f'process {user.pid}'}{size}"
