"""Builds the machine's graph: GPUs and host are nodes, connections are edges with rates. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from burnish_engine.contract.facts.machine import (
    HOST,
    EdgeFacts,
    GpuFacts,
    LinkFacts,
    LinkKind,
    MachineFacts,
    PcieFacts,
)

# 10^9 bytes/s of one lane in one direction after line coding (PCI-SIG base specifications 1.0 to 6.0).
_LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
# Share of the specified rate that large copies reach: 12 of 15.8 GB/s on PCIe 4 x8, 24 of 31.5 on x16, 45 of 56.25 on
# the bridge of two RTX 3090s.
_PCIE_SHARE, _NVLINK_SHARE = 0.76, 0.8
# Without peer-to-peer every byte goes to host memory and back, in pieces. Four H100 on PCIe 5 x16, specified for 63
# GB/s, reach 24 to 25 in NCCL's ring. GeForce cards sit in boards of desktops, with two memory channels for all of
# that: about 6 GB/s there, also on PCIe 4 x16; PCIe 5 was not measured.
_HOST_STAGED_SHARE, _DESKTOP_STAGED_GB_S = 0.38, 6.0
_DESKTOP = re.compile(r"\bGeForce\b")
# Assumed where a driver tells nothing about a connection: PCIe 3 x8, the least in use for training.
_UNKNOWN_PCIE = PcieFacts(best_generation=3, best_width=8)
# Before this driver NCCL believes in a peer-to-peer that GeForce RTX 40 cards do not have, and hangs (accelerate,
# check_cuda_p2p_ib_support; nccl-tests issue 117).
_FIRST_DRIVER_WITHOUT_FALSE_P2P = (550, 40, 7)
_GEFORCE_40 = re.compile(r"\bGeForce RTX 40\d\d\b")


@dataclass(frozen=True)
class Topology:
    """The graph of a machine."""

    edges: tuple[EdgeFacts, ...]

    def between(self, first: int, second: int) -> EdgeFacts:
        """The edge between two nodes.

        Raises:
            KeyError: There is none: a node that the machine does not have.
        """
        for edge in self.edges:
            if {edge.first, edge.second} == {first, second}:
                return edge
        raise KeyError((first, second))

    def slowest(self, gpus: Sequence[int]) -> EdgeFacts:
        """The slowest edge among some GPUs, which sets the pace of a ring.

        Args:
            gpus: indices of two or more GPUs.
        """
        return min((self.between(*pair) for pair in combinations(gpus, 2)), key=lambda edge: edge.gb_s)


def topology(machine: MachineFacts) -> Topology:
    """Build the graph of a machine's GPUs; measured rates replace those of the table."""
    gpus = {gpu.index: gpu for gpu in machine.gpus}
    links = {(link.first, link.second): link for link in machine.links}
    edges = [_host_edge(gpu) for gpu in machine.gpus if not gpu.unified_memory]
    for first, second in combinations(sorted(gpus), 2):
        link = links.get((first, second)) or LinkFacts(first=first, second=second)
        pair = gpus[first], gpus[second]
        edges.append(_gpu_edge(link, *pair, p2p=has_p2p(link) and not false_p2p(machine, pair)))
    return Topology(tuple(edges))


def peer_gb_s(machine: MachineFacts, gpus: Sequence[int]) -> float:
    """Return the rate at which each of some GPUs reads the others' memory, 10^9 bytes/s; 0: not all of them can.

    Args:
        machine: facts of the machine.
        gpus: indices of two or more GPUs; where it does not have one of them, they cannot.
    """
    found = topology(machine)
    try:
        edges = [found.between(*pair) for pair in combinations(gpus, 2)]
    except KeyError:
        return 0.0
    return 0.0 if any(edge.kind == "host_staged" for edge in edges) else min(edge.gb_s for edge in edges)


def beside_others(machine: MachineFacts, gpu: GpuFacts | None, count: int) -> GpuFacts | None:
    """Return a GPU's facts with the rates of copies that it reaches while others copy as well.

    They share the host's memory: each gets an equal part of what all GPUs of the machine together reached, and no more
    than it reaches alone. Where that was not measured, the GPU's own rates stay.

    Args:
        machine: facts of the machine.
        gpu: one of its GPUs; None stays None.
        count: number of its GPUs that copy at once.
    """
    together, alone = machine.host_copies, gpu.pcie if gpu else None
    if gpu is None or together is None or count < 2 or not (alone and alone.to_gpu_gb_s and alone.from_gpu_gb_s):
        return gpu
    sharing = min(count, together.gpus)
    rates = {
        "to_gpu_gb_s": min(alone.to_gpu_gb_s, together.to_gpus_gb_s / sharing),
        "from_gpu_gb_s": min(alone.from_gpu_gb_s, together.from_gpus_gb_s / sharing),
    }
    return gpu.model_copy(update={"pcie": alone.model_copy(update=rates)})


