"""Test cases, compilations and benchmarks of attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import torch

from burnish_kernels.attention.benchmark_pack import BENCHMARKED, BENCHMARKED_ROWS, BenchmarkPack, lognormal_lengths
from burnish_kernels.attention.config import AttentionConfig, KernelConfig, choose_config
from burnish_kernels.attention.documents import Documents
from burnish_kernels.registry import CAPABILITIES, Benchmark, Case, Compilation
from burnish_kernels.tuning import Tuning

# Relative L2 error against the reference in double precision: sums of products of numbers rounded to the dtype.
TOLERANCE = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}

PACKS = {
    "one-row": [1],
    "one-document": [97],
    "single-rows": [1] * 37,
    "pack": [37, 1, 50, 9, 33],
    "tiles": [32, 32, 64],  # ends where tiles and blocks end
}


def cases() -> list[Case]:
    """List packs, groups, head sizes, windows, soft caps and views of one buffer; large ones for GPUs."""
    found = [
        _case("pack", PACKS["pack"], 3, 1, 16, torch.float16, window=20, softcap=5.0, views=True),
        _case("one-document", PACKS["one-document"], 2, 1, 32, torch.float16),
    ]
    for dtype in (torch.float32, torch.bfloat16):
        rounded = dtype != torch.float32  # where rows end is tried in one type, and on a GPU in both
        found += [
            _case(pack, lengths, 4, 2, 16, dtype, gpu_only=rounded and pack != "pack")
            for pack, lengths in PACKS.items()
        ]
        found += [
            _case("pack", PACKS["pack"], 3, 3, 64, dtype, views=True),
            _case("pack", PACKS["pack"], 4, 1, 32, dtype, window=7, views=True),
            _case("pack", PACKS["pack"], 6, 2, 24, dtype, window=500, gpu_only=rounded),
            _case("one-document", PACKS["one-document"], 4, 2, 16, dtype, softcap=2.0, window=40),
            _case("tiles", PACKS["tiles"], 8, 1, 16, dtype, window=32),
            _case("short", [19, 20], 2, 1, 128, dtype, softcap=30.0),
            _case("short", [19, 20], 2, 1, 512, dtype, gpu_only=rounded),
            _case("pack", PACKS["pack"], 4, 2, 16, dtype, window=20, sinks=True),
            _case("single-rows", PACKS["single-rows"], 3, 1, 16, dtype, sinks=True),
            _case("short", [23, 17], 1, 1, 96, dtype, gpu_only=rounded),
        ]
    for dtype in TOLERANCE:
        for heads, kv_heads, width in (
            (16, 8, 128),
            (32, 8, 64),
            (9, 3, 64),
            (4, 4, 96),
            (4, 1, 256),
            (6, 2, 80),
            (8, 2, 512),
        ):
            found += [
                _case("lognormal", lognormal_lengths(4000, 1), heads, kv_heads, width, dtype, gpu_only=True),
                _case(
                    *("lognormal", lognormal_lengths(2003, 2), heads, kv_heads, width, dtype),
                    window=128,
                    softcap=20.0,
                    sinks=True,
                    views=True,
                    gpu_only=True,
                ),
            ]
    found.append(_case("lognormal", lognormal_lengths(16384, 3), 16, 8, 128, torch.bfloat16, gpu_only=True))
    found.append(_case("one-document", [4099], 4, 2, 128, torch.bfloat16, window=1000, gpu_only=True))
    return found


def _case(
    pack: str,
    lengths: list[int],
    heads: int,
    kv_heads: int,
    width: int,
    dtype: torch.dtype,
    *,
    window: int | None = None,
    softcap: float | None = None,
    sinks: bool = False,
    views: bool = False,
    gpu_only: bool = False,
) -> Case:
    words = {f"window{window}": window, f"cap{softcap}": softcap, "sinks": sinks, "views": views}
    shape = f"{sum(lengths)}x{heads}/{kv_heads}x{width}"
    name = "-".join([pack, shape, str(dtype).removeprefix("torch."), *(word for word in words if words[word])])
    options = {"lengths": lengths, "heads": heads, "kv_heads": kv_heads, "width": width, "dtype": dtype}
    options |= {"window": window, "softcap": softcap, "sinks": sinks, "views": views}
    return Case(name, TOLERANCE[dtype], options, gpu_only)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of output, sums and gradients against the reference, on upcast inputs.

    Where a gradient is zero (of a document of one row, that of its query and key), rounding is measured against the
    gradient of the values.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.
    """
    from burnish_kernels.attention import op, reference

    options = case.options
    heads, kv_heads, width, dtype = (options[name] for name in ("heads", "kv_heads", "width", "dtype"))
    rules = {"window": options["window"], "softcap": options["softcap"], "scale": 1.3 / math.sqrt(width)}
    boundaries = np.cumsum([0, *options["lengths"]])
    rows = int(boundaries[-1])
    docs = Documents.from_boundaries(boundaries, rows, op.tile_rows(width, dtype, device), device)
    generator = torch.Generator().manual_seed(seed)

    def draw(count: int) -> torch.Tensor:
        return torch.randn(rows, count, width, generator=generator).to(dtype)

    q, k, v, do = draw(heads), draw(kv_heads), draw(kv_heads), draw(heads)
    sinks = torch.linspace(-2.0, 3.0, heads, device=device) if options["sinks"] else None
    place = _views if options["views"] else _strided
    q_TND, k_TMD, v_TMD = place([q, k, v], device)
    o_TND, dq_TND, dk_TMD, dv_TMD = place([torch.full_like(like, float("nan")) for like in (q, q, k, v)], device)
    _, lse_NT = op.forward(q_TND, k_TMD, v_TMD, docs, out=o_TND, sinks_N=sinks, **rules)
    op.backward(
        *(do.to(device), q_TND, k_TMD, v_TMD, o_TND, lse_NT, docs),
        dq_out=dq_TND,
        dk_out=dk_TMD,
        dv_out=dv_TMD,
        sinks_N=sinks,
        **rules,
    )
    # In double precision on the processor a large pack would take minutes; on a GPU it takes none.
    leaves = [tensor.to(device, torch.float64).requires_grad_() for tensor in (q, k, v)]
    exact_o, exact_lse = reference.attention(leaves[0], leaves[1], leaves[2], docs.start_T, sinks_N=sinks, **rules)
    exact = torch.autograd.grad(exact_o, leaves, do.to(device, torch.float64))
    errors = [
        _error(lse_NT, exact_lse, float(rows * heads) ** 0.5),
        _error(o_TND, exact_o),
        *(_error(ours, theirs, float(exact[2].norm())) for ours, theirs in zip((dq_TND, dk_TMD), exact, strict=False)),
        _error(dv_TMD, exact[2]),
    ]
    return max(errors) if all(math.isfinite(error) for error in errors) else math.inf


