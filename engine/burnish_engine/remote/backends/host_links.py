"""Reads how the GPUs of a host are connected, from what its `nvidia-smi topo` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from burnish_engine.contract.facts.machine import CommonAncestor, GpuFacts, LinkFacts
from burnish_engine.hardware.gpu.links import LINK_GB_S

# Legend of `nvidia-smi topo --matrix`.
_ANCESTORS: dict[str, CommonAncestor] = {
    "PIX": "single", "PXB": "multiple", "PHB": "hostbridge", "NODE": "node", "SYS": "system",
}  # fmt: skip
# Legend of `nvidia-smi topo --p2p r`.
_PROBLEMS = {
    "CNS": "chipset not supported", "GNS": "GPU not supported", "TNS": "topology not supported", "NS": "not supported",
    "DR": "disabled by a registry key",
}  # fmt: skip
_GPU = re.compile(r"GPU\d{1,4}", flags=re.ASCII)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def host_links(paths: Sequence[str], reads: Sequence[str], gpus: Sequence[GpuFacts]) -> list[LinkFacts]:
    """Return the connection of each pair of GPUs; none where the host does not say.

    Args:
        paths: lines of `nvidia-smi topo --matrix`.
        reads: lines of `nvidia-smi topo --p2p r`.
        gpus: GPUs of the host.
    """
    found, can_read = dict(_cells(paths)), dict(_cells(reads))
    links = []
    for first, second in combinations(gpus, 2):
        pair = first.index, second.index
        path, read = found.get(pair, ""), can_read.get(pair, "")
        if not path:
            continue
        nvlinks = int(path[2:]) if re.fullmatch(r"NV\d{1,3}", path, flags=re.ASCII) else 0
        rate = LINK_GB_S.get(first.compute_capability or (0, 0))
        reaches = read == "OK" if read in _PROBLEMS or read == "OK" else None
        links.append(
            LinkFacts(
                first=pair[0],
                second=pair[1],
                common_ancestor=_ANCESTORS.get(path),
                nvlinks=nvlinks,
                nvlink_gb_s=nvlinks * rate if nvlinks and rate else None,
                p2p_read=reaches,
                p2p_write=reaches,
                p2p_problem=_PROBLEMS.get(read, ""),
            )
        )
    return links


def _cells(lines: Sequence[str]) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the entries of a matrix with a row and a column for each GPU, by the numbers of the two."""
    columns: list[str] = []
    for line in lines:
        words = _ESCAPES.sub("", line).split()
        if words and words[0] == "GPU0" and "X" not in words:
            columns = [word for word in words if _GPU.fullmatch(word)]
        elif words and _GPU.fullmatch(words[0]):
            for column, word in zip(columns, words[1:], strict=False):
                yield (int(words[0][3:]), int(column[3:])), word
