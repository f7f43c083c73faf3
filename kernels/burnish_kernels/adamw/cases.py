"""Test cases, compilations and benchmarks of the optimizer step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.adamw import reference
from burnish_kernels.adamw.layout import BLOCK, MAX_PARTIALS, FlatLayout, Segment
from burnish_kernels.adamw.reference import StepSettings
from burnish_kernels.registry import Benchmark, Case, Compilation

# Of all state after a few steps against double precision; of the parameters it is the change that is compared, which
# is a tenth of the parameters, so that their rounding counts tenfold.
TOLERANCE = 3e-6
POINTER_TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}

CONTROL = StepSettings(learning_rate=1e-2, weight_decay=0.1, max_grad_norm=1.0)
CONTROLS = {
    "clip": CONTROL,
    "free": StepSettings(learning_rate=1e-2, beta1=0.8, beta2=0.95, eps=1e-6),
    "scaled": StepSettings(learning_rate=1e-2, weight_decay=0.1, max_grad_norm=0.5, growth_interval=2),
}

# (rows, columns, elements between a compute copy's rows, scale, decay). Sizes and strides are divisible by 4 (16-byte
# accesses), then by 2, then by nothing; then single elements.
SEGMENTS = {
    "fours": ((16, 100, 20, 1.0, True), (300, 16, 16, 2.0, True), (8, 128, 0, 0.5, False), (1, 576, 0, 1.0, False)),
    "twos": ((6, 514, 2, 1.0, True), (130, 6, 10, 0.25, False)),
    "odd": ((3, 683, 1, 1.0, True), (37, 5, 0, 3.0, True), (1, 1, 0, 1.0, False)),
    "single": ((1, 1, 0, 1.0, True),),
    "many": ((16, 1024, 64, 1.0, True), (2560, 16, 2560, 2.0, True)) * 100,
}


def cases() -> list[Case]:
    """List every segment arrangement, compute dtype and setting; every case takes a skipped step among its steps.

    One case has a compute copy beyond 2^31 elements.
    """
    found = [
        _case(segments, compute_buffer, control)
        for segments in ("fours", "twos", "odd")
        for compute_buffer in POINTER_TYPES
        for control in ("clip", "scaled")
    ]
    found += [_case("fours", torch.float32, "free"), _case("single", torch.bfloat16, "clip")]
    found.append(_case("many", torch.bfloat16, "scaled", gpu_only=True))
    found.append(_case("fours", torch.bfloat16, "clip", offset=(1 << 31) + 64, gpu_only=True))
    found += [
        _scaled_steps_case(segments, compute_buffer)
        for segments in ("fours", "twos", "odd")
        for compute_buffer in POINTER_TYPES
    ]
    return found


def _scaled_steps_case(segments: str, compute_buffer: torch.dtype) -> Case:
    name = f"update-{segments}-{str(compute_buffer).removeprefix('torch.')}"
    return Case(name, TOLERANCE, {"scaled_steps": segments, "compute_buffer": compute_buffer})


def _case(segments: str, compute_buffer: torch.dtype, control: str, *, offset: int = 8, gpu_only: bool = False) -> Case:
    name = "-".join([segments, str(compute_buffer).removeprefix("torch."), control, *(["far"] if offset > 8 else [])])
    options = {"segments": segments, "compute_buffer": compute_buffer, "control": control, "offset": offset}
    return Case(name, TOLERANCE, options, gpu_only)


def segments_of(rows: tuple[tuple[int, int, int, float, bool], ...], offset: int) -> list[Segment]:
    """Make segments whose compute copies lie one after the other from `offset` on."""
    found = []
    for count, columns, padding, scale, decay in rows:
        found.append(Segment(count, columns, offset, columns + padding, scale, decay))
        offset += count * (columns + padding)
    return found


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of change, moments and gradient norm after six steps, the third skipped.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where compute copies are not the rounded parameters, anything between copies or segments was
        written, the gradient is not zeroed, or counters or loss scale differ.
    """
    from burnish_kernels.adamw import op

    options = case.options
    if "scaled_steps" in options:
        return _compare_scaled_steps(options["scaled_steps"], options["compute_buffer"], device, seed)
    generator = torch.Generator().manual_seed(seed)
    layout = FlatLayout(segments_of(SEGMENTS[options["segments"]], options["offset"]), device)
    compute_buffer = torch.empty(layout.copy_end + 8, dtype=options["compute_buffer"], device=device)
    compute_buffer[options["offset"] - 8 :] = math.nan
    ours = op.AdamW(layout, compute_buffer, loss_scale=1024.0 if options["control"] == "scaled" else 1.0)
    exact = _Exact(layout, float(ours.loss_scale))
    start = torch.zeros(layout.total)
    for view in layout.views(start):
        view.copy_(0.1 * torch.randn(view.shape, generator=generator))
    ours.param.copy_(start)
    exact.param.copy_(start)
    ours.write_compute_copies()
    if not _copies_right(ours):
        return math.inf
    control = CONTROLS[options["control"]]
    ours.set_control(control)
    for step in range(6):
        gradient = torch.zeros(layout.total)
        for view in layout.views(gradient):
            view.copy_(float(ours.loss_scale) * torch.randn(view.shape, generator=generator))
        if step == 2:
            gradient[0] = math.inf
        ours.grad.copy_(gradient)
        exact.step(gradient, control)
        ours.step()
        same = torch.equal(ours.counters.cpu(), exact.counters) and float(ours.loss_scale) == float(exact.loss_scale)
        if not same or not _copies_right(ours) or bool(ours.grad.any()) or _error(ours.status, exact.status) > 1e-6:
            return math.inf
    pairs = (
        (ours.param.cpu() - start, exact.param - start),
        (ours.exp_avg, exact.exp_avg),
        (ours.exp_avg_sq, exact.exp_avg_sq),
    )
    padding = torch.ones(layout.total, dtype=torch.bool)
    for view in layout.views(padding):
        view.fill_(False)
    if any(bool(buffer.cpu()[padding].any()) for buffer in (ours.param, ours.exp_avg, ours.exp_avg_sq)):
        return math.inf
    return max(_error(found, expected) for found, expected in pairs)


