"""Derives settings for using several GPUs together, each with its reason, from the machine's graph. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from burnish_engine.contract.facts.machine import (
    EdgeFacts,
    ExchangeFacts,
    GpuFacts,
    LinkKind,
    MachineFacts,
    ParallelSettings,
)
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.units import memory_size, short_time
from burnish_engine.hardware.gpu.gpu_table import gpu_rates, short_name
from burnish_engine.hardware.gpu.topology import false_p2p, staged_gb_s, topology

TYPICAL_ADAPTER_BYTES: Final = 168_000_000
"""fp32 gradients of a rank-16 adapter on all seven projections of an 8B model: 42 million parameters."""
_STATE_COPIES = 4  # an adapter's weights, gradients and two moments
_RESERVE_BYTES = 2**30  # CUDA's context and a small pass of activations
_TOGETHER = 0.9  # share of the sum of the GPUs' speeds that they reach together
# Share of an optimizer step that an exchange may take; through host memory it competes with loading and with the copies
# of training itself.
_MOST_SHARE: dict[LinkKind, float] = {"nvlink": 0.5, "pcie_p2p": 0.5, "host_staged": 0.05}
_MOST_ACCUMULATION = 8
# An all-reduce takes a moment to begin, and passes less over NVLink than copies do: 0.18 ms for 40 MB and 0.50 ms for
# 132 MB between two H200 whose copies reach 389 GB/s, 0.21 ms for 40 MB among four.
_START_S = 30e-6
_REDUCED_SHARE: dict[LinkKind, float] = {"nvlink": 0.8}
PASS_S: Final = 1.0
"""Seconds that a pass is taken to last where it is decided before any was made whether gradients are rounded."""
_NOT_WORTH_IT = 0.5  # share of a step past which the second GPU waits more than it helps


@dataclass(frozen=True)
class _SharedRun:
    adapter_bytes: int
    base_bytes: int
    step_s: float

    def needed_bytes(self, gpus: int = 1) -> int:
        """The least free memory of each GPU, bytes, when `gpus` GPUs share the weights."""
        return (self.base_bytes + _STATE_COPIES * self.adapter_bytes) // gpus + _RESERVE_BYTES


def parallel_settings(
    machine: MachineFacts,
    *,
    adapter_bytes: int = TYPICAL_ADAPTER_BYTES,
    base_bytes: int = 0,
    step_s: float = 1.0,
) -> ParallelSettings:
    """Choose how a run would best use this machine's GPUs.

    Args:
        machine: facts of the machine.
        adapter_bytes: bytes of gradients that are exchanged each optimizer step.
        base_bytes: bytes of frozen weights, whole on each GPU unless sharded.
        step_s: seconds of one forward and backward pass on the fastest GPU.
    """
    job = _SharedRun(adapter_bytes, base_bytes, step_s)
    if not machine.gpus:
        reason = f"The GPU does not answer ({machine.gpu_problem})" if machine.gpu_problem else "There is no NVIDIA GPU"
        return ParallelSettings(strategy="single", gpus=[], reasons=[f"{reason}, so the CPU trains."])
    fitting = [gpu for gpu in machine.gpus if gpu.vram_free_bytes >= job.needed_bytes()]
    crowded = [
        f"GPU {gpu.index} is left out: {memory_size(gpu.vram_free_bytes)} of its memory are free and the run needs "
        f"{memory_size(job.needed_bytes())}."
        for gpu in machine.gpus
        if gpu not in fitting
    ]
    obstacle = _obstacle(machine)
    if not fitting:
        return _too_big(machine, job, obstacle)
    if len(machine.gpus) == 1:
        return _single(fitting[0], [f"GPU {fitting[0].index} is the only one and the model fits into it."])
    if obstacle:
        return _single(_by_speed(fitting)[0], [obstacle, *crowded])
    group = _best_group(fitting)
    slower = [
        f"GPU {gpu.index} ({short_name(gpu.name)}) is left out: every step would wait for the slower card."
        for gpu in fitting
        if gpu not in group
    ]
    if len(group) == 1:
        reason = f"GPU {group[0].index} ({short_name(group[0].name)}) alone is the fastest way to use this machine."
        return _single(group[0], [reason, *slower, *crowded])
    return _data_parallel(machine, group, job, [*slower, *crowded])


def exchange_ms(machine: MachineFacts, gpus: Sequence[int], count: int) -> float:
    """Predict the milliseconds of one exchange of gradients.

    What a run measured over these GPUs counts, at the size nearest to this; else the links' rates.

    Args:
        machine: facts of the machine.
        gpus: indices of its GPUs that share a run, two or more.
        count: bytes of the gradients in fp32.
    """

    def by_links(size: int) -> float:
        return 1e3 * (_START_S + size / _all_reduce_gb_s(machine, gpus) / 1e9)

    near = _nearest(machine, gpus, count)
    return near.ms * by_links(count) / by_links(near.bytes) if near else by_links(count)


def _nearest(machine: MachineFacts, gpus: Sequence[int], count: int) -> ExchangeFacts | None:
    """Return the newest of the measured exchanges over these GPUs whose size is nearest to so many bytes."""
    found = [one for one in reversed(machine.exchanges) if one.gpus == sorted(gpus)]
    return min(found, key=lambda one: abs(math.log(one.bytes / count)), default=None)


def rounds_gradients(devices: DevicesSection, precision: str, *, is_slow: bool) -> bool:
    """Return whether gradients travel in bf16: as the recipe says, or where an exchange in fp32 takes too long.

    Args:
        devices: the recipe's section.
        precision: precision of the run; gradients in fp16 are scaled, and the scale changes, so they are not rounded.
        is_slow: whether an exchange in fp32 takes too long; see `is_slow_exchange`.
    """
    if devices.exact or precision == "fp16":
        return False
    return devices.exchange == "bf16" or (devices.exchange == "auto" and is_slow)


def is_slow_exchange(machine: MachineFacts, gpus: Sequence[int], exchange_s: float, busy_s: float) -> bool:
    """Return whether an exchange of gradients takes more of a step than the links between the GPUs are allowed to.

    Args:
        machine: facts of the machine.
        gpus: indices of its GPUs that share the run; one alone exchanges over a network.
        exchange_s: measured seconds of one exchange.
        busy_s: seconds that a GPU computes between two exchanges.
    """
    kind: LinkKind = topology(machine).slowest(gpus).kind if len(gpus) > 1 else "host_staged"
    return exchange_s > _MOST_SHARE[kind] * busy_s


def _obstacle(machine: MachineFacts) -> str:
    """The reason why the GPUs of this machine cannot work together at all; empty where they can."""
    if len(machine.gpus) < 2:
        return ""
    if machine.os.startswith("Windows"):
        return (
            "NCCL, which exchanges gradients between GPUs, does not exist for Windows, and sending them through the "
            "CPU (gloo) costs more than a second GPU brings."
        )
    if any(gpu.mig for gpu in machine.gpus):
        return "GPUs split into instances (MIG) cannot exchange gradients over NCCL."
    if any(gpu.unified_memory for gpu in machine.gpus):
        return "GPUs that share the system's memory have no memory of their own to add."
    return ""


def _single(gpu: GpuFacts, reasons: list[str]) -> ParallelSettings:
    return ParallelSettings(strategy="single", gpus=[gpu.index], reasons=reasons)


def _by_speed(gpus: Sequence[GpuFacts]) -> list[GpuFacts]:
    return sorted(gpus, key=lambda gpu: (-gpu_rates(gpu).bf16_tflops, -gpu.vram_free_bytes, gpu.index))


def _best_group(gpus: Sequence[GpuFacts]) -> list[GpuFacts]:
    """Choose the fastest GPUs, as many as speed up the whole at the pace of the slowest, in order of index."""
    ordered = _by_speed(gpus)
    bf16 = gpu_rates(ordered[0]).bf16
    alike = [gpu for gpu in ordered if gpu_rates(gpu).bf16 == bf16]  # one precision for all

    def speed(count: int) -> float:
        return gpu_rates(alike[count - 1]).bf16_tflops * count * (_TOGETHER if count > 1 else 1.0)

    best = max(range(1, len(alike) + 1), key=speed)
    return sorted(alike[:best], key=lambda gpu: gpu.index)


def _data_parallel(
    machine: MachineFacts, group: Sequence[GpuFacts], job: _SharedRun, left_out: list[str]
) -> ParallelSettings:
    indices = [gpu.index for gpu in group]
    edge = topology(machine).slowest(indices)
    environment, why = _environment(machine, group, edge)
    kind = edge.kind
    exchange_s = exchange_ms(machine, indices, job.adapter_bytes) / 1e3
    is_measured = _nearest(machine, indices, job.adapter_bytes) is not None
    rate = job.adapter_bytes / exchange_s / 1e9 if is_measured else _all_reduce_gb_s(machine, indices)
    compress = exchange_s > _MOST_SHARE[kind] * job.step_s * _MOST_ACCUMULATION
    if compress:
        exchange_s /= 2
    if exchange_s > _NOT_WORTH_IT * job.step_s * _MOST_ACCUMULATION:
        took = short_time(exchange_s)
        reason = f"One exchange of gradients would take {took} at {rate:.1f} GB/s, so one GPU is faster."
        return _single(_by_speed(group)[0], [reason, *left_out])
    accumulation = 1
    while exchange_s > _MOST_SHARE[kind] * job.step_s * accumulation and accumulation < _MOST_ACCUMULATION:
        accumulation *= 2
    return ParallelSettings(
        strategy="data_parallel",
        gpus=indices,
        accumulation=accumulation,
        compress=compress,
        environment=environment,
        exchange_gb_s=rate,
        exchange_ms=exchange_s * 1e3,
        reasons=[
            f"The model fits into each of {_names(group)}, so each trains on its own share of the tokens and only the "
            f"adapter's gradients ({memory_size(job.adapter_bytes)}) are exchanged.",
            _link_reason(machine, edge, indices),
            *_difference(machine, edge, group),
            *_measured_by_a_run(machine, indices, job.adapter_bytes),
            _accumulation_reason(accumulation, exchange_s, job.step_s),
            *(["Gradients are sent in bf16, which halves what these slow links carry."] if compress else []),
            *why,
            *left_out,
        ],
    )


def _all_reduce_gb_s(machine: MachineFacts, gpus: Sequence[int]) -> float:
    """The rate of an all-reduce, bytes of the buffer / time: measured with these GPUs, else that of a ring.

    Through host memory each GPU sends and receives at once, as all others do.
    """
    count = len(gpus)
    if machine.all_reduce_gb_s and count == len(machine.gpus):
        return machine.all_reduce_gb_s
    edge = topology(machine).slowest(gpus)
    rate = _REDUCED_SHARE.get(edge.kind, 1.0) * edge.gb_s
    if edge.kind == "host_staged" and not edge.measured:
        rate = staged_gb_s(machine, gpus) or rate
    return rate * count / (2 * (count - 1))


def _environment(machine: MachineFacts, group: Sequence[GpuFacts], edge: EdgeFacts) -> tuple[dict[str, str], list[str]]:
    """Choose NCCL's environment variables, with the reasons."""
    if false_p2p(machine, group):
        reason = (
            f"NCCL_P2P_DISABLE and NCCL_IB_DISABLE are set: with driver {machine.driver} NCCL tries a peer-to-peer "
            "that GeForce RTX 40 cards do not have, and hangs."
        )
        return {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}, [reason]
    links = [link for link in machine.links if {link.first, link.second} <= {gpu.index for gpu in group}]
    if any(link.p2p_read and link.measured and link.measured.peer_access is False for link in links):
        reason = "NCCL_P2P_DISABLE is set: the driver promises peer-to-peer and CUDA refuses it."
        return {"NCCL_P2P_DISABLE": "1"}, [reason]
    bridged = any(link.common_ancestor == "hostbridge" for link in links)
    if edge.kind == "pcie_p2p" and bridged and edge.measured and not edge.differs:
        reason = "NCCL_P2P_LEVEL is PHB: copies across the host bridge were measured to be fast, and NCCL avoids them."
        return {"NCCL_P2P_LEVEL": "PHB"}, [reason]
    return {}, []


