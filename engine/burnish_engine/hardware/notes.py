"""Writes notes that a person should know about a machine although nothing is broken. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts, ParallelSettings
from burnish_engine.contract.units import memory_size
from burnish_engine.hardware.gpu.gpu_table import gpu_rates, short_name
from burnish_engine.hardware.gpu.topology import peer_gb_s

_WORTH_NAMING_BYTES = 200_000_000
_BUSY_SHARE = 0.1  # share of a GPU's memory; a desktop and the driver take less
_MOST_NAMED = 4
_MORE_FREE_SHARE = 0.05  # share of a GPU's memory by which another of the same speed has to be freer to be better
_HOT_C = 84  # cards slow down from about 83 to 90 degrees (their maximum in NVIDIA's specifications)


def notes(machine: MachineFacts, settings: ParallelSettings) -> list[str]:
    """List the notes, the most pressing first.

    Args:
        machine: facts of the machine.
        settings: settings with which a run would best use the GPUs.
    """
    found = [note for gpu in machine.gpus for note in [*_memory_users(gpu), *_state(gpu)]]
    found += [*_sleep(machine), *_pcie(machine), *_several(machine, settings), *_surroundings(machine)]
    return found


def _memory_users(gpu: GpuFacts) -> Iterator[str]:
    named = [user for user in gpu.users if (user.bytes or 0) >= _WORTH_NAMING_BYTES]
    for user in named[:_MOST_NAMED]:
        yield f"{user.name or f'Process {user.pid}'} holds {memory_size(user.bytes or 0)} of GPU {gpu.index}."
    used = gpu.vram_total_bytes - gpu.vram_free_bytes
    if named or gpu.unified_memory or used < _BUSY_SHARE * gpu.vram_total_bytes:
        return
    programs = list(dict.fromkeys(user.name for user in gpu.users if user.name))[:_MOST_NAMED]
    who = (
        f"shared by {', '.join(programs)} (this system does not say how much each takes)"
        if programs
        else "held by programs that the driver does not name"
    )
    yield f"{memory_size(used)} of GPU {gpu.index} are in use, {who}."


def _state(gpu: GpuFacts) -> Iterator[str]:
    if gpu.unified_memory:
        yield (
            f"GPU {gpu.index} shares the system's {memory_size(gpu.vram_total_bytes)} of memory: what other programs "
            "use is missing for training, and moving weights out to the system's memory frees nothing."
        )
    if gpu.display:
        yield f"A screen hangs on GPU {gpu.index}: the desktop takes some of its memory and may stutter during a run."
    if gpu.mig:
        yield f"GPU {gpu.index} is split into instances (MIG): a run sees one instance, not the whole card."
    if "laptop" in gpu.name.lower():
        yield f"GPU {gpu.index} is a laptop GPU: plug in the charger, or the system holds its power down."
    if gpu.temperature_c is not None and gpu.temperature_c >= _HOT_C:
        yield f"GPU {gpu.index} is at {gpu.temperature_c} °C and will slow itself down: look after its cooling."


def _sleep(machine: MachineFacts) -> Iterator[str]:
    if machine.sleep_after_s:
        yield (
            f"The system goes to sleep after {machine.sleep_after_s / 60:.0f} min without use, which interrupts a run. "
            "Switch that off in the power settings for long runs."
        )


def _pcie(machine: MachineFacts) -> Iterator[str]:
    for gpu in machine.gpus:
        pcie = gpu.pcie
        if not pcie or not pcie.under_load or not pcie.generation or not pcie.width:
            continue
        best = pcie.best_generation or pcie.generation, pcie.best_width or pcie.width
        if pcie.generation < best[0] or pcie.width < best[1]:
            yield (
                f"GPU {gpu.index} runs at PCIe {pcie.generation} x{pcie.width} even under load; card and slot can do "
                f"PCIe {best[0]} x{best[1]}. Look at its seat, riser and the BIOS. Loading is slower, training hardly."
            )
        elif pcie.card_generation and pcie.generation < pcie.card_generation:
            yield (
                f"GPU {gpu.index} can do PCIe {pcie.card_generation}, its slot does PCIe {pcie.generation}. Loading "
                "is slower, training hardly."
            )


def _several(machine: MachineFacts, settings: ParallelSettings) -> Iterator[str]:
    if len(machine.gpus) < 2:
        return
    if settings.strategy == "data_parallel":
        yield _shared_run(settings)
    if settings.strategy == "sharded":
        base = (
            'With "data_parallel" they share the layers of an adapter\'s base that none has room for (memory.weights).'
            if peer_gb_s(machine, settings.gpus)
            else 'Layers of an adapter\'s base come from host memory (memory.weights = "host").'
        )
        yield f'Whole models are shared out over these GPUs with devices.strategy = "sharded". {base}'
    first = machine.gpus[0]
    best = max(machine.gpus, key=lambda gpu: (gpu_rates(gpu).bf16_tflops, gpu.vram_free_bytes, -gpu.index))
    name = f"GPU {best.index} ({short_name(best.name)})"
    more = best.vram_free_bytes - first.vram_free_bytes
    if gpu_rates(best).bf16_tflops > gpu_rates(first).bf16_tflops:
        yield f"{name} is the faster one: set devices.gpus = [{best.index}] in the recipe."
    elif more > _MORE_FREE_SHARE * first.vram_total_bytes or (first.display and best.display is False):
        yield f"{name} has {memory_size(more)} more memory free: set devices.gpus = [{best.index}] in the recipe."


def _shared_run(settings: ParallelSettings) -> str:
    """Say how these GPUs share a run."""
    count = len(settings.gpus)
    if settings.gpus == list(range(count)):
        how = f"`burnish train RECIPE --gpus {count}`"
    else:
        how = f'A recipe with devices.strategy = "data_parallel" and devices.gpus = {settings.gpus}'
    return f"{how} shares a run's steps among {count} GPUs."


def _surroundings(machine: MachineFacts) -> Iterator[str]:
    connected = [gpu.pcie for gpu in machine.gpus if gpu.pcie]
    if any(pcie.to_gpu_gb_s is None for pcie in connected):
        yield "Rates of links are from tables. `burnish doctor --bandwidth` measures them in some seconds."
    if machine.container:
        yield "This is a container or WSL: the host's programs and power settings are not visible from here."
