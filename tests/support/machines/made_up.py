"""Machines to plan for, made up."""

from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts

GIB = 2**30


def cpu_machine(*, ram=24 * GIB, disk=200 * GIB, cores=8, bf16=False, gpus=()):
    """A machine without a GPU."""
    return MachineFacts(
        os="Linux 6.1", architecture="x86_64", python="3.11.7", cpu="made up", cpu_cores=cores, ram_total_bytes=ram,
        ram_free_bytes=ram, disk_free_bytes=disk, bf16_cpu=bf16, gpus=list(gpus),
    )  # fmt: skip


def gpu_machine(name, vram, *, free=None, capability=(8, 9), unified=False, ram=64 * GIB, count=1):
    """A machine with one kind of GPU."""
    gpus = [
        GpuFacts(
            index=index, name=name, compute_capability=capability, vram_total_bytes=vram, unified_memory=unified,
            vram_free_bytes=vram - GIB // 2 if free is None else free, multiprocessors=64,
        )
        for index in range(count)
    ]  # fmt: skip
    return cpu_machine(ram=ram, gpus=gpus)
