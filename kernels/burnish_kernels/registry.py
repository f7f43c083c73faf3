"""All operations of this package: cases, comparison, compilations, benchmarks. Loads Triton only when one runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

OPS = ("rms_norm", "rope", "swiglu", "cross_entropy", "adamw", "magma", "nf4", "lora_linear", "attention", "gather")
"""Folders of this package that hold an operation (op.py, kernel.py, reference.py, cases.py)."""

CAPABILITIES = (80, 86, 89, 90, 120)
"""Compute capabilities that every kernel must compile for: A100, RTX 30, RTX 40, H100, RTX 50."""


@dataclass(frozen=True)
class Case:
    """One input configuration of an operation.

    Attributes:
        name: Unique within the operation.
        tolerance: Largest relative L2 error allowed.
        options: Shapes, dtypes and switches, as the operation's `cases` module reads them.
        gpu_only: Too large for Triton's interpreter.
    """

    name: str
    tolerance: float
    options: dict[str, Any] = field(default_factory=dict)
    gpu_only: bool = False


@dataclass(frozen=True)
class Compilation:
    """One kernel configuration, to be compiled without a GPU.

    Attributes:
        name: Unique within the operation.
        function: The `triton.jit` function.
        signature: Type of each argument by name, such as "*bf16", "i32", "fp32"; "constexpr" for constants.
        constants: Value of each constant.
        num_warps: Warps a program.
        num_stages: Depth of the software pipeline.
        capabilities: Compute capabilities this configuration is used on.
        max_registers: Most registers a thread, Triton's `maxnreg`; None: as the compiler likes.
    """

    name: str
    function: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 2
    capabilities: tuple[int, ...] = CAPABILITIES
    max_registers: int | None = None


@dataclass(frozen=True)
class Benchmark:
    """One timed use of an operation.

    Attributes:
        name: Unique within the operation.
        run: Does it once, on tensors made before.
        reference: The same in plain PyTorch; None where that would not fit into memory.
        bytes: Fewest bytes that must pass through device memory.
        flops: Matrix operations that must be done; 0 for memory-bound kernels.
    """

    name: str
    run: Callable[[], object]
    reference: Callable[[], object] | None
    bytes: int
    flops: int = 0


@dataclass(frozen=True)
class Op:
    """One operation.

    Attributes:
        name: Folder name.
        cases: All configurations it is tested on.
        compare: (case, device) -> worst relative error of outputs and gradients against the reference.
        compilations: Every kernel configuration that can be launched. Loads Triton.
        benchmarks: (device) -> what to time, tensors made one benchmark at a time.
    """

    name: str
    cases: Callable[[], list[Case]]
    compare: Callable[..., float]
    compilations: Callable[[], list[Compilation]]
    benchmarks: Callable[..., Any]


def ops() -> dict[str, Op]:
    """Every operation by name."""
    found = {}
    for name in OPS:
        module = importlib.import_module(f"burnish_kernels.{name}.cases")
        found[name] = Op(name, module.cases, module.compare, module.compilations, module.benchmarks)
    return found
