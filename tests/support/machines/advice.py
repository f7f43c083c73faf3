"""Machines, targets and datasets that advice is tested on."""

import json
from pathlib import Path
from unittest.mock import patch

from burnish_engine.contract.facts.facts import DatasetFacts, LengthStats
from burnish_engine.contract.facts.machine import GpuFacts, MachineFacts
from burnish_engine.contract.recipe.recipe_export import TargetSection

from support.machines.replay import replay

GIB = 2**30
RECORDINGS = Path(__file__).resolve().parents[2] / "golden" / "machines"

PHONE = TargetSection(kind="phone", ram_gib=6.0)
LAPTOP = TargetSection(kind="laptop", ram_gib=16.0)
DESKTOP = TargetSection(kind="desktop", ram_gib=64.0)


def recorded(name):
    """A machine of tests/golden/machines."""
    return replay(json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8")))


def machine(*gpus, ram_gib=64, free_share=0.8, cores=16, **facts):
    """A machine made up; GPUs are (name, GiB, compute capability)."""
    made = [
        GpuFacts(
            index=index,
            name=name,
            compute_capability=capability,
            vram_total_bytes=int(gib * GIB),
            vram_free_bytes=int(gib * GIB * 0.95),
        )
        for index, (name, gib, capability) in enumerate(gpus)
    ]
    values = {
        "os": "Linux", "architecture": "x86_64", "python": "3.11", "cpu": "a processor", "cpu_cores": cores,
        "ram_total_bytes": ram_gib * GIB, "ram_free_bytes": int(ram_gib * GIB * free_share),
        "disk_free_bytes": 500 * GIB, "gpus": made, "bf16_cpu": False,
    }  # fmt: skip
    return MachineFacts(**{**values, **facts})


H100 = machine(("NVIDIA H100 80GB HBM3", 79.6, (9, 0)), ram_gib=256, cores=26)
H200 = machine(("NVIDIA H200", 140, (9, 0)), ram_gib=256, cores=26)
DESKTOP_4060 = machine(("NVIDIA GeForce RTX 4060", 8, (8, 9)), ram_gib=32, cores=8)
RTX_2080 = machine(("NVIDIA GeForce RTX 2080 Ti", 11, (7, 5)), ram_gib=32, cores=8)
CPU_16 = machine(ram_gib=16, cores=8)
CPU_24 = machine(ram_gib=24, cores=2, free_share=0.9)


def dataset(rows, histogram, *, supervised=0.6, validation_share=0.05):
    """What `inspect` finds in a dataset of (longest length, rows) bins; rows spread evenly over their bin."""
    edges = [0, *(edge for edge, _ in histogram)]
    total = sum(count * (low + high) / 2 for low, (high, count) in zip(edges, histogram, strict=False))
    mean = total / sum(count for _, count in histogram)
    seen, p95 = 0, histogram[-1][0]
    for edge, count in histogram:
        seen += count
        if seen >= 0.95 * rows:
            p95 = edge
            break
    held = max(1, round(rows * validation_share))
    tokens = round(mean * rows)
    return DatasetFacts(
        files=["data.jsonl"], format="jsonl", shape="messages", columns=["messages"], rows=rows,
        train_rows=rows - held, validation_rows=held, tokens=tokens, supervised_tokens=int(tokens * supervised),
        lengths=LengthStats(mean=mean, median=mean, p95=p95, longest=histogram[-1][0], histogram=histogram),
        micro_batches=1, fill=0.5,
    )  # fmt: skip


TINY = dataset(100, [(128, 20), (256, 60), (512, 20)])
CHATS = dataset(50_000, [(128, 10_000), (256, 15_000), (512, 17_500), (768, 5_000), (1024, 2_000), (4096, 500)])
DOCUMENTS = dataset(2_000, [(2048, 200), (4096, 500), (8192, 700), (16384, 500), (32768, 100)])

FITS = {}
"""Fits that `remembered_fits` has worked out, by all that they depend on."""


def remembered_fits():
    """Within this context, ranking works each fit out once: a catalog takes seconds, and tests ask for it again."""
    from burnish_engine.advise.suggest import rank

    real = rank.quick_fit

    def once(inputs):
        asked = [inputs.spec, inputs.machine, inputs.target, *([inputs.dataset] if inputs.dataset else [])]
        key = (inputs.path, *(one.model_dump_json() for one in asked))
        if key not in FITS:
            FITS[key] = real(inputs)
        return FITS[key]

    return patch.object(rank, "quick_fit", once)
