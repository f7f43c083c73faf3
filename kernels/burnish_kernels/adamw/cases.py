"""What the optimizer step is tested and timed on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.adamw import reference
from burnish_kernels.adamw.layout import BLOCK, MAX_PARTIALS, FlatLayout, Segment
from burnish_kernels.adamw.reference import Control
from burnish_kernels.registry import Benchmark, Case, Compilation

# Of all state after a few steps against double precision; of the parameters it is the change that is compared, which
# is a tenth of the parameters, so that their rounding counts tenfold.
TOLERANCE = 3e-6
ARENAS = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}

CONTROL = Control(learning_rate=1e-2, weight_decay=0.1, max_grad_norm=1.0)
CONTROLS = {
    "clip": CONTROL,
    "free": Control(learning_rate=1e-2, beta1=0.8, beta2=0.95, eps=1e-6),
    "scaled": Control(learning_rate=1e-2, weight_decay=0.1, max_grad_norm=0.5, growth_interval=2),
}

# (rows, columns, elements between a shadow's rows, scale, decay). All that must stay apart for 16-byte accesses is
# divisible by 4, then by 2, then by nothing; then single elements.
SEGMENTS = {
    "fours": ((16, 100, 20, 1.0, True), (300, 16, 16, 2.0, True), (8, 128, 0, 0.5, False), (1, 576, 0, 1.0, False)),
    "twos": ((6, 514, 2, 1.0, True), (130, 6, 10, 0.25, False)),
    "odd": ((3, 683, 1, 1.0, True), (37, 5, 0, 3.0, True), (1, 1, 0, 1.0, False)),
    "single": ((1, 1, 0, 1.0, True),),
    "many": ((16, 1024, 64, 1.0, True), (2560, 16, 2560, 2.0, True)) * 100,
}


def cases() -> list[Case]:
    """Arrangements, dtypes of the arena, settings; a shadow far behind; a skipped step is among the steps of each."""
    found = [
        _case(segments, arena, control)
        for segments in ("fours", "twos", "odd")
        for arena in ARENAS
        for control in ("clip", "scaled")
    ]
    found += [_case("fours", torch.float32, "free"), _case("single", torch.bfloat16, "clip")]
    found.append(_case("many", torch.bfloat16, "scaled", gpu_only=True))
    found.append(_case("fours", torch.bfloat16, "clip", offset=(1 << 31) + 64, gpu_only=True))
    found += [_displacing(segments, arena) for segments in ("fours", "twos", "odd") for arena in ARENAS]
    return found


def _displacing(segments: str, arena: torch.dtype) -> Case:
    name = f"displace-{segments}-{str(arena).removeprefix('torch.')}"
    return Case(name, TOLERANCE, {"displaced": segments, "arena": arena})


def _case(segments: str, arena: torch.dtype, control: str, *, offset: int = 8, gpu_only: bool = False) -> Case:
    name = "-".join([segments, str(arena).removeprefix("torch."), control, *(["far"] if offset > 8 else [])])
    options = {"segments": segments, "arena": arena, "control": control, "offset": offset}
    return Case(name, TOLERANCE, options, gpu_only)


def segments_of(rows: tuple[tuple[int, int, int, float, bool], ...], offset: int) -> list[Segment]:
    """Segments whose shadows lie one after the other from `offset` on."""
    found = []
    for count, columns, apart, scale, decay in rows:
        found.append(Segment(count, columns, offset, columns + apart, scale, decay))
        offset += count * (columns + apart)
    return found


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Worst relative L2 error of parameters' change, moments and gradient norm after six steps, the third skipped.

    Args:
        case: One of `cases()`.
        device: Where the kernels run.
        seed: Of the random inputs.

    Returns:
        The error; infinite where shadows are not the parameters rounded, anything between the shadows or segments was
        written, the gradient is not zeroed, or counters or loss scale differ.
    """
    from burnish_kernels.adamw import op

    options = case.options
    if "displaced" in options:
        return _compare_displaced(options["displaced"], options["arena"], device, seed)
    generator = torch.Generator().manual_seed(seed)
    layout = FlatLayout(segments_of(SEGMENTS[options["segments"]], options["offset"]), device)
    arena = torch.empty(layout.shadow_end + 8, dtype=options["arena"], device=device)
    arena[options["offset"] - 8 :] = math.nan
    ours = op.AdamW(layout, arena, loss_scale=1024.0 if options["control"] == "scaled" else 1.0)
    exact = _Exact(layout, float(ours.loss_scale))
    start = torch.zeros(layout.total)
    for view in layout.views(start):
        view.copy_(0.1 * torch.randn(view.shape, generator=generator))
    ours.param.copy_(start)
    exact.param.copy_(start)
    ours.write_shadows()
    if not _shadows_right(ours):
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
        if not same or not _shadows_right(ours) or bool(ours.grad.any()) or _error(ours.status, exact.status) > 1e-6:
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