def _error(ours: torch.Tensor, theirs: torch.Tensor, least: float = 0.0) -> float:
    return float((ours.double() - theirs.detach()).norm()) / max(float(theirs.detach().norm()), least)


def _strided(tensors: list[torch.Tensor], device: str) -> list[torch.Tensor]:
    return [tensor.to(device) for tensor in tensors]


def _views(tensors: list[torch.Tensor], device: str) -> list[torch.Tensor]:
    """Lay each tensor out as columns of one buffer, with unused columns behind."""
    rows, width = tensors[0].shape[0], tensors[0].shape[2]
    counts = [tensor.shape[1] for tensor in tensors]
    buffer = torch.zeros(rows, sum(counts) * width + 16, dtype=tensors[0].dtype, device=device)
    views, begin = [], 0
    for tensor, count in zip(tensors, counts, strict=True):
        view = buffer[:, begin : begin + count * width].view(rows, count, width)
        views.append(view.copy_(tensor))
        begin += count * width
    return views


def compilations() -> list[Compilation]:
    """List every chosen configuration: sizes, groups even and odd, window and soft cap, fp32."""
    found = []
    for width, heads, kv_heads in ((64, 32, 8), (64, 9, 3), (128, 16, 8), (128, 32, 32)):
        found += _compilations(width, heads, kv_heads, torch.bfloat16)
    found += _compilations(96, 32, 32, torch.float16)
    found += _compilations(256, 8, 4, torch.bfloat16, window=True, softcap=True)
    found += _compilations(64, 64, 8, torch.bfloat16, window=True, sinks=True)  # gpt-oss
    found += _compilations(512, 8, 2, torch.bfloat16)  # Gemma 4, and its other layers
    found += _compilations(256, 8, 2, torch.bfloat16, window=True, beside=512)
    found += _compilations(256, 8, 2, torch.float32, window=True, beside=512)
    for width in (64, 128, 256, 512):
        found += _compilations(width, 8, 4, torch.float32)
    return found


