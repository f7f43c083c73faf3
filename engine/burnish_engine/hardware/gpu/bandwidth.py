"""Measures the rates of links in a process that may load torch, and merges them into the machine's facts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burnish_engine.contract.facts.machine import HostCopiesFacts, LinkMeasurement, MachineFacts, PcieFacts

_MODULE = "burnish_engine.models.device.link_check"
_TIMEOUT_S = 240


@dataclass(frozen=True)
class MeasuredLinks:
    """The outcome of measuring a machine's links.

    Attributes:
        machine: facts of the machine with the measured rates.
        problems: failures, in sentences.
    """

    machine: MachineFacts
    problems: list[str]


def measure_links(machine: MachineFacts, environment: Mapping[str, str] | None = None) -> MeasuredLinks:
    """Measure all links of a machine with GPUs. Takes about 3 s a GPU and a pair, and starts processes.

    Args:
        machine: facts of this machine.
        environment: environment variables that NCCL needs here.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", _MODULE],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        return MeasuredLinks(machine, [f"The measurement of the links gave no answer within {_TIMEOUT_S} s."])
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        return MeasuredLinks(
            machine, [f"The links could not be measured (exit code {done.returncode}: {lines[-1][:300]})."]
        )
    return merge_measurements(machine, answer)


def merge_measurements(machine: MachineFacts, answer: dict[str, Any]) -> MeasuredLinks:
    """Merge an answer of the measuring process into a machine's facts.

    Args:
        machine: facts of the same machine.
        answer: answer as `burnish_engine.models.device.link_check` prints it.
    """
    pcie = {entry["gpu"]: entry for entry in answer["pcie"]}
    pairs = {(entry["first"], entry["second"]): entry for entry in answer["links"]}
    gpus = [
        gpu.model_copy(update={"pcie": _pcie(gpu.pcie or PcieFacts(), pcie[gpu.index])}) if gpu.index in pcie else gpu
        for gpu in machine.gpus
    ]
    links = []
    problems = []
    for link in machine.links:
        entry = pairs.get((link.first, link.second))
        if entry is None:
            links.append(link)
            continue
        fields = {name: entry[name] for name in LinkMeasurement.model_fields}
        links.append(link.model_copy(update={"measured": LinkMeasurement.model_validate(fields)}))
        if not entry["intact"]:
            problems.append(
                f"What GPU {link.first} and GPU {link.second} copy to each other does not arrive as it was sent. "
                "Do not train on both: the driver, its settings, or the BIOS (IOMMU, ACS) is at fault."
            )
    if answer["all_reduce_problem"]:
        problems.append(f"An all-reduce over all GPUs failed: {answer['all_reduce_problem']}.")
    together = answer.get("host_copies")
    facts = {
        "gpus": gpus,
        "links": links,
        "all_reduce_gb_s": answer["all_reduce_gb_s"],
        "host_copies": HostCopiesFacts.model_validate(together) if together else None,
    }
    return MeasuredLinks(machine.model_copy(update=facts), problems)


def _pcie(idle: PcieFacts, entry: dict[str, Any]) -> PcieFacts:
    """Replace the idle link's generation, width and rates by those measured under load."""
    load = {name: entry[name] for name in ("generation", "width") if entry.get(name)}
    rates = {name: entry[name] for name in ("to_gpu_gb_s", "from_gpu_gb_s")}
    return idle.model_copy(update={**load, **rates, "under_load": "generation" in load})