def _compare_displaced(segments: str, dtype: torch.dtype, device: str, seed: int) -> float:
    """The same of four displacements, of which the third is not taken."""
    from burnish_kernels.adamw import op

    generator = torch.Generator().manual_seed(seed)
    layout = FlatLayout(segments_of(SEGMENTS[segments], 8), device)
    arena = torch.full((layout.shadow_end + 8,), math.nan, dtype=dtype, device=device)
    ours = op.FlatOptimizer(layout, arena)
    exact = _Exact(layout, 1.0)
    for view in layout.views(ours.param):
        view.copy_(0.1 * torch.randn(view.shape, generator=generator))
    ours.write_shadows()
    start = ours.param.cpu().double()
    exact.param.copy_(start)
    lengths = torch.rand(len(layout.segments), generator=generator)
    scratch = torch.zeros(exact.layout.shadow_end, dtype=torch.float64)
    for step in range(4):
        way = torch.zeros(layout.total)
        for view in layout.views(way):
            view.copy_(0.01 * torch.randn(view.shape, generator=generator))
        factors = torch.zeros(reference.FACTORS)
        factors[reference.TAKE], factors[reference.KEEP] = float(step != 2), 0.99
        wide, moved = way.double(), way.to(device)
        ours.grad.copy_(moved)
        op.displace_(layout, ours.param, ours.grad, moved, factors.to(device), arena, lengths.to(device))
        nothing = torch.zeros_like(wide)
        reference.displace_(exact.layout, exact.param, nothing, wide, factors, scratch, lengths.double())
        if bool(ours.grad.any()) or bool(moved.any()) or not _shadows_right(ours):
            return math.inf
    return _error(ours.param.cpu().double() - start, exact.param - start)


class _Exact:
    """The reference in double precision."""

    def __init__(self, layout: FlatLayout, loss_scale: float) -> None:
        self.layout = FlatLayout(
            [Segment(s.rows, s.columns, 0, s.columns, 1.0, s.decay) for s in layout.segments], "cpu"
        )
        self.param, self.exp_avg, self.exp_avg_sq = (torch.zeros(layout.total, dtype=torch.float64) for _ in range(3))
        self.counters, self.loss_scale = torch.zeros(3, dtype=torch.int64), torch.tensor([loss_scale])
        self.status = torch.zeros(4, dtype=torch.float64)

    def step(self, gradient: torch.Tensor, control: Control) -> None:
        wide = gradient.double()
        partials, factors = (torch.zeros(size, dtype=torch.float64) for size in (1, reference.FACTORS))
        reference.gradient_norm(wide, partials)
        values = torch.tensor(control.values(), dtype=torch.float64)
        reference.prepare(partials, values, self.counters, self.loss_scale, self.status, factors)
        scratch = torch.zeros(self.layout.shadow_end, dtype=torch.float64)
        reference.step_(self.layout, self.param, wide, self.exp_avg, self.exp_avg_sq, factors, scratch)


def _shadows_right(ours: Any) -> bool:
    """Whether every shadow is its matrix, scaled and rounded, and nothing else in the arena was written."""
    layout, arena = ours.layout, ours.arena
    first = layout.segments[0].shadow_offset - 8
    expected = torch.full((layout.shadow_end + 8 - first,), math.nan, dtype=arena.dtype, device=arena.device)
    for segment, view in zip(layout.segments, layout.views(ours.param), strict=True):
        where = (segment.rows, segment.columns), (segment.shadow_row_stride, 1), segment.shadow_offset - first
        expected.as_strided(*where).copy_(view * segment.shadow_scale)
    found = arena[first:]
    if arena.dtype == torch.bfloat16 and not arena.is_cuda:
        # WORKAROUND: Triton's interpreter cuts bf16 off instead of rounding (seen with Triton 3.7); it can go when the
        # next line holds for it.
        return bool(torch.isclose(found, expected, rtol=2**-7, atol=0.0, equal_nan=True).all())
    return bool(((found == expected) | (found.isnan() & expected.isnan())).all())


