"""Compile kernels without a GPU, and read what they need: shared memory, registers, spills.

A configuration that asks for more than a card has fails only on that card, at the first launch. Triton's compiler and
the assembler it bundles need no card, so every configuration is compiled here for every generation.

As a program (`python -m burnish_kernels.ahead`) it prints one JSON line a compilation. It must run in a process of its
own where TRITON_INTERPRET is set: then `triton.jit` gives functions that cannot be compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from burnish_kernels.registry import CAPABILITIES, OPS, Compilation

SHARED_BYTES = 99 * 1024
"""Most shared memory that one program may have on RTX cards (CUDA C++ Programming Guide, "Compute Capabilities")."""

HOPPER_SHARED_BYTES = 227 * 1024
"""The same on compute capability 9.0, which some configurations are made for."""

LAUNCH_WORDS = {"device", "device_type", "grid", "stream", "warmup"}
"""Names that a kernel's argument must not have: Triton keeps them for the launch itself, where arguments are passed by
keyword. Its interpreter accepts them, so only a launch on a GPU would fail."""

_ALIGNED = [["tt.divisibility", 16]]  # hint that a launch gives the compiler for arguments that 16 divides


@dataclass(frozen=True)
class Compiled:
    """The resources that a compiled kernel needs.

    Attributes:
        shared_bytes: shared memory per program.
        registers: number of registers per thread; None where no tool to read it is installed.
        spill_bytes: local memory per thread, to which registers were spilled; None where no tool to read it is
            installed.
        seconds: duration of the compilation; short where Triton's cache had the result.
    """

    shared_bytes: int
    registers: int | None
    spill_bytes: int | None
    seconds: float


def check(compilation: Compilation, capability: int) -> Compiled:
    """Compile one configuration for one compute capability.

    As in real launches, pointers, sizes and strides are taken as divisible by 16 unless the function forbids it.

    Args:
        compilation: kernel configuration to compile.
        capability: compute capability, such as 89 for sm_89.

    Raises:
        ValueError: The arguments are not those of the function, the function is an interpreted one, or the PTX lacks
            the instruction that it must have.
        Exception: Any error of Triton's compiler or the assembler.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = compilation.function
    if not isinstance(function, triton.JITFunction):
        raise ValueError(f"{compilation.name} is no compilable function; is TRITON_INTERPRET set?")
    signature = complete_signature(compilation)
    source = ASTSource(function, signature, all_constants(compilation), _attributes(function, signature))
    options = {
        "num_warps": compilation.num_warps,
        "num_stages": compilation.num_stages,
        "maxnreg": compilation.max_registers,
    }
    began = time.perf_counter()
    kernel = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    require_instruction(compilation, capability, kernel.asm["ptx"])
    registers, spill_bytes = _usage(kernel.asm["cubin"])
    return Compiled(kernel.metadata.shared, registers, spill_bytes, time.perf_counter() - began)


def shared_limit(capability: int) -> int:
    """Return the most shared memory that a kernel may need on a compute capability."""
    return HOPPER_SHARED_BYTES if capability == 90 else SHARED_BYTES


def all_constants(compilation: Compilation) -> dict[str, Any]:
    """Return the value of each constant, defaults of the function included."""
    parameters = getattr(compilation.function, "params", ())
    defaults = {one.name: one.default for one in parameters if getattr(one, "has_default", False)}
    return defaults | dict(compilation.constants)


def complete_signature(compilation: Compilation) -> dict[str, str | tuple[str, ...]]:
    """Return the signature in the function's order, constants included."""
    known = all_constants(compilation)
    given = {**dict.fromkeys(known, "constexpr"), **compilation.signature}
    names = compilation.function.arg_names
    constants = {name for name, kind in given.items() if kind == "constexpr"}
    if set(given) != set(names) or constants != set(known):
        wrong = (set(names) ^ set(given)) | (constants ^ set(known))
        raise ValueError(f"{compilation.name}: no type, no value, or no such argument: {', '.join(sorted(wrong))}")
    if reserved := LAUNCH_WORDS & set(names):
        raise ValueError(f"{compilation.name}: Triton's launch keeps the name {', '.join(sorted(reserved))} for itself")
    return {name: given[name] for name in names}