def _link_reason(machine: MachineFacts, edge: EdgeFacts, gpus: Sequence[int]) -> str:
    rate = f"{edge.gb_s:.1f} GB/s {'measured' if edge.measured else 'expected'}"
    link = next((link for link in machine.links if (link.first, link.second) == (edge.first, edge.second)), None)
    if edge.kind == "nvlink" and link:
        return f"NVLink connects them ({link.nvlinks} links, {link.nvlink_gb_s:.0f} GB/s each way): {rate}."
    if edge.kind == "pcie_p2p":
        return f"They read each other's memory over PCIe: {rate}."
    problem = f" ({link.p2p_problem})" if link and link.p2p_problem else ""
    if not edge.measured and (staged := staged_gb_s(machine, gpus)):
        rate = f"{staged:.1f} GB/s each way, measured while all copy"
    return f"They cannot read each other's memory{problem}, so gradients go through host memory: {rate}."


def _measured_by_a_run(machine: MachineFacts, gpus: Sequence[int], count: int) -> list[str]:
    near = _nearest(machine, gpus, count)
    if near is None:
        return []
    return [f"A run measured {short_time(near.ms / 1e3)} for one exchange of {memory_size(near.bytes)}; that counts."]


def _difference(machine: MachineFacts, edge: EdgeFacts, group: Sequence[GpuFacts]) -> list[str]:
    if not edge.measured:
        return []
    words = []
    if edge.differs:
        words.append(
            f"A copy measured {edge.gb_s:.1f} GB/s where the table expects {edge.table_gb_s:.1f}; "
            "the measurement counts."
        )
    if machine.all_reduce_gb_s and len(group) == len(machine.gpus):
        words.append(f"An all-reduce over them measured {machine.all_reduce_gb_s:.1f} GB/s.")
    return words