def _compilations(
    width: int,
    heads: int,
    kv_heads: int,
    dtype: torch.dtype,
    *,
    window: bool = False,
    softcap: bool = False,
    sinks: bool = False,
    beside: int = 0,
) -> list[Compilation]:
    """List the three kernels; with `beside`, of a model that has heads of that size too."""
    from burnish_kernels.attention import kernel

    used_on: dict[AttentionConfig, list[int]] = {}
    for capability in CAPABILITIES:
        height = choose_config(beside or width, dtype, capability).tile_rows
        used_on.setdefault(choose_config(width, dtype, capability, heads // kv_heads, height), []).append(capability)
    found = []
    for (config, capabilities), name in product(used_on.items(), ("forward", "dq", "dkdv")):
        chosen: KernelConfig = getattr(config, name)
        function = getattr(kernel, f"{name}_kernel")
        constants: dict[str, Any] = {
            "GROUP": heads // kv_heads,
            "HEADS": math.gcd(heads // kv_heads, chosen.heads),
            "D": width,
            "WIDTH": 1 << (width - 1).bit_length(),
            "TILE": config.tile_rows,
            "BLOCK": chosen.block,
            "BRANCH": chosen.branch,
            "HAS_WINDOW": window,
            "HAS_CAP": softcap,
            "PRECISION": "ieee" if dtype == torch.float32 else "tf32",
        }
        if name == "forward":
            constants["HAS_SINKS"] = sinks
        for argument in function.arg_names:
            if argument.endswith("_STRIDE"):
                constants[argument] = (kv_heads if argument.startswith(("DK", "DV")) else heads) * width
        found.append(
            Compilation(
                name=f"{name}-sm{capabilities[0]}-{width}-{heads}/{kv_heads}-{str(dtype).removeprefix('torch.')}",
                function=function,
                signature={
                    argument: _type(argument, TYPES[dtype])
                    for argument in function.arg_names
                    if argument not in constants
                },
                constants=constants,
                num_warps=chosen.warps,
                num_stages=chosen.stages,
                max_registers=chosen.registers or None,
                capabilities=tuple(capabilities),
            )
        )
    return found


def _type(argument: str, pointer: str) -> str:
    known = {
        "lse_ptr": "*fp32",
        "delta_ptr": "*fp32",
        "sinks_ptr": "*fp32",
        "start_ptr": "*i32",
        "end_ptr": "*i32",
        "tiles_ptr": "*i32",
    }
    known |= {"T": "i32", "window": "i32", **dict.fromkeys(("scale", "factor", "cap", "cap_factor"), "fp32")}
    return known.get(argument, pointer)


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List the forward pass, and both passes, of three models, with FlashAttention-2 where PyTorch has it."""
    for name, (heads, kv_heads, width) in BENCHMARKED.items():
        pack = BenchmarkPack(heads, kv_heads, width, device, seed=2, dtype=torch.bfloat16)
        flash = pack.flash()
        element, flops = 2 * BENCHMARKED_ROWS * width, 4 * width * pack.pairs
        once = element * (2 * heads + 2 * kv_heads)
        yield Benchmark(f"{name}-forward", pack.forward, flash[0] if flash else None, once, flops)

        def both(pack: BenchmarkPack = pack) -> None:
            pack.forward()
            pack.backward()

        # Queries, keys, values, output and its gradient are read, three gradients written.
        moved = once + element * (4 * heads + 4 * kv_heads)
        yield Benchmark(f"{name}-both", both, flash[1] if flash else None, moved, flops * 7 // 2)
        del pack, flash, both


def tunings(device: str) -> Iterator[Tuning]:
    """List each kernel of each head size, for groups of one, two and four."""
    from burnish_kernels.attention import op
    from burnish_kernels.attention.candidates import KERNELS, candidates, tuning_key

    capability = op.capability(device)
    if capability is None:
        return
    for heads, kv_heads, width in ((16, 8, 128), (32, 8, 128), (16, 16, 128), (16, 8, 64), (32, 8, 64), (16, 16, 64)):
        pack, group = BenchmarkPack(heads, kv_heads, width, device, seed=2, dtype=torch.bfloat16), heads // kv_heads
        tile_rows = choose_config(width, torch.bfloat16, capability, group).tile_rows

        def launcher(kernel: str, pack: BenchmarkPack = pack, tile_rows: int = tile_rows) -> Callable[[Any], object]:
            return lambda chosen: pack.launch(kernel, tile_rows, chosen)

        for kernel in KERNELS:
            tried = candidates(kernel, width, torch.bfloat16, capability, group)
            yield Tuning(tuning_key(kernel, width, torch.bfloat16, group), tried, launcher(kernel))
        del pack, launcher
