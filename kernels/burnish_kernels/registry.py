"""All operations of this package: cases, comparison, compilations, benchmarks. Loads Triton only when one runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

OPS = (
    "rms_norm",
    "rope",
    "swiglu",
    "xielu",
    "cross_entropy",
    "adamw",
    "magma",
    "nf4",
    "lora_linear",
    "eight_bit_linear",
    "attention",
    "paged_attention",
    "decode_linear",
    "sample",
    "gather",
    "short_conv",
    "head_gate",
    "conv_silu",
    "delta_rule",
    "gated_norm",
    "moe_route",
    "moe_sort",
    "moe_unpack",
    "gguf_blocks",
    "grouped_linear",
    "grouped_codes",
    "grouped_skinny",
    "moe_act",
    "moe_combine",
    "mxfp8_linear",
)
"""Folders of this package that hold an operation (op.py, kernel.py, reference.py, cases.py)."""

CAPABILITIES = (80, 86, 89, 90, 120)
"""Compute capabilities that every kernel must compile for: A100, RTX 30, RTX 40, H100, RTX 50."""

FP8_CAPABILITIES = (89, 90, 120)
"""Compute capabilities, of those, that multiply E4M3."""

MXFP8_CAPABILITIES = (120,)
"""Compute capabilities, of those, that multiply E4M3 with a power of two for each block of 32."""


@dataclass(frozen=True)
class Case:
    """One input configuration of an operation.

    Attributes:
        name: name, unique within the operation.
        tolerance: largest relative L2 error allowed.
        options: shapes, dtypes and switches, as the operation's `cases` module reads them.
        gpu_only: whether the case is too large for Triton's interpreter.
    """

    name: str
    tolerance: float
    options: dict[str, Any] = field(default_factory=dict)
    gpu_only: bool = False


@dataclass(frozen=True)
class Compilation:
    """One kernel configuration, to be compiled without a GPU.

    Attributes:
        name: name, unique within the operation.
        function: `triton.jit` function.
        signature: type of each argument by name, such as "*bf16", "i32", "fp32"; "constexpr" for constants; the types
            of all for an argument that is a tuple.
        constants: value of each constant.
        num_warps: warps of a program.
        num_stages: depth of the software pipeline.
        capabilities: compute capabilities this configuration is used on.
        max_registers: most registers a thread, Triton's `maxnreg`; None: the compiler decides.
        instructions: regular expression, by compute capability, of an instruction that must be in the PTX.
    """

    name: str
    function: Any
    signature: Mapping[str, str | tuple[str, ...]]
    constants: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 2
    capabilities: tuple[int, ...] = CAPABILITIES
    max_registers: int | None = None
    instructions: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """One timed use of an operation.

    Attributes:
        name: name, unique within the operation.
        run: function that does it once, on tensors made before.
        reference: the same in plain PyTorch; None where that would not fit into memory.
        bytes: fewest bytes that must pass through device memory.
        flops: matrix operations that must be done; 0 for memory-bound kernels.
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
        name: name of the folder.
        cases: function that lists all configurations it is tested on.
        compare: function (case, device) -> worst relative error of outputs and gradients against the reference.
        compilations: function that lists every kernel configuration that can be launched. Loads Triton.
        benchmarks: function (device) -> benchmarks, with the tensors of one at a time.
    """

    name: str
    cases: Callable[[], list[Case]]
    compare: Callable[..., float]
    compilations: Callable[[], list[Compilation]]
    benchmarks: Callable[..., Any]


def ops() -> dict[str, Op]:
    """Return every operation by name."""
    found = {}
    for name in OPS:
        module = importlib.import_module(f"burnish_kernels.{name}.cases")
        found[name] = Op(name, module.cases, module.compare, module.compilations, module.benchmarks)
    return found
