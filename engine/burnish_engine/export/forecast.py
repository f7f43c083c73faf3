"""What an export will take, before it begins: the exact size of each file, and disk, memory and time of each stage."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path

from burnish_engine.advise.gguf_size import TensorShape, choose_types, file_bytes
from burnish_engine.contract.recipe_export import GgufType
from burnish_engine.export.gguf.write import GgufPlan, header_bytes
from burnish_engine.export.moments import (
    MOMENT_BYTES,
    input_name,
    moment_bytes,
    moment_rows,
    refining_bytes,
    rooting_bytes,
)
from burnish_engine.export.quantize import USE_IMPORTANCE

_WRITE_BYTES_S = 100e6  # reading, merging and writing 16-bit tensors; slower disks are rare
_QUANTIZE_NS = {"IQ4_NL": 80.0, "IQ4_XS": 80.0, "IQ3_M": 150.0, "IQ3_XXS": 150.0, "IQ2_M": 250.0}
_OTHER_QUANTIZE_NS = 20.0
"""A weight and core, with an importance matrix; measured on SmolLM2-135M and two cores of a Sapphire Rapids Xeon."""
_REFINE_NS = 80.0
"""The same for choosing codes anew, beside its products."""
_CHECK_TOKENS = 2500  # compared positions and replies of one file
_REPLY_TOKENS = 3 * 96
_RUNTIME_BYTES = 600 * 1024 * 1024  # Python with torch, transformers and llama.cpp


@dataclass(frozen=True)
class Stage:
    """One stage of an export.

    Attributes:
        what: What is done.
        disk_bytes: What it adds to the disk.
        memory_bytes: What it takes at its peak.
        seconds: Rough duration.
    """

    what: str
    disk_bytes: int
    memory_bytes: int
    seconds: float


@dataclass(frozen=True)
class Forecast:
    """What an export will take.

    Attributes:
        sizes: Exact size of each file asked for, bytes.
        stages: In order.
    """

    sizes: dict[GgufType, int]
    stages: list[Stage]

    @property
    def disk_bytes(self) -> int:
        """Free disk it needs, bytes."""
        return sum(stage.disk_bytes for stage in self.stages)

    @property
    def memory_bytes(self) -> int:
        """Free memory it needs, bytes."""
        return max(stage.memory_bytes for stage in self.stages)

    @property
    def seconds(self) -> float:
        """Rough duration of all."""
        return sum(stage.seconds for stage in self.stages)


def predicted_sizes(
    plan: GgufPlan, quants: Sequence[GgufType], scratch: Path, *, importance: bool
) -> dict[GgufType, int]:
    """Exact size of each type's file, bytes.

    Args:
        plan: What will be written.
        quants: The types.
        scratch: Folder for a small temporary file.
        importance: Whether there will be an importance matrix.

    Raises:
        UsageError: The model's row lengths do not fit a type.
    """
    shapes = [TensorShape(one.name, one.shape, "F32" if one.full_precision else "F16") for one in plan.tensors]
    start = header_bytes(plan, scratch)
    return {
        quant: file_bytes(choose_types(shapes, quant, gqa=plan.queries_per_key, importance=importance), start)
        for quant in quants
    }


def make_forecast(
    plan: GgufPlan,
    quants: Sequence[GgufType],
    base: GgufType,
    scratch: Path,
    *,
    importance_tokens: int,
    cores: int,
) -> Forecast:
    """Predict an export.

    Args:
        plan: What will be written.
        quants: The types asked for.
        base: The 16-bit type they are made from.
        scratch: Folder for a small temporary file.
        importance_tokens: Training tokens for the importance matrix; 0 where there is none.
        cores: Cores to compute on.
    """
    sizes = predicted_sizes(plan, list(dict.fromkeys([base, *quants])), scratch, importance=importance_tokens > 0)
    weights = sum(prod(one.shape) for one in plan.tensors)
    largest = max(prod(one.shape) for one in plan.tensors)
    flops = _flops() * cores
    token_s = 2 * weights / flops
    vocabulary = len(plan.vocabulary.tokens)
    probabilities = min(2000 * 4 * vocabulary, 1024**3)
    kept_bytes = _RUNTIME_BYTES + probabilities
    refining = _refining(plan, importance_tokens, flops, cores) if importance_tokens else _Refining()
    importance_s = 2 * importance_tokens * token_s * max(refining.passes, 1) + refining.gather_s
    # Replies are read one token at a time, for which every weight comes from memory.
    asked_s = _CHECK_TOKENS * token_s + importance_s + _REPLY_TOKENS * 4 * weights / 10e9
    stages = [
        Stage(f"Writing {base}", sizes[base], _RUNTIME_BYTES + 12 * largest, sizes[base] / _WRITE_BYTES_S),
        Stage(
            "Running the trained model", refining.disk_bytes, kept_bytes + 4 * weights + refining.gather_bytes, asked_s
        ),
    ]
    for quant in dict.fromkeys([base, *quants]):
        if quant != base:
            took = _QUANTIZE_NS.get(quant, _OTHER_QUANTIZE_NS) * 1e-9 * weights / cores
            memory = 8 * largest
            if quant in USE_IMPORTANCE:
                took, memory = took + refining.seconds, memory + refining.memory_bytes
            stages.append(Stage(f"Making {quant}", sizes[quant], _RUNTIME_BYTES + memory, took + 2))
        stages.append(
            Stage(f"Checking {quant}", 0, kept_bytes + sizes[quant], _CHECK_TOKENS * token_s + sizes[quant] / 1e9)
        )
    return Forecast({quant: sizes[quant] for quant in quants}, stages)


@dataclass(frozen=True)
class _Refining:
    """What choosing codes anew takes: before, on disk and in memory, and for each type."""

    passes: int = 0
    disk_bytes: int = 0
    gather_bytes: int = 0
    gather_s: float = 0.0
    memory_bytes: int = 0
    seconds: float = 0.0


def _refining(plan: GgufPlan, tokens: int, flops: float, cores: int) -> _Refining:
    rows = moment_rows(plan.tensors)
    if not rows:
        return _Refining()
    longest, size = max(rows.values()), moment_bytes(rows.values())
    # Each token's products with itself, and a Cholesky root in fp64, which takes twice as long as in fp32.
    gather = sum(2 * tokens * row**2 + 2 * row**3 / 3 for row in rows.values())
    refined = [one.shape for one in plan.tensors if input_name(one.name) in rows]
    # Three products with the root: two errors, and codes, of which half is none.
    products = sum(5 * prod(shape) * shape[-1] for shape in refined)
    return _Refining(
        passes=ceil(size / MOMENT_BYTES),
        disk_bytes=size,
        gather_bytes=min(size, MOMENT_BYTES) + rooting_bytes(longest),
        gather_s=gather / flops,
        memory_bytes=refining_bytes(longest),
        seconds=products / flops + sum(map(prod, refined)) * _REFINE_NS * 1e-9 / cores,
    )


def _flops() -> float:
    """Operations a second of one core in fp32 products, measured in some milliseconds."""
    import torch

    threads, best = torch.get_num_threads(), 1e-3
    try:
        torch.set_num_threads(1)
        a = torch.ones(256, 256)
        for _ in range(5):
            begun = time.perf_counter()
            a @ a
            best = min(best, time.perf_counter() - begun)
    finally:
        torch.set_num_threads(threads)
    return float(2 * 256**3 / best)