def _error(ours: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative L2 error; places where both are not finite count as equal."""
    found, exact = ours.cpu().double(), exact.double()
    finite = exact.isfinite()
    if not torch.equal(found.isfinite(), finite):
        return math.inf
    return float((found - exact)[finite].norm() / exact[finite].norm())


def compilations() -> list[Compilation]:
    """All five kernels; the three that write shadows, for each dtype and width of access."""
    from burnish_kernels.adamw import kernel

    partials, factors = {"partials_ptr": "*fp32"}, {"factors_ptr": "*fp32"}
    norm = {"grad_ptr": "*fp32", **partials, "blocks": "i32", "programs": "i32"}
    prepare = {**partials, **factors, "control_ptr": "*fp64", "counters_ptr": "*i64", "programs": "i32"}
    prepare |= dict.fromkeys(["loss_scale_ptr", "status_ptr"], "*fp32")
    found = [
        Compilation("norm", kernel._norm, norm, {"BLOCK": BLOCK}, kernel.WARPS),
        Compilation("prepare", kernel._prepare, prepare, {"MAX_PROGRAMS": MAX_PARTIALS}, kernel.WARPS),
    ]
    for arena, pointer in ARENAS.items():
        for vector in (4, 2, 1):
            constants = {"BLOCK": BLOCK, "VECTOR": vector}
            tables = {"segments_ptr": "*i32", "geometry_ptr": "*i64", "scales_ptr": "*fp32"}
            shadows = {"param_ptr": "*fp32", "arena_ptr": pointer, **tables}
            step = {**shadows, **factors, **dict.fromkeys(["grad_ptr", "exp_avg_ptr", "exp_avg_sq_ptr"], "*fp32")}
            step["displacement_ptr"] = "*fp32"
            name = f"{str(arena).removeprefix('torch.')}-{vector}"
            for scaled in (False, True):
                kind = f"step-scaled-{name}" if scaled else f"step-{name}"
                found.append(Compilation(kind, kernel._step, step, {**constants, "SCALED": scaled}, kernel.WARPS))
            displace = {**shadows, **factors, **dict.fromkeys(["grad_ptr", "way_ptr", "displacement_ptr"], "*fp32")}
            found.append(Compilation(f"displace-{name}", kernel._displace, displace, constants, kernel.WARPS))
            found.append(Compilation(f"shadows-{name}", kernel._shadows, shadows, constants, kernel.WARPS))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """Whole steps of rank-16 adapters."""
    for name, segments in adapters():
        yield _benchmark(name, segments, device)


def adapters() -> Iterator[tuple[str, list[Segment]]]:
    """Rank-16 adapters on every projection of models of 0.6B, 4B and 8B parameters."""
    for name, layers, hidden, inner in (("0.6B", 28, 1024, 3072), ("4B", 36, 2560, 9728), ("8B", 32, 4096, 14336)):
        pair = ((16, hidden, 16, 1.0, True), (hidden, 16, 240, 2.0, True))
        wide = ((16, inner, 16, 1.0, True), (inner, 16, 240, 2.0, True))
        yield name, segments_of((pair * 4 + wide * 3) * layers, 0)


def _benchmark(name: str, segments: list[Segment], device: str) -> Benchmark:
    from burnish_kernels.adamw import op

    arena = torch.zeros(max(segment.shadow_end for segment in segments), dtype=torch.bfloat16, device=device)
    ours = op.AdamW(FlatLayout(segments, device), arena)
    ours.set_control(CONTROL)
    layout = ours.layout
    leaves = [torch.zeros(s.rows, s.columns, device=device, requires_grad=True) for s in segments]
    theirs = torch.optim.AdamW(leaves, lr=CONTROL.learning_rate, weight_decay=CONTROL.weight_decay, foreach=True)
    for leaf in leaves:
        leaf.grad = torch.zeros_like(leaf)
    shadows = layout.shadows(arena)

    def plain() -> None:
        torch.nn.utils.clip_grad_norm_(leaves, CONTROL.max_grad_norm, foreach=True)
        theirs.step()
        torch._foreach_copy_(shadows, torch._foreach_mul([leaf.detach() for leaf in leaves], 2.0))
        theirs.zero_grad(set_to_none=False)

    # The gradient twice; parameters and moments read and written; gradient and shadow written.
    return Benchmark(f"step-{name}-r16", ours.step, plain, bytes=(4 + 4 + 6 * 4 + 4 + 2) * layout.total)