def _accumulation_reason(accumulation: int, exchange_s: float, step_s: float) -> str:
    share = exchange_s / (step_s * accumulation)
    once = f"Gradients are exchanged once for a step, after its backward passes, which takes {short_time(exchange_s)}"
    if accumulation == 1:
        return f"{once}: {share:.1%} of a step of one pass on each GPU."
    return f"{once}: give each GPU at least {accumulation} passes a step, so that it is {share:.1%} of it."


def _too_big(machine: MachineFacts, job: _SharedRun, obstacle: str) -> ParallelSettings:
    """Shard a base that fits into no single GPU, if that is possible and enough."""
    best = max(machine.gpus, key=lambda gpu: gpu.vram_free_bytes)
    room = memory_size(best.vram_free_bytes)
    lack = f"The model needs {memory_size(job.needed_bytes())} and the GPU with most room has {room} free"
    if len(machine.gpus) == 1 or obstacle:
        return _single(best, [f"{lack}: choose a smaller model or free memory.", *([obstacle] if obstacle else [])])
    ordered = sorted(machine.gpus, key=lambda gpu: -gpu.vram_free_bytes)
    for count in range(2, len(ordered) + 1):
        if ordered[count - 1].vram_free_bytes >= job.needed_bytes(count):
            return _sharded(machine, sorted(ordered[:count], key=lambda gpu: gpu.index), job, lack)
    return _single(best, [f"{lack}; all {len(ordered)} GPUs together are too small too: choose a smaller model."])


def _sharded(machine: MachineFacts, group: Sequence[GpuFacts], job: _SharedRun, lack: str) -> ParallelSettings:
    indices = [gpu.index for gpu in group]
    edge = topology(machine).slowest(indices)
    environment, why = _environment(machine, group, edge)
    count = len(group)
    # The base is gathered for the forward and again for the backward pass; a GPU receives the part that it does not
    # hold.
    gather_s = 2 * job.base_bytes * (count - 1) / count / edge.gb_s / 1e9
    return ParallelSettings(
        strategy="sharded",
        gpus=indices,
        environment=environment,
        exchange_gb_s=edge.gb_s,
        exchange_ms=gather_s * 1e3,
        reasons=[
            f"{lack}, so the weights are shared out over {_names(group)}.",
            _link_reason(machine, edge, indices),
            f"Each pass gathers the weights twice, about {short_time(gather_s)}: make passes large.",
            *why,
        ],
    )


def _names(group: Sequence[GpuFacts]) -> str:
    names = dict.fromkeys(short_name(gpu.name) for gpu in group)
    return f"{len(group)} {' and '.join(names)}"