def staged_gb_s(machine: MachineFacts, gpus: Sequence[int]) -> float:
    """Return the rate of each way between each of some GPUs and host memory, all at once, 10^9 bytes/s; 0: unknown.

    Args:
        machine: facts of the machine.
        gpus: indices of two or more GPUs.
    """
    together = machine.host_copies
    return together.both_ways_gb_s / 2 / min(len(gpus), together.gpus) if together else 0.0


def with_edges(machine: MachineFacts) -> MachineFacts:
    """Return a machine's facts with the connections of its graph."""
    return machine.model_copy(update={"edges": list(topology(machine).edges)})


def pcie_gb_s(generation: int, width: int) -> float:
    """The specified rate of a PCIe connection in one direction, 10^9 bytes/s.

    Args:
        generation: PCIe generation, 1 to 6; later ones count as 6.
        width: number of lanes.
    """
    return _LANE_GB_S[min(max(generation, 1), max(_LANE_GB_S))] * width


def spec_pcie_gb_s(gpu: GpuFacts) -> float:
    """The specified rate of a GPU's connection under load, or else the best of card and slot together, 10^9 bytes/s.

    An idle card's current generation does not count, because it falls to save power.
    """
    pcie = gpu.pcie or _UNKNOWN_PCIE
    if pcie.under_load and pcie.generation and pcie.width:
        return pcie_gb_s(pcie.generation, pcie.width)
    generation = pcie.best_generation or pcie.generation or _UNKNOWN_PCIE.best_generation or 3
    return pcie_gb_s(generation, pcie.best_width or pcie.width or _UNKNOWN_PCIE.best_width or 8)


def _host_edge(gpu: GpuFacts) -> EdgeFacts:
    spec = spec_pcie_gb_s(gpu)
    expected = _PCIE_SHARE * spec
    measured = [rate for rate in (gpu.pcie.to_gpu_gb_s, gpu.pcie.from_gpu_gb_s) if rate] if gpu.pcie else []
    return EdgeFacts(
        first=gpu.index,
        second=HOST,
        kind="pcie",
        gb_s=min(measured, default=expected),
        table_gb_s=expected,
        measured=bool(measured),
        spec_gb_s=spec,
    )


def _gpu_edge(link: LinkFacts, first: GpuFacts, second: GpuFacts, *, p2p: bool) -> EdgeFacts:
    spec = min(spec_pcie_gb_s(first), spec_pcie_gb_s(second))
    kind: LinkKind = "pcie_p2p" if p2p else "host_staged"
    expected = (_PCIE_SHARE if p2p else _HOST_STAGED_SHARE) * spec
    if not p2p and any(_DESKTOP.search(gpu.name) for gpu in (first, second)):
        expected = min(expected, _DESKTOP_STAGED_GB_S)
    if link.nvlinks and link.nvlink_gb_s and (link.measured is None or link.measured.peer_access is not False):
        kind, spec, expected = "nvlink", link.nvlink_gb_s, _NVLINK_SHARE * link.nvlink_gb_s
    measured = link.measured.copy_gb_s if link.measured else None
    return EdgeFacts(
        first=link.first,
        second=link.second,
        kind=kind,
        gb_s=measured or expected,
        table_gb_s=expected,
        measured=measured is not None,
        spec_gb_s=spec,
    )


def has_p2p(link: LinkFacts) -> bool:
    """Whether one GPU can access the other's memory: by CUDA's answer where it was asked, else the driver's."""
    if link.measured and link.measured.peer_access is not None:
        return link.measured.peer_access
    return bool(link.p2p_read and link.p2p_write)


def false_p2p(machine: MachineFacts, gpus: Sequence[GpuFacts]) -> bool:
    """Whether the driver promises peer-to-peer access that these cards do not have.

    Args:
        machine: facts of the machine, for its driver version.
        gpus: cards that would use peer-to-peer.
    """
    version = tuple(int(part) for part in re.findall(r"\d+", machine.driver or ""))
    old = bool(version) and version < _FIRST_DRIVER_WITHOUT_FALSE_P2P
    return old and any(_GEFORCE_40.search(gpu.name) for gpu in gpus)