def _compare_scaled_steps(segments: str, dtype: torch.dtype, device: str, seed: int) -> float:
    """Compare four scaled updates, of which the third is not taken."""
    from burnish_kernels.adamw import op

    generator = torch.Generator().manual_seed(seed)
    layout = FlatLayout(segments_of(SEGMENTS[segments], 8), device)
    compute_buffer = torch.full((layout.copy_end + 8,), math.nan, dtype=dtype, device=device)
    ours = op.FlatOptimizer(layout, compute_buffer)
    exact = _Exact(layout, 1.0)
    for view in layout.views(ours.param):
        view.copy_(0.1 * torch.randn(view.shape, generator=generator))
    ours.write_compute_copies()
    start = ours.param.cpu().double()
    exact.param.copy_(start)
    lengths = torch.rand(len(layout.segments), generator=generator)
    scratch = torch.zeros(exact.layout.copy_end, dtype=torch.float64)
    for step in range(4):
        update = torch.zeros(layout.total)
        for view in layout.views(update):
            view.copy_(0.01 * torch.randn(view.shape, generator=generator))
        factors = torch.zeros(reference.FACTORS)
        factors[reference.TAKE], factors[reference.KEEP] = float(step != 2), 0.99
        wide, moved = update.double(), update.to(device)
        ours.grad.copy_(moved)
        op.apply_update_(layout, ours.param, ours.grad, moved, factors.to(device), compute_buffer, lengths.to(device))
        nothing = torch.zeros_like(wide)
        reference.apply_update_(exact.layout, exact.param, nothing, wide, factors, scratch, lengths.double())
        if bool(ours.grad.any()) or bool(moved.any()) or not _copies_right(ours):
            return math.inf
    return _error(ours.param.cpu().double() - start, exact.param - start)


class _Exact:
    """Runs the reference in double precision."""

    def __init__(self, layout: FlatLayout, loss_scale: float) -> None:
        self.layout = FlatLayout(
            [Segment(s.rows, s.columns, 0, s.columns, 1.0, s.decay) for s in layout.segments], "cpu"
        )
        self.param, self.exp_avg, self.exp_avg_sq = (torch.zeros(layout.total, dtype=torch.float64) for _ in range(3))
        self.counters, self.loss_scale = torch.zeros(3, dtype=torch.int64), torch.tensor([loss_scale])
        self.status = torch.zeros(4, dtype=torch.float64)

    def step(self, gradient: torch.Tensor, control: StepSettings) -> None:
        wide = gradient.double()
        partials, factors = (torch.zeros(size, dtype=torch.float64) for size in (1, reference.FACTORS))
        reference.gradient_norm(wide, partials)
        values = torch.tensor(control.values(), dtype=torch.float64)
        reference.prepare(partials, values, self.counters, self.loss_scale, self.status, factors)
        scratch = torch.zeros(self.layout.copy_end, dtype=torch.float64)
        reference.step_(self.layout, self.param, wide, self.exp_avg, self.exp_avg_sq, factors, scratch)


def _copies_right(ours: Any) -> bool:
    """Return whether every compute copy is its matrix, scaled and rounded, and nothing else was written."""
    layout, compute_buffer = ours.layout, ours.compute_buffer
    first = layout.segments[0].copy_offset - 8
    expected = torch.full(
        (layout.copy_end + 8 - first,), math.nan, dtype=compute_buffer.dtype, device=compute_buffer.device
    )
    for segment, view in zip(layout.segments, layout.views(ours.param), strict=True):
        where = (segment.rows, segment.columns), (segment.copy_row_stride, 1), segment.copy_offset - first
        expected.as_strided(*where).copy_(view * segment.copy_scale)
    found = compute_buffer[first:]
    if compute_buffer.dtype == torch.bfloat16 and not compute_buffer.is_cuda:
        # WORKAROUND: Triton's interpreter cuts bf16 off instead of rounding (seen with Triton 3.7); it can go when the
        # next line holds for it.
        return bool(torch.isclose(found, expected, rtol=2**-7, atol=0.0, equal_nan=True).all())
    return bool(((found == expected) | (found.isnan() & expected.isnan())).all())


