"""Text about a machine's GPUs, links and settings. Pure functions, no Qt."""

from __future__ import annotations

from burnish_app.look.language import tr
from burnish_engine.contract.facts.machine import (
    HOST,
    EdgeFacts,
    GpuFacts,
    LinkFacts,
    MachineFacts,
    MemoryUser,
    ParallelSettings,
    PcieFacts,
)
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


def edge_rates_text(edge: EdgeFacts) -> str:
    """Return the rates of a connection for its label, such as "56 GB/s, measured 45"."""
    measured = edge.gb_s if edge.measured else None
    if edge.kind == "host_staged" or edge.spec_gb_s is None:
        return tr("measured {rate:.0f} GB/s").format(rate=measured) if measured else f"≈ {_rate(edge.gb_s)} GB/s"
    spec = f"{_rate(edge.spec_gb_s)} GB/s"
    return tr("{spec}, measured {rate}").format(spec=spec, rate=_rate(measured)) if measured else spec


def edge_text(edge: EdgeFacts) -> str:
    """Return a connection of a machine's graph with its specified and its measured or expected rate, as a sentence."""
    ends = (
        tr("GPU {first} and the host").format(first=edge.first)
        if edge.second == HOST
        else tr("GPU {first} and GPU {second}").format(first=edge.first, second=edge.second)
    )
    kind = {
        "nvlink": tr("NVLink"),
        "pcie_p2p": tr("PCIe, directly"),
        "host_staged": tr("a detour over the host's memory"),
        "pcie": tr("PCIe"),
    }[edge.kind]
    rates: list[str] = []
    if edge.spec_gb_s is not None and edge.kind != "host_staged":
        rates.append(tr("{rate} GB/s specified").format(rate=_rate(edge.spec_gb_s)))
    found = tr("{rate} GB/s measured") if edge.measured else tr("about {rate} GB/s expected")
    rates.append(found.format(rate=_rate(edge.gb_s)))
    text = f"{ends}: {kind}, {', '.join(rates)} {tr('each way')}."
    if edge.differs:
        text += " " + tr("That is far from the {rate} GB/s that such a connection reaches.").format(
            rate=_rate(edge.table_gb_s)
        )
    return text


def settings_figures(settings: ParallelSettings) -> list[tuple[str, str, str]]:
    """Return (name, figure, unit) of each setting for using several GPUs together.

    Args:
        settings: settings that follow from the machine's graph.
    """
    strategy = {
        "single": tr("one GPU"),
        "data_parallel": tr("data parallel"),
        "sharded": tr("sharded"),
    }[settings.strategy]
    gpus = ", ".join(map(str, settings.gpus))
    found = [(tr("A run would use"), strategy, tr("GPU {gpus}").format(gpus=gpus) if gpus else "")]
    if settings.strategy == "single":
        return found
    if settings.bucket_mib:
        found.append((tr("Gradient bucket"), str(settings.bucket_mib), "MiB"))
    found.append((tr("Passes a step"), tr("{count} or more").format(count=settings.accumulation), ""))
    if settings.exchange_ms is not None:
        found.append((tr("Exchange"), f"{settings.exchange_ms:.0f}", "ms"))
    if settings.compress:
        found.append((tr("Gradients"), "bf16", ""))
    if settings.environment:
        variables = " ".join(f"{name}={value}" for name, value in settings.environment.items())
        found.append((tr("NCCL needs"), variables, ""))
    return found


def _rate(gb_s: float | None) -> str:
    return "–" if gb_s is None else f"{gb_s:.0f}" if gb_s >= 9.95 else f"{gb_s:.1f}"


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
