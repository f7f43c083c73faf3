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
from burnish_engine.contract.recipe.place import parse_place
from burnish_engine.contract.units import memory_size

_ANCESTORS = {
    "internal": tr("on one board"),
    "single": tr("at one PCIe switch"),
    "multiple": tr("over several PCIe switches"),
    "hostbridge": tr("over the host bridge"),
    "node": tr("within one processor"),
    "system": tr("across processors"),
}

_SERVICES = {"slurm": tr("SLURM"), "sky": tr("SkyPilot"), "hf": tr("Hugging Face")}


def place_text(where: str) -> str:
    """Return what to call the machine that a recipe trains on, such as "office" for "ssh:office".

    Args:
        where: place of a recipe, or of a run that another version made; not this machine.
    """
    try:
        place = parse_place(where)
    except ValueError:
        return where
    service = _SERVICES.get(place.kind, "")
    return f"{service} ({place.name})" if service and place.name else service or place.name


def gpu_memory_text(gpu: GpuFacts) -> str:
    """Return the free and total memory of a GPU."""
    shared = tr(", shared with the system") if gpu.unified_memory else ""
    return tr("{vram_free_bytes} free of {vram_total_bytes}{shared}").format(
        vram_free_bytes=memory_size(gpu.vram_free_bytes),
        vram_total_bytes=memory_size(gpu.vram_total_bytes),
        shared=shared,
    )


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
    if rest:
        return tr("Used by {named} and {rest} more").format(named=", ".join(named), rest=rest)
    return tr("Used by {named}").format(named=", ".join(named))


def pcie_text(pcie: PcieFacts) -> tuple[str, str]:
    """Return (the PCIe connection, a hint if it is slower than it could be or empty)."""
    if pcie.generation is None or pcie.width is None:
        return tr("not reported"), ""
    now = tr("PCIe {generation}.0 x{width}").format(generation=pcie.generation, width=pcie.width)
    best = (pcie.best_generation or pcie.generation, pcie.best_width or pcie.width)
    if best == (pcie.generation, pcie.width):
        return now, ""
    could = tr("PCIe {best}.0 x{best_2}").format(best=best[0], best_2=best[1])
    if pcie.width < best[1]:
        return now, tr("The card could use {best} lanes; it has {width}. Another slot may be faster.").format(
            best=best[1], width=pcie.width
        )
    if pcie.under_load:
        return now, tr("It could reach {could}.").format(could=could)
    return could, tr("Idle now at {now}: cards save power while they have nothing to do.").format(now=now)


def link_text(link: LinkFacts) -> str:
    """Return how two GPUs are connected, in one line."""
    if link.nvlinks:
        rate = tr(", {nvlink_gb_s:.0f} GB/s each way").format(nvlink_gb_s=link.nvlink_gb_s) if link.nvlink_gb_s else ""
        text = f"{link.nvlinks} NVLink {'link' if link.nvlinks == 1 else 'links'}{rate}"
    else:
        text = f"PCIe, {_ANCESTORS[link.common_ancestor]}" if link.common_ancestor else "PCIe"
        if link.p2p_read is False:
            text += tr(", no direct copies{value}").format(value=f" ({link.p2p_problem})" if link.p2p_problem else "")
        elif link.p2p_read:
            text += tr(", direct copies")
    if link.measured:
        text += tr("; measured {copy_gb_s:.0f} GB/s").format(copy_gb_s=link.measured.copy_gb_s)
    return text


def edge_rates_text(edge: EdgeFacts) -> str:
    """Return the rates of a connection for its label, such as "56 GB/s, measured 45"."""
    measured = edge.gb_s if edge.measured else None
    if edge.kind == "host_staged" or edge.spec_gb_s is None:
        return (
            tr("measured {rate:.0f} GB/s").format(rate=measured)
            if measured
            else tr("≈ {gb_s} GB/s").format(gb_s=_rate(edge.gb_s))
        )
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
        return tr(
            "This machine goes to sleep after {value} idle minutes, which interrupts a run. Switch that "
            "off in the system's power settings for long runs."
        ).format(value=machine.sleep_after_s // 60)
    return ""


def training_device_text(machine: MachineFacts) -> str:
    """Return the device that a run would use, in one line."""
    if machine.gpu_problem:
        return tr("There seems to be a GPU, but it does not answer.")
    if not machine.gpus:
        return tr("No NVIDIA GPU: training runs on the processor.")
    names: dict[str, int] = {}
    for gpu in machine.gpus:
        names[gpu.name] = names.get(gpu.name, 0) + 1
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in names.items())


def machine_summary(machine: MachineFacts) -> str:
    """Return the device that a run would use, with its memory, in one line."""
    memory = sum(gpu.vram_total_bytes for gpu in machine.gpus) or machine.ram_total_bytes
    return tr("{device}, {memory}").format(device=training_device_text(machine).rstrip("."), memory=memory_size(memory))


def _user(user: MemoryUser) -> str:
    size = f" {memory_size(user.bytes)}" if user.bytes else ""
    return f"{user.name or tr('process {pid}').format(pid=user.pid)}{size}"