def _error(ours: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the relative L2 error; elements that are not finite in both count as equal."""
    found, exact = ours.cpu().double(), exact.double()
    finite = exact.isfinite()
    if not torch.equal(found.isfinite(), finite):
        return math.inf
    return float((found - exact)[finite].norm() / exact[finite].norm())


def compilations() -> list[Compilation]:
    """List all five kernels; the three that write compute copies for each dtype and width of access."""
    from burnish_kernels.adamw import kernel

    partials, factors = {"partials_ptr": "*fp32"}, {"factors_ptr": "*fp32"}
    norm = {"grad_ptr": "*fp32", **partials, "blocks": "i32", "programs": "i32"}
    prepare = {**partials, **factors, "control_ptr": "*fp64", "counters_ptr": "*i64", "programs": "i32"}
    prepare |= dict.fromkeys(["loss_scale_ptr", "status_ptr"], "*fp32")
    found = [
        Compilation("norm", kernel.norm_kernel, norm, {"BLOCK": BLOCK}, kernel.WARPS),
        Compilation("prepare", kernel.prepare_kernel, prepare, {"MAX_PROGRAMS": MAX_PARTIALS}, kernel.WARPS),
    ]
    for compute_buffer, pointer in POINTER_TYPES.items():
        for vector in (4, 2, 1):
            constants = {"BLOCK": BLOCK, "VECTOR": vector}
            tables = {"segments_ptr": "*i32", "geometry_ptr": "*i64", "scales_ptr": "*fp32"}
            compute_copies = {"param_ptr": "*fp32", "copies_ptr": pointer, **tables}
            step = {
                **compute_copies,
                **factors,
                **dict.fromkeys(["grad_ptr", "exp_avg_ptr", "exp_avg_sq_ptr"], "*fp32"),
            }
            step["step_scale_ptr"] = "*fp32"
            name = f"{str(compute_buffer).removeprefix('torch.')}-{vector}"
            for scaled in (False, True):
                kind = f"step-scaled-{name}" if scaled else f"step-{name}"
                found.append(Compilation(kind, kernel.step_kernel, step, {**constants, "SCALED": scaled}, kernel.WARPS))
            displace = {
                **compute_copies,
                **factors,
                **dict.fromkeys(["grad_ptr", "update_ptr", "step_scale_ptr"], "*fp32"),
            }
            found.append(Compilation(f"update-{name}", kernel.apply_update_kernel, displace, constants, kernel.WARPS))
            found.append(
                Compilation(
                    f"copies-{name}", kernel.write_compute_copies_kernel, compute_copies, constants, kernel.WARPS
                )
            )
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List whole steps of rank-16 adapters."""
    for name, segments in adapters():
        yield _benchmark(name, segments, device)


def adapters() -> Iterator[tuple[str, list[Segment]]]:
    """Return rank-16 adapters on every projection of models of 0.6B, 4B and 8B parameters."""
    for name, layers, hidden, inner in (("0.6B", 28, 1024, 3072), ("4B", 36, 2560, 9728), ("8B", 32, 4096, 14336)):
        pair = ((16, hidden, 16, 1.0, True), (hidden, 16, 240, 2.0, True))
        wide = ((16, inner, 16, 1.0, True), (inner, 16, 240, 2.0, True))
        yield name, segments_of((pair * 4 + wide * 3) * layers, 0)


def _benchmark(name: str, segments: list[Segment], device: str) -> Benchmark:
    from burnish_kernels.adamw import op

    compute_buffer = torch.zeros(max(segment.copy_end for segment in segments), dtype=torch.bfloat16, device=device)
    ours = op.AdamW(FlatLayout(segments, device), compute_buffer)
    ours.set_control(CONTROL)
    layout = ours.layout
    leaves = [torch.zeros(s.rows, s.columns, device=device, requires_grad=True) for s in segments]
    theirs = torch.optim.AdamW(leaves, lr=CONTROL.learning_rate, weight_decay=CONTROL.weight_decay, foreach=True)
    for leaf in leaves:
        leaf.grad = torch.zeros_like(leaf)
    compute_copies = layout.compute_copies(compute_buffer)

    def plain() -> None:
        torch.nn.utils.clip_grad_norm_(leaves, CONTROL.max_grad_norm, foreach=True)
        theirs.step()
        torch._foreach_copy_(compute_copies, torch._foreach_mul([leaf.detach() for leaf in leaves], 2.0))
        theirs.zero_grad(set_to_none=False)

    # The gradient twice; parameters and moments read and written; gradient and compute copy written.
    return Benchmark(f"step-{name}-r16", ours.step, plain, bytes=(4 + 4 + 6 * 4 + 4 + 2) * layout.total)
