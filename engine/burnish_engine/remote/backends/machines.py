"""Facts of machines elsewhere, from what hosts and services tell; plans are made on them as on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from burnish_engine.contract.facts.machine import CommonAncestor, GpuFacts, LinkFacts, MachineFacts, PcieFacts
from burnish_engine.contract.recipe.recipe import MOST_GPUS
from burnish_engine.hardware.gpu.gpu_table import GpuRow, gpu_rows, normal_name
from burnish_engine.hardware.gpu.links import LINK_GB_S
from burnish_engine.remote.backends.bounded_numbers import core_count, first_number, gib, gpu_count

_GIB = 2**30
_ASSUMED_RAM, _ASSUMED_DISK = 64 * _GIB, 200 * 10**9  # where a service does not tell
_FREE = 0.97  # share of a card's memory that a process can have: the driver keeps some

SURVEY = """
fields=name,memory.total,memory.free,compute_cap,pcie.link.gen.max,pcie.link.width.max
nvidia-smi --query-gpu=$fields --format=csv,noheader,nounits 2> /dev/null | sed 's/^/gpu=/'
nvidia-smi topo -m 2> /dev/null | sed 's/^/path=/'
nvidia-smi topo -p2p r 2> /dev/null | sed 's/^/read=/'
echo "cores=$(getconf _NPROCESSORS_ONLN)"
sed -n 's/^MemTotal: */ram=/p; s/^MemAvailable: */free=/p' /proc/meminfo
echo "disk=$(df -Pk "$HOME" | awk 'NR == 2 { print $4 }')"
echo "os=$(uname -s)"; echo "arch=$(uname -m)"
"""
"""Script for a POSIX shell that prints what `host_machine` reads."""
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


def host_machine(answer: str) -> MachineFacts:
    """Read what the survey's script printed."""
    gpus: list[GpuFacts] = []
    told: dict[str, str] = {}
    tables: dict[str, list[str]] = {"path": [], "read": []}
    for line in answer.splitlines():
        key, _, value = line.partition("=")
        if key == "gpu" and len(gpus) < MOST_GPUS:
            gpus += _gpu_of(value, len(gpus))
        elif key in tables:
            tables[key].append(value)
        else:
            told[key] = value.strip()
    return MachineFacts(
        os=told.get("os", ""),
        architecture=told.get("arch", ""),
        python="",
        cpu="",
        cpu_cores=core_count(first_number(told.get("cores", ""))),
        ram_total_bytes=first_number(told.get("ram", "")) * 1024 or _ASSUMED_RAM,
        ram_free_bytes=first_number(told.get("free", "")) * 1024 or _ASSUMED_RAM,
        disk_free_bytes=first_number(told.get("disk", "")) * 1024 or _ASSUMED_DISK,
        gpus=gpus,
        links=_host_links(tables["path"], tables["read"], gpus),
    )


def service_machine(
    gpu: str, count: int, *, memory_gib: float = 0.0, ram_gib: float = 0.0, disk_gb: float = 0.0, cores: int = 8
) -> MachineFacts:
    """Assume a machine of a service.

    Args:
        gpu: name of its GPU as the service writes it; empty: none.
        count: number of GPUs.
        memory_gib: memory of each GPU; 0: as the table has it.
        ram_gib: system memory; 0: not told.
        disk_gb: disk; 0: not told.
        cores: processor cores.
    """
    row = find_card(gpu, memory_gib) if gpu else None
    size = int((gib(memory_gib) or (row.memory_gb if row else 0.0)) * _GIB)
    card = GpuFacts(
        index=0,
        name=row.name if row else gpu,
        compute_capability=(8, 0) if row is None or row.rates.bf16 else (7, 5),
        vram_total_bytes=size,
        vram_free_bytes=int(size * _FREE),
        multiprocessors=row.rates.multiprocessors if row else None,
    )
    ram = int(gib(ram_gib) * _GIB) or _ASSUMED_RAM
    return MachineFacts(
        os="Linux",
        architecture="x86_64",
        python="",
        cpu="",
        cpu_cores=core_count(cores),
        ram_total_bytes=ram,
        ram_free_bytes=int(ram * 0.9),
        disk_free_bytes=int(gib(disk_gb) * 1e9) or _ASSUMED_DISK,
        gpus=[card.model_copy(update={"index": n}) for n in range(gpu_count(count) if gpu else 0)],
    )


def find_card(name: str, memory_gib: float = 0.0) -> GpuRow | None:
    """Find a GPU of the table by a name that leaves parts out, such as "a100", "Nvidia L40S" or "H100-80GB".

    Args:
        name: name as a service writes it.
        memory_gib: memory of the card, which tells those of one name apart; 0: not told.
    """
    told = re.search(r"(\d{1,5})\s*gb?\b", name, flags=re.IGNORECASE)
    memory = memory_gib or (float(told[1]) if told else 0.0)
    wanted = [word for word in normal_name(name.replace("-", " ").replace("_", " ")).split() if not _is_size(word)]
    rows = []
    for row in gpu_rows():
        words = normal_name(row.name).split()
        if wanted and words[: len(wanted)] == wanted:
            rows.append((len(words) - len(wanted), abs(row.memory_gb - memory) if memory else 0.0, row))
    if not rows:
        return None
    if memory:
        return min(rows, key=lambda entry: (entry[1], entry[0]))[2]
    return min(rows, key=lambda entry: entry[0])[2]


def _is_size(word: str) -> bool:
    return re.fullmatch(r"\d+gb?", word) is not None and word.endswith(("g", "gb"))


def _gpu_of(text: str, index: int) -> list[GpuFacts]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) < 4:
        return []
    generation, width = (first_number(part) or None for part in (*parts[4:6], "", "")[:2])
    told = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", parts[3], flags=re.ASCII)
    capability = (int(told[1]), int(told[2])) if told else None
    total, free = (first_number(part) * 2**20 for part in parts[1:3])
    return [
        GpuFacts(
            index=index,
            name=parts[0],
            compute_capability=capability,
            vram_total_bytes=total,
            vram_free_bytes=free,
            pcie=PcieFacts(best_generation=generation, best_width=width),
        )
    ]


def _host_links(paths: Sequence[str], reads: Sequence[str], gpus: Sequence[GpuFacts]) -> list[LinkFacts]:
    """Return the connection of each pair of GPUs; none where the host does not say."""
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
