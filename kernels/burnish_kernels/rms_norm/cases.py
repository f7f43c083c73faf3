"""Test cases, compilations and benchmarks of RMSNorm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.eight_bit_linear.case_parts import CodesBuffer
from burnish_kernels.eight_bit_linear.tiles import use_eight_bit_kernels
from burnish_kernels.registry import CAPABILITIES, FP8_CAPABILITIES, Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference in double precision: a few units in the last place of the dtype.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
EPS = 0.01  # large, so that it is seen
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}

SHAPES = ((1, 576), (7, 64), (13, 2560), (9, 16), (3, 1000), (2, 8192), (11, 24), (131, 24))
INTERPRETED_ROWS = 64
"""Most rows of a case for the interpreter: a row has a program of its own, so many rows show no more than a few."""
HIDDEN_SIZES = (576, 2048, 1152, 2560, 3072, 4096, 5120, 8192, 16384)


def cases() -> list[Case]:
    """List shapes, dtypes, weight conventions, residual or none; strided rows, in-place outputs, codes, far offsets."""
    found = [
        _case(rows, hidden, dtype, residual=residual, one_plus=one_plus)
        for rows, hidden in SHAPES
        for dtype in TOLERANCE
        for residual, one_plus in ((False, False), (True, True))
    ]
    for dtype in TOLERANCE:
        found += [
            _case(5, 600, dtype, residual=True, padding=24),
            _case(6, 96, dtype, residual=False, one_plus=True, padding=16),
            _case(5, 320, dtype, residual=True, in_place=True),
            _case(3, 1152, dtype, residual=True, one_plus=True, padding=8, in_place=True),
            _case(5, 576, dtype, residual=True, padding=16, in_place=True, codes=True),
            _case(3, 1000, dtype, residual=False, one_plus=True, codes=True),
            _case(2, 24, dtype, residual=False, codes=True),
        ]
    # The last row begins 2^31 elements behind the first.
    far = _case(3, 96, torch.bfloat16, residual=True, padding=1 << 30)
    return [*found, Case("far-rows", far.tolerance, far.options, gpu_only=True)]


def _case(
    rows: int,
    hidden: int,
    dtype: torch.dtype,
    *,
    residual: bool,
    one_plus: bool = False,
    padding: int = 0,
    in_place: bool = False,
    codes: bool = False,
) -> Case:
    words = {"residual": residual, "1+w": one_plus, f"padding{padding}": padding, "in-place": in_place, "codes": codes}
    name = "-".join([f"{rows}x{hidden}", str(dtype).removeprefix("torch."), *(word for word in words if words[word])])
    options = {"rows": rows, "hidden": hidden, "dtype": dtype, "residual": residual, "one_plus": one_plus}
    options |= {"padding": padding, "in_place": in_place, "codes": codes}
    return Case(name, TOLERANCE[dtype], options, gpu_only=rows > INTERPRETED_ROWS)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of outputs and gradient against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where y does not come back (bit for bit in 16 bits; in fp32, where lanes of a short row may
        add in another order and so differ in the last bit of two factors, to 5e-7), or something beside the outputs
        was written, or codes are not to the last bit those of `quantize_rows`, or y and the gradient are others than
        without codes.
    """
    from burnish_kernels.rms_norm import op

    options = case.options
    generator = torch.Generator().manual_seed(seed)
    shape, dtype = (options["rows"], options["hidden"]), options["dtype"]

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(dtype)

    x, weight, dy = draw(*shape), draw(shape[1]), draw(*shape)
    residual, dsum = (draw(*shape), draw(*shape)) if options["residual"] else (None, None)
    exact = _exact(x, weight, dy, residual, dsum, options["one_plus"])

    buffers = StridedBuffers(shape[0], options["padding"], dtype, device)
    one_plus = options["one_plus"]
    x_in, weight = buffers.new(shape[1], x), weight.to(device)
    residual_in = None if residual is None else buffers.new(shape[1], residual)
    sum_out = None if residual_in is None else residual_in if options["in_place"] else buffers.new(shape[1])
    y_codes, dx_codes = (CodesBuffer(*shape, device) if options["codes"] else None for _ in range(2))
    factor = torch.rand(shape[1], generator=generator).to(device) if options["codes"] and residual is not None else None
    alone: list[torch.Tensor] = []  # y and the gradient without codes
    if options["codes"]:
        same = None if residual_in is None else residual_in.clone()
        alone += op.forward(x_in.clone(), weight, eps=EPS, residual_TH=same, one_plus_weight=one_plus)[:1]
    y, total, inverse = op.forward(
        x_in,
        weight,
        eps=EPS,
        residual_TH=residual_in,
        one_plus_weight=one_plus,
        out=x_in if options["in_place"] else buffers.new(shape[1]),
        sum_out=sum_out,
        codes_out=None if y_codes is None else y_codes.rows,
    )
    if y_codes is not None and not y_codes.holds(y):
        return math.inf
    dsum_in = None if dsum is None else buffers.new(shape[1], dsum)
    y_again = buffers.new(shape[1])
    if options["codes"]:
        same = None if dsum_in is None else dsum_in.clone()
        alone.append(op.backward(dy.to(device), total, weight, inverse, dsum_TH=same, one_plus_weight=one_plus))
    dx = op.backward(
        buffers.new(shape[1], dy),
        total,
        weight,
        inverse,
        dsum_TH=dsum_in,
        one_plus_weight=one_plus,
        out=dsum_in if options["in_place"] else buffers.new(shape[1]),
        y_out=y_again,
        codes_out=None if dx_codes is None else dx_codes.rows,
        factor_H=factor,
    )
    if dx_codes is not None and not dx_codes.holds(dx, factor):
        return math.inf
    last_bit = {"rtol": 5e-7, "atol": 0.0} if dtype == torch.float32 else {"rtol": 0.0, "atol": 0.0}
    again = [(y, y_again), *zip((y, dx), alone, strict=False)]
    if not all(torch.allclose(*pair, **last_bit) for pair in again) or buffers.spoiled():
        return math.inf
    found = [y, dx] if residual is None else [y, dx, total]
    return max(_error(ours, theirs) for ours, theirs in zip(found, exact, strict=True))


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = float((found.cpu().double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


def _exact(
    x: torch.Tensor,
    weight: torch.Tensor,
    dy: torch.Tensor,
    residual: torch.Tensor | None,
    dsum: torch.Tensor | None,
    one_plus: bool,
) -> list[torch.Tensor]:
    """Return y, dx and, with a residual, the sum: by autograd through the reference in double precision."""
    from burnish_kernels.rms_norm import reference

    x = x.double().requires_grad_()
    wide_residual = None if residual is None else residual.double()
    y, total, _ = reference.forward(x, weight.double(), eps=EPS, residual_TH=wide_residual, one_plus_weight=one_plus)
    if dsum is None:
        (dx,) = torch.autograd.grad(y, x, dy.double())
        return [y.detach(), dx]
    (dx,) = torch.autograd.grad([y, total], x, [dy.double(), dsum.double()])
    return [y.detach(), dx, total.detach()]


def compilations() -> list[Compilation]:
    """List both kernels, at hidden sizes with every form of tile, with all options, with and without codes."""
    from burnish_kernels.rms_norm import kernel

    found = []
    for dtype, pointer in TYPES.items():
        # fp16 hardly differs from bf16: a size of either form is enough.
        for hidden in HIDDEN_SIZES if dtype is not torch.float16 else HIDDEN_SIZES[:2]:
            constants = kernel.configuration(hidden)
            warps = constants.pop("num_warps")
            for function, pointers, switches in (
                (kernel.rms_norm_forward_kernel, ("x", "residual", "weight", "y", "sum"), ("HAS_RESIDUAL",)),
                (kernel.rms_norm_backward_kernel, ("dy", "dsum", "sum", "weight", "dx", "y"), ("HAS_DSUM", "HAS_Y")),
            ):
                strided = [name for name in pointers if name != "weight"]
                signature = {f"{name}_ptr": pointer for name in pointers} | {"inverse_ptr": "*fp32"}
                signature |= dict.fromkeys(["H", *(f"{name}_stride" for name in strided), "codes_stride"], "i32")
                if function is kernel.rms_norm_forward_kernel:
                    signature["eps"] = "fp32"
                else:
                    signature["factor_ptr"] = "*fp32"
                fixed = {**constants, **dict.fromkeys(switches, True), "ONE_PLUS": hidden == 1152, "INTERPRETED": False}
                for codes, capabilities in (("", CAPABILITIES), ("e4m3", FP8_CAPABILITIES), ("int8", CAPABILITIES)):
                    codes_pointer = {"": pointer, "e4m3": "*fp8e4nv", "int8": "*i8"}[codes]
                    written = {"codes_ptr": codes_pointer, "scale_ptr": "*fp32" if codes else pointer}
                    own = fixed | {"HAS_CODES": bool(codes)}
                    if function is kernel.rms_norm_backward_kernel:
                        own["HAS_FACTOR"] = bool(codes)
                    name = f"{function.__name__}-{hidden}-{pointer[1:]}{'-codes-' * bool(codes)}{codes}"
                    found.append(
                        Compilation(name, function, signature | written, own, warps, capabilities=capabilities)
                    )
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List forward and backward as in a decoder layer: with the residual, y recomputed for the adapters' gradients."""
    rows, dtype = 16384, torch.bfloat16
    for hidden in (576, 1024, 1152, 2048, 2560, 3072, 4096, 5120, 8192):
        x, residual, dy, y, total = (torch.randn(rows, hidden, device=device, dtype=dtype) for _ in range(5))
        weight = torch.randn(hidden, device=device, dtype=dtype)
        inverse = torch.rand(rows, device=device)
        yield _benchmark("forward", 4, x, residual, dy, y, total, weight, inverse)
        yield _benchmark("backward", 4, x, residual, dy, y, total, weight, inverse)
        yield _benchmark("backward-y", 5, x, residual, dy, y, total, weight, inverse)
        if use_eight_bit_kernels(x):
            yield _benchmark("forward-codes", 4.5, x, residual, dy, y, total, weight, inverse)
            yield _benchmark("backward-codes", 4.5, x, residual, dy, y, total, weight, inverse)


def _benchmark(kind: str, tensors: float, *buffers: torch.Tensor) -> Benchmark:
    from burnish_kernels.rms_norm import op, reference

    x, residual, dy, y, total, weight, inverse = buffers
    options: dict[str, Any] = {"dsum_TH": residual}

    codes = CodesBuffer(x.shape[0], x.shape[1], x.device).rows if kind.endswith("codes") else None
    factor = None if codes is None else weight.float()

    def run() -> object:
        if kind.startswith("forward"):
            return op.forward(x, weight, eps=EPS, residual_TH=residual, out=y, sum_out=total, codes_out=codes)
        options["y_out"] = y if kind == "backward-y" else None
        return op.backward(dy, total, weight, inverse, **options, out=x, codes_out=codes, factor_H=factor)

    def plain() -> object:
        if kind.startswith("forward"):
            return reference.forward(x, weight, eps=EPS, residual_TH=residual)
        return reference.backward(dy, total, weight, inverse, dsum_TH=residual)

    size = f"{x.shape[0]}x{x.shape[1]}"
    return Benchmark(f"{kind}-{size}", run, plain, bytes=int(tensors * x.nbytes))
