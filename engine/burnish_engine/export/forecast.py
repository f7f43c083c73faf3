"""Predict an export before it begins: the exact size of each file, and disk, memory and time of each stage."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from pathlib import Path

from burnish_engine.advise.facts.gguf_size import choose_types, file_bytes
from burnish_engine.contract.facts.export_forecast import ExportStage, TypeForecast
from burnish_engine.contract.recipe.recipe_export import USE_IMPORTANCE, GgufType
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.gguf.write import GgufPlan, header_bytes
from burnish_engine.export.quantize.hessian import (
    MOST_HESSIAN_BYTES,
    cholesky_bytes,
    hessian_bytes,
    hessian_sizes,
    input_name,
    refining_bytes,
)
from burnish_engine.models.checkpoint.gguf_file.header import TensorShape

_WRITE_BYTES_S = 100e6  # reading, merging and writing 16-bit tensors; slower disks are rare
_QUANTIZE_NS = {"IQ4_NL": 80.0, "IQ4_XS": 80.0, "IQ3_M": 150.0, "IQ3_XXS": 150.0, "IQ2_M": 250.0}
_OTHER_QUANTIZE_NS = 20.0
"""Nanoseconds per weight and core, with an importance matrix; measured on SmolLM2-135M and two cores of a Xeon
(Sapphire Rapids)."""
_REFINE_NS = 80.0
"""Nanoseconds per weight and core for GPTQ, in addition to its matrix products."""
_CHECK_TOKENS = 2500  # compared positions and replies of one file
_REPLY_TOKENS = 3 * 96
_MEMORY_BYTES_S = 10e9  # rate at which a processor reads weights
_RUNTIME_BYTES = 600 * 1024 * 1024  # Python with torch, transformers and llama.cpp


@dataclass(frozen=True)
class ExportCost:
    """The cost of an export: size of each file, and what each stage takes."""

    sizes: dict[GgufType, int]  # exact size of each requested file, bytes
    stages: list[ExportStage]  # stages in order
    types: list[TypeForecast] = field(default_factory=list)  # what files of all types would be; empty: not asked for

    @property
    def disk_bytes(self) -> int:
        """Free disk space that the export needs, bytes."""
        return sum(stage.disk_bytes for stage in self.stages)

    @property
    def memory_bytes(self) -> int:
        """Free memory that the export needs, bytes."""
        return max(stage.memory_bytes for stage in self.stages)

    @property
    def seconds(self) -> float:
        """Rough duration of all stages, seconds."""
        return sum(stage.seconds for stage in self.stages)


def predicted_sizes(
    plan: GgufPlan, quants: Sequence[GgufType], scratch: Path, *, importance: bool
) -> dict[GgufType, int]:
    """Compute the exact size of each type's file, bytes.

    Args:
        plan: plan of the file.
        quants: GGUF types.
        scratch: folder for a small temporary file.
        importance: whether there will be an importance matrix.

    Raises:
        UsageError: The model's row lengths do not fit a type.
    """
    start = header_bytes(plan, scratch)
    return {quant: type_bytes(plan, quant, start, importance=importance) for quant in quants}


def type_bytes(plan: GgufPlan, quant: GgufType, start: int, *, importance: bool) -> int:
    """Compute the exact size of one type's file, bytes.

    Args:
        plan: plan of the file.
        quant: GGUF type.
        start: bytes before the first tensor, as of `header_bytes`.
        importance: whether there will be an importance matrix.

    Raises:
        UsageError: The model's row lengths do not fit the type.
    """
    shapes = [TensorShape(one.name, one.shape, one.type) for one in plan.tensors]
    types = choose_types(shapes, quant, gqa=plan.queries_per_key, experts=plan.experts, importance=importance)
    return file_bytes(types, start)


def make_forecast(
    plan: GgufPlan,
    quants: Sequence[GgufType],
    base: GgufType,
    scratch: Path,
    *,
    importance_tokens: int,
    cores: int,
    scored_tokens: int = 0,
) -> ExportCost:
    """Predict an export.

    Args:
        plan: plan of the file.
        quants: requested GGUF types.
        base: 16-bit type that the others are made from.
        scratch: folder for a small temporary file.
        importance_tokens: number of training tokens for the importance matrix; 0 where there is none.
        cores: number of CPU cores to compute on.
        scored_tokens: most tokens of the replies with which the task of each file is scored.
    """
    sizes = predicted_sizes(plan, list(dict.fromkeys([base, *quants])), scratch, importance=importance_tokens > 0)
    weights = sum(prod(one.shape) for one in plan.tensors)
    largest = max(prod(one.shape) for one in plan.tensors if not one.packed)
    piece = max(prod(one.shape[-2:]) for one in plan.tensors)  # stacks of experts are written expert by expert
    flops = _flops() * cores
    token_s = 2 * weights / flops
    vocabulary = len(plan.vocabulary.tokens)
    probabilities = min(2000 * 4 * vocabulary, 1024**3)
    kept_bytes = _RUNTIME_BYTES + probabilities
    refining = _refining(plan, importance_tokens, flops, cores) if importance_tokens else _Refining()
    importance_s = 2 * importance_tokens * token_s * max(refining.passes, 1) + refining.gather_s
    # Replies are generated one token at a time, and each token reads every weight from memory.
    asked_s = _CHECK_TOKENS * token_s + importance_s + _REPLY_TOKENS * 4 * weights / _MEMORY_BYTES_S
    stages = [
        ExportStage(
            what=f"Writing {base}",
            disk_bytes=sizes[base],
            memory_bytes=_RUNTIME_BYTES + 12 * piece,
            seconds=sizes[base] / _WRITE_BYTES_S,
        ),
        ExportStage(
            what=EXPORT_STAGES["run"],
            disk_bytes=refining.disk_bytes,
            memory_bytes=kept_bytes + 4 * weights + refining.gather_bytes,
            seconds=asked_s,
        ),
    ]
    for quant in dict.fromkeys([base, *quants]):
        if quant != base:
            took = _QUANTIZE_NS.get(quant, _OTHER_QUANTIZE_NS) * 1e-9 * weights / cores
            memory = 8 * largest
            if quant in USE_IMPORTANCE:
                took, memory = took + refining.seconds, memory + refining.memory_bytes
            stages.append(
                ExportStage(
                    what=EXPORT_STAGES["make"].format(quant=quant),
                    disk_bytes=sizes[quant],
                    memory_bytes=_RUNTIME_BYTES + memory,
                    seconds=took + 2,
                )
            )
        stages.append(
            ExportStage(
                what=EXPORT_STAGES["check"].format(quant=quant),
                disk_bytes=0,
                memory_bytes=kept_bytes + sizes[quant],
                seconds=_CHECK_TOKENS * token_s + sizes[quant] / 1e9 + scored_tokens * sizes[quant] / _MEMORY_BYTES_S,
            )
        )
    return ExportCost({quant: sizes[quant] for quant in quants}, stages)


@dataclass(frozen=True)
class _Refining:
    """Cost of GPTQ: its preparation, its disk and memory, and its time for each type."""

    passes: int = 0
    disk_bytes: int = 0
    gather_bytes: int = 0
    gather_s: float = 0.0
    memory_bytes: int = 0
    seconds: float = 0.0


def _refining(plan: GgufPlan, tokens: int, flops: float, cores: int) -> _Refining:
    rows = hessian_sizes(plan.tensors)
    if not rows:
        return _Refining()
    longest, size = max(rows.values()), hessian_bytes(rows.values())
    # Hessians take a product for each token, and a Cholesky factor in fp64, which takes twice as long as in fp32.
    gather = sum(2 * tokens * row**2 + 2 * row**3 / 3 for row in rows.values())
    refined = [one.shape for one in plan.tensors if input_name(one.name) in rows]
    # Three products with the factor: two errors, and the codes, which need half of one.
    products = sum(5 * prod(shape) * shape[-1] for shape in refined)
    return _Refining(
        passes=ceil(size / MOST_HESSIAN_BYTES),
        disk_bytes=size,
        gather_bytes=min(size, MOST_HESSIAN_BYTES) + cholesky_bytes(longest),
        gather_s=gather / flops,
        memory_bytes=refining_bytes(longest),
        seconds=products / flops + sum(map(prod, refined)) * _REFINE_NS * 1e-9 / cores,
    )


def _flops() -> float:
    """Measure the fp32 operations per second of one core, in some milliseconds."""
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
