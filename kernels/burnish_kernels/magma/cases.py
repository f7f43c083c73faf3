"""Test cases, compilations and benchmarks of gradient masking."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from burnish_kernels.adamw import reference as adamw
from burnish_kernels.adamw.cases import CONTROL, SEGMENTS, adapters, segments_of
from burnish_kernels.adamw.layout import BLOCK, FlatLayout
from burnish_kernels.magma import reference
from burnish_kernels.magma.reference import NEVER, MagmaOptions
from burnish_kernels.registry import Benchmark, Case, Compilation

TOLERANCE = 1e-5
OPTIONS = {
    "usual": MagmaOptions(),
    "after": MagmaOptions(momentum_after=True, temperature=0.3, decay=0.5),
    "skip": MagmaOptions(probability=0.25, skip=True, rate=2.0),
    "always": MagmaOptions(probability=1.0, start=1.0, decay=1.0),
}


def cases() -> list[Case]:
    """List arrangements of the flat buffer and variants; the third of six steps is skipped."""
    found = [_case(segments, options) for segments in ("fours", "odd", "single") for options in OPTIONS]
    return [*found, replace(_case("many", "after"), gpu_only=True)]


def _case(segments: str, options: str) -> Case:
    return Case(f"{segments}-{options}", TOLERANCE, {"segments": segments, "options": options})


def draws_of(count: int) -> list[int]:
    """Return draws where every fourth segment is not masked, and the others are paired."""
    return [NEVER if index % 4 == 3 else index // 2 for index in range(count)]


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative error of alignments and step scales over six steps; infinite where the masks differ."""
    from burnish_kernels.adamw import op as optimizer_op
    from burnish_kernels.magma import op

    generator, options = torch.Generator().manual_seed(seed), OPTIONS[case.options["options"]]
    layout = FlatLayout(segments_of(SEGMENTS[case.options["segments"]], 0), device)
    optimizer = optimizer_op.AdamW(layout, torch.zeros(layout.copy_end, device=device))
    optimizer.set_control(CONTROL)
    draws = draws_of(len(layout.segments))
    ours = optimizer.modifier = op.Magma(layout, draws, seed=seed + (1 << 40), options=options)
    exact = torch.full((len(draws),), options.start, dtype=torch.float64)
    expected, sums = torch.ones_like(exact), torch.zeros(len(draws), 3, dtype=torch.float64)
    key, worst = torch.tensor([seed + (1 << 40)]), 0.0
    plain = FlatLayout(layout.segments, "cpu")
    for step in range(6):
        gradient = torch.zeros(layout.total)
        for view in layout.views(gradient):
            view.copy_(torch.randn(view.shape, generator=generator) + 0.2)
        if step == 1:
            layout.views(gradient)[0].zero_()
        if step == 2:
            gradient[0] = math.inf
        optimizer.grad.copy_(gradient)
        reference.block_sums(plain, gradient.double(), optimizer.exp_avg.cpu().double(), sums)
        optimizer.step()
        numbers = torch.tensor(draws), key, optimizer.counters[:1].cpu(), optimizer._factors.cpu()
        reference.decide(sums, *numbers, exact, expected, options)
        found, wanted = ours.last.cpu().double(), expected
        if not torch.equal(found == 0.0, wanted == 0.0):
            return math.inf
        pairs = ((found, wanted), (ours.alignment.cpu().double(), exact))
        worst = max(worst, *(float((one - other).norm() / other.norm().clamp(min=1e-30)) for one, other in pairs))
    return worst


def compilations() -> list[Compilation]:
    """List the sums, and the decision in all variants."""
    from burnish_kernels.magma import kernel

    sums = dict.fromkeys(["grad_ptr", "exp_avg_ptr", "partials_ptr"], "*fp32")
    decide = dict.fromkeys(["partials_ptr", "factors_ptr", "alignment_ptr", "step_scale_ptr"], "*fp32")
    decide |= {"blocks_ptr": "*i32", "draws_ptr": "*i32", "seed_ptr": "*i64", "step_ptr": "*i64", "threshold": "i64"}
    decide |= dict.fromkeys(["inverse_temperature", "decay", "skip_length", "rate"], "fp32")
    found = [Compilation("sums", kernel.sums_kernel, sums, {"BLOCK": BLOCK}, kernel.WARPS)]
    for after in (False, True):
        for skip in (False, True):
            constants = {"LANES": kernel.LANES, "AFTER": after, "SKIP": skip}
            found.append(Compilation(f"decide-{after}-{skip}", kernel.decide_kernel, decide, constants, kernel.WARPS))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List the cost of masking in steps of rank-16 adapters."""
    from burnish_kernels.adamw import op as optimizer_op
    from burnish_kernels.magma import op

    for name, segments in adapters():
        layout = FlatLayout(segments, device)
        compute_buffer = torch.zeros(layout.copy_end, dtype=torch.bfloat16, device=device)
        optimizer = optimizer_op.AdamW(layout, compute_buffer)
        factors = torch.ones(adamw.FACTORS, device=device)
        magma = op.Magma(layout, list(range(len(layout.segments))), 0)

        def run(magma: Any = magma, optimizer: Any = optimizer, factors: torch.Tensor = factors) -> None:
            magma.step_scale(optimizer, factors)

        yield Benchmark(f"{name}-r16", run, None, bytes=8 * layout.total)