def _attributes(
    function: Any, signature: Mapping[str, str | tuple[str, ...]]
) -> dict[tuple[int, ...], list[list[Any]]]:
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for parameter, kind in zip(function.params, signature.values(), strict=True):
        if parameter.do_not_specialize or parameter.do_not_specialize_on_alignment:
            continue
        kinds = [kind] if isinstance(kind, str) else kind
        for place, one in enumerate(kinds):
            if one.startswith("*") or re.fullmatch(r"[iu](32|64)", one):
                attributes[(parameter.num,) if isinstance(kind, str) else (parameter.num, place)] = _ALIGNED
    return attributes


def require_instruction(compilation: Compilation, capability: int, ptx: str) -> None:
    """Raise ValueError where the PTX lacks an instruction; a wrong setting makes the compiler take a slower one."""
    wanted = compilation.instructions.get(capability)
    if wanted and not re.search(wanted, ptx):
        raise ValueError(f"{compilation.name}: the PTX for sm_{capability} has no {wanted}")


def _usage(cubin: bytes) -> tuple[int | None, int | None]:
    """Return registers and bytes of local memory per thread of the only kernel in a cubin."""
    from triton import knobs

    try:
        tool = knobs.nvidia.cuobjdump.path
    except RuntimeError:  # not bundled on every platform
        return None, None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        shown = subprocess.run([tool, "-res-usage", str(file)], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", shown)
    if found is None:
        return None, None
    registers, stack, local = map(int, found.groups())
    return registers, stack + local


def check_op(
    op: str, capabilities: tuple[int, ...] = CAPABILITIES, *, sample: int = 1, firsts: bool = False
) -> Iterator[dict[str, Any]]:
    """Compile an operation's configurations and yield each one's outcome, errors included.

    Args:
        op: name of the operation.
        capabilities: compute capabilities; a configuration that is not used on one is left out there.
        sample: step between the capabilities that a configuration is compiled for; a kernel's configurations begin at
            one after the other, and the first of each kernel is compiled for all. Those with more shared memory come
            last, so that none is compiled for these alone. 1: all for all.
        firsts: whether to compile only the first configuration of each kernel, for one capability, the kernels by
            turns; `sample` does not matter then.

    Yields:
        Op, name and capability, and either an error or the fields of `Compiled`.
    """
    from burnish_kernels.registry import ops

    seen: Counter[Any] = Counter()
    for compilation in ops()[op].compilations():
        wanted = sorted((one for one in capabilities if one in compilation.capabilities), key=shared_limit)
        turn = seen[compilation.function]
        seen[compilation.function] += 1
        if firsts and wanted:
            at = (OPS.index(op) + len(seen)) % len(wanted)
            wanted = [] if turn else wanted[at : at + 1]
        elif turn and wanted:
            wanted = wanted[turn % min(sample, len(wanted)) :: sample]
        for capability in wanted:
            yield _outcome(op, compilation, capability)


def _outcome(op: str, compilation: Compilation, capability: int) -> dict[str, Any]:
    """Return one compilation's outcome: what the kernel needs, or the compiler's error."""
    line: dict[str, Any] = {"op": op, "name": compilation.name, "capability": capability}
    try:
        line |= asdict(check(compilation, capability))
    except Exception as error:  # noqa: BLE001  whatever the compiler throws is the finding
        line["error"] = f"{type(error).__name__}: {error}"[:2000]
    return line


def environment() -> dict[str, str]:
    """Return this process's environment without the variables that make kernels interpreted, to compile in."""
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}


def main(arguments: list[str] | None = None) -> int:
    """Compile and print JSON lines; return 3 where something failed or needs too much shared memory."""
    parser = argparse.ArgumentParser(prog="burnish_kernels.ahead", description=main.__doc__)
    parser.add_argument("--op", action="append", choices=OPS, help="this operation only; may be repeated")
    parser.add_argument("--capability", action="append", type=int, help="such as 89; may be repeated")
    parser.add_argument(
        "--sample", type=int, default=1, help="compile each for every nth capability, and the first of a kernel for all"
    )
    options = parser.parse_args(arguments)
    if options.sample < 1:
        parser.error(f"--sample is a number from 1 on, not {options.sample}")
    good = True
    for op in options.op or OPS:
        for line in check_op(op, tuple(options.capability or CAPABILITIES), sample=options.sample):
            good = good and "error" not in line and line["shared_bytes"] <= shared_limit(line["capability"])
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    return 0 if good else 3


if __name__ == "__main__":
    sys.exit(main())
