"""Reads how each pair of GPUs is connected: NVLink, switches, peer-to-peer, the path over the PCI bus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from burnish_engine.contract.facts.machine import CommonAncestor, GpuFacts, LinkFacts
from burnish_engine.hardware.gpu.nvml import Driver, bus_id

# nvml.h: NVML_NVLINK_MAX_LINKS of driver 13; nvmlIntNvLinkDeviceType_t; nvmlGpuP2PCapsIndex_t.
_MOST_LINKS, _SWITCH = 36, 2
_READ, _WRITE, _NVLINK = 0, 1, 2
_P2P_OK, _P2P_UNKNOWN = 0, 6
# nvmlGpuP2PStatus_t in the wording of `nvidia-smi topo -p2p`.
_P2P_PROBLEMS = {
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    4: "disabled by a registry key",
    5: "not supported",
}
# nvmlGpuTopologyLevel_t.
_ANCESTORS: dict[int, CommonAncestor] = {
    0: "internal",
    10: "single",
    20: "multiple",
    30: "hostbridge",
    40: "node",
    50: "system",
}
# 10^9 bytes/s of one link in one direction, by compute capability, as NCCL too decides it: the version that NVML tells
# does not separate GA102's slower bridge. V100 300 GB/s both ways over 6 links, A100 600 over 12, H100 900 over 18,
# B200 1800 over 18 (datasheets); RTX 2080 Ti 100 over 2 (Turing whitepaper); GA102 112.5 over 4 (GA102 whitepaper).
LINK_GB_S = {(7, 0): 25.0, (7, 5): 25.0, (8, 0): 25.0, (8, 6): 14.0625, (9, 0): 25.0, (10, 0): 50.0, (10, 3): 50.0}
"""Rate of one NVLink in one direction, 10^9 bytes/s, by compute capability."""


@dataclass(frozen=True)
class _Links:
    """The active NVLinks of one GPU.

    Attributes:
        to_gpus: number of links by the bus id of the GPU at the other end.
        to_switches: number of links that end at an NVSwitch.
        active: number of all active links.
    """

    to_gpus: dict[str, int]
    to_switches: int
    active: int


def read_links(driver: Driver, gpus: Sequence[GpuFacts]) -> list[LinkFacts]:
    """Read the connection of each pair of GPUs.

    Args:
        driver: initialized NVML.
        gpus: GPUs that answer.
    """
    if len(gpus) < 2:
        return []
    handles = {gpu.index: driver.ask("nvmlDeviceGetHandleByIndex", gpu.index) for gpu in gpus}
    links = {gpu.index: _active_links(driver, handles[gpu.index]) for gpu in gpus}
    return [
        _pair(driver, (first, second), handles, _shared_links(driver, (first, second), handles, links))
        for first, second in combinations(gpus, 2)
    ]


def _pair(driver: Driver, pair: tuple[GpuFacts, GpuFacts], handles: dict[int, Any], nvlinks: int) -> LinkFacts:
    first, second = pair
    ends = handles[first.index], handles[second.index]
    read, write = (driver.integer("nvmlDeviceGetP2PStatus", *ends, index) for index in (_READ, _WRITE))
    problems = dict.fromkeys(_P2P_PROBLEMS[status] for status in (read, write) if status in _P2P_PROBLEMS)
    per_link = LINK_GB_S.get(first.compute_capability or (0, 0))
    ancestor = driver.integer("nvmlDeviceGetTopologyCommonAncestor", *ends)
    return LinkFacts(
        first=first.index,
        second=second.index,
        common_ancestor=None if ancestor is None else _ANCESTORS.get(ancestor),
        nvlinks=nvlinks,
        nvlink_gb_s=nvlinks * per_link if nvlinks and per_link else None,
        p2p_read=_p2p(read),
        p2p_write=_p2p(write),
        p2p_problem=", ".join(problems),
    )


def _p2p(status: int | None) -> bool | None:
    return None if status in {None, _P2P_UNKNOWN} else status == _P2P_OK


def _active_links(driver: Driver, handle: Any) -> _Links:
    to_gpus: dict[str, int] = {}
    switches = active = 0
    for link in range(_MOST_LINKS):
        state = driver.integer("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:  # past the last link, or no NVLink at all
            break
        if not state:
            continue
        active += 1
        if driver.integer("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) == _SWITCH:
            switches += 1
        else:
            remote = bus_id(driver.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link))
            to_gpus[remote] = to_gpus.get(remote, 0) + 1
    return _Links(to_gpus, switches, active)


def _shared_links(
    driver: Driver, pair: tuple[GpuFacts, GpuFacts], handles: dict[int, Any], links: dict[int, _Links]
) -> int:
    """Count the NVLinks that traffic between two GPUs can use: direct ones, or those that both have to switches."""
    first, second = pair
    mine, theirs = links[first.index], links[second.index]
    direct = mine.to_gpus.get(second.pci_bus_id, 0) if second.pci_bus_id else 0
    switched = min(mine.to_switches, theirs.to_switches)
    if direct or switched:
        return direct + switched
    # In a virtual machine the other end has a bus id of the host; then the peer-to-peer table says who is linked.
    ends = handles[first.index], handles[second.index]
    linked = driver.integer("nvmlDeviceGetP2PStatus", *ends, _NVLINK) == _P2P_OK
    return min(mine.active, theirs.active) if linked else 0
