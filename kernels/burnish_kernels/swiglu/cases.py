"""Test cases, compilations and benchmarks of the gated activation."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from burnish_kernels.eight_bit_linear.case_parts import NAMES as CODE_NAMES
from burnish_kernels.eight_bit_linear.case_parts import CodesBuffer
from burnish_kernels.eight_bit_linear.rows import INT8
from burnish_kernels.eight_bit_linear.tiles import CAPABILITIES_OF, use_eight_bit_kernels
from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.swiglu.adapted import cases as adapted_cases

# Relative L2 error against the reference in double precision: one rounding to the dtype; a few in fp32. To bf16
# Triton's interpreter does not round but cuts off, so its error is twice the GPU's.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 6e-3}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}

SHAPES = ((1, 512), (7, 600), (3, 1536), (13, 24))
FAR_ROWS, FAR_SIZE = 80_000, 14_336  # T·2I passes 2^31


def cases() -> list[Case]:
    """List shapes, dtypes and activations; strided rows, in-place outputs, codes, more elements than 32 bits count."""
    found = []
    for dtype in TOLERANCE:
        found += [_case(rows, size, dtype, "silu") for rows, size in SHAPES]
        for activation in ("silu", "gelu_tanh", "gelu"):
            found += [
                _case(5, 520, dtype, activation, padding=24),
                _case(4, 96, dtype, activation, padding=8, in_place=True),
                _case(3, 96, dtype, activation, padding=8, in_place=True, codes=True),
            ]
        found.append(_case(5, 1056, dtype, "silu", codes=True))
    far = {"rows": FAR_ROWS, "size": FAR_SIZE, "dtype": torch.bfloat16, "activation": "silu", "far": True}
    return [*found, Case("far-rows", TOLERANCE[torch.bfloat16], far, gpu_only=True), *adapted_cases.cases()]


def _case(
    rows: int,
    size: int,
    dtype: torch.dtype,
    activation: str,
    *,
    padding: int = 0,
    in_place: bool = False,
    codes: bool = False,
) -> Case:
    words = {f"padding{padding}": padding, "in-place": in_place, "codes": codes}
    kind = str(dtype).removeprefix("torch.")
    name = "-".join([f"{rows}x{size}", kind, activation, *(word for word in words if words[word])])
    options = {"rows": rows, "size": size, "dtype": dtype, "activation": activation}
    return Case(name, TOLERANCE[dtype], options | {"padding": padding, "in_place": in_place, "codes": codes})


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of result and gradient against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where the result does not come back bit for bit, something beside it was written, or codes
        are not to the last bit those of `quantize_rows`.
    """
    from burnish_kernels.swiglu import op

    options = case.options
    if options.get("adapted"):
        return adapted_cases.compare(case, device, seed)
    generator = torch.Generator().manual_seed(seed)
    rows, size, dtype, activation = (options[name] for name in ("rows", "size", "dtype", "activation"))
    if options.get("far"):
        return _compare_far(device)

    # Gates of up to about 12 in size, so that the activation's flat parts are met.
    gate_up = (torch.randn(rows, 2 * size, generator=generator) * 3).to(dtype)
    dact = torch.randn(rows, size, generator=generator).to(dtype)
    exact = _exact(gate_up, dact, activation)

    buffers: list[tuple[torch.Tensor, int]] = []

    def new(width: int, content: torch.Tensor | None = None) -> torch.Tensor:
        """Make rows with another stride in each tensor."""
        padding = options["padding"] and options["padding"] + 8 * len(buffers)
        buffers.append((torch.full((rows, width + padding), math.nan, dtype=dtype, device=device), width))
        view = buffers[-1][0][:, :width]
        return view if content is None else view.copy_(content)

    stacked, upstream = new(2 * size, gate_up), new(size, dact)
    act_codes, codes = (CodesBuffer(rows, width, device) if options["codes"] else None for width in (size, 2 * size))
    factor = torch.rand(2 * size, generator=generator).to(device) if options["codes"] and activation == "silu" else None
    act = op.forward(
        stacked, activation=activation, out=new(size), codes_out=None if act_codes is None else act_codes.rows
    )
    if act_codes is not None and not act_codes.holds(act):
        return math.inf
    again = upstream if options["in_place"] else new(size)
    gradient = op.backward(
        upstream,
        stacked,
        activation=activation,
        out=stacked if options["in_place"] else new(2 * size),
        act_out=again,
        codes_out=None if codes is None else codes.rows,
        factor_J=factor,
    )
    if codes is not None and not codes.holds(gradient, factor):
        return math.inf
    spoiled = any(bool(whole[:, width:].isfinite().any()) for whole, width in buffers)
    if spoiled or not torch.equal(act, again):
        return math.inf
    found = [act, gradient[:, :size], gradient[:, size:]]
    return max(_error(ours, theirs) for ours, theirs in zip(found, exact, strict=True))


def _exact(gate_up: torch.Tensor, dact: torch.Tensor, activation: str) -> list[torch.Tensor]:
    """Return result and both gradients by autograd through the reference in double precision."""
    from burnish_kernels.swiglu import reference

    leaf = gate_up.double().requires_grad_()
    act = reference.forward(leaf, activation=activation)
    (gradient,) = torch.autograd.grad(act, leaf, dact.double())
    return [act.detach(), *gradient.chunk(2, dim=1)]


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = float((found.cpu().double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


def _compare_far(device: str) -> float:
    """Compare first and last rows of very many, in place to need less memory."""
    from burnish_kernels.swiglu import op

    def fill(width: int) -> torch.Tensor:
        pattern = torch.randn(width + 1009, device=device, dtype=torch.bfloat16)
        rows = torch.empty(FAR_ROWS, width, device=device, dtype=torch.bfloat16)
        for row in range(1009):  # every row begins elsewhere in the pattern: a wrong row is seen
            rows[row::1009] = pattern[row : row + width]
        return rows

    gate_up, dact = fill(2 * FAR_SIZE), fill(FAR_SIZE)
    ends = torch.tensor([0, 1, FAR_ROWS // 2, FAR_ROWS - 2, FAR_ROWS - 1], device=device)
    exact = _exact(gate_up[ends].cpu(), dact[ends].cpu(), "silu")
    first = op.forward(gate_up, activation="silu")[ends]
    op.backward(dact, gate_up, activation="silu", out=gate_up, act_out=dact)
    found = [dact[ends], gate_up[ends][:, :FAR_SIZE], gate_up[ends][:, FAR_SIZE:]]
    return max(_error(ours, theirs) for ours, theirs in zip([first, *found], [exact[0], *exact], strict=True))


def compilations() -> list[Compilation]:
    """List both kernels for every dtype and activation (the tile is always the same), and those with adapters."""
    from burnish_kernels.swiglu import kernel

    found = []
    for dtype, pointer in TYPES.items():
        for activation in ("silu", "gelu_tanh", "gelu"):
            constants = {"ACTIVATION": activation, "ROWS": kernel.ROWS, "COLUMNS": kernel.COLUMNS}
            for function, pointers, strided, switches in (
                (kernel.swiglu_forward_kernel, ("gate", "up", "act"), ("gate", "act"), {}),
                (
                    kernel.swiglu_backward_kernel,
                    ("dact", "gate", "up", "dgate", "dup", "act"),
                    ("dact", "gate", "dgate", "act"),
                    {"HAS_ACT": True},
                ),
            ):
                signature = {f"{name}_ptr": pointer for name in pointers}
                signature |= dict.fromkeys(["T", "size", *(f"{name}_stride" for name in strided)], "i32")
                name = f"{function.__name__}-{activation}-{str(dtype).removeprefix('torch.')}"
                found.append(Compilation(name, function, signature, constants | switches, num_warps=kernel.WARPS))
            found += [
                _coded(pointer, activation, backward, codes) for backward in (False, True) for codes in CODE_NAMES
            ]
    return [*found, *adapted_cases.compilations()]


def _coded(pointer: str, activation: str, backward: bool, codes: torch.dtype) -> Compilation:
    from burnish_kernels.swiglu import kernel

    pointers = ("dact", "gate", "up", "dgate_up", "act") if backward else ("gate", "up", "act")
    strided = ("dact", "gate", "dgate", "act", "codes") if backward else ("gate", "act", "codes")
    signature = {f"{name}_ptr": pointer for name in pointers} | {"scale_ptr": "*fp32"}
    signature |= dict.fromkeys(["T", "size", *(f"{name}_stride" for name in strided)], "i32")
    signature["codes_ptr"] = "*i8" if codes == INT8 else "*fp8e4nv"
    constants = {"ACTIVATION": activation, "ROWS": kernel.CODED_ROWS, "COLUMNS": kernel.CODED_COLUMNS}
    constants |= {"INTERPRETED": False}
    function = kernel.swiglu_forward_coded_kernel
    if backward:
        function = kernel.swiglu_backward_coded_kernel
        signature["factor_ptr"] = "*fp32"
        constants |= {"HAS_ACT": True, "HAS_FACTOR": True}
    name = f"{function.__name__}-{activation}-{pointer[1:]}{CODE_NAMES[codes]}"
    capabilities = CAPABILITIES_OF[codes]
    return Compilation(name, function, signature, constants, kernel.CODED_WARPS, capabilities=capabilities)


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List forward and backward, without and with the result again (for adapter gradients); with adapters."""
    rows, dtype = 16384, torch.bfloat16
    for size, activation in (
        (1536, "silu"),
        (3072, "silu"),
        (6912, "gelu_tanh"),
        (8192, "silu"),
        (9728, "silu"),
        (14336, "silu"),
        (28672, "silu"),
    ):
        gate_up = torch.randn(rows, 2 * size, device=device, dtype=dtype)
        # The gradient, not in place: repeated, the values would run off to infinity.
        gradient = torch.empty_like(gate_up)
        act, dact = (torch.randn(rows, size, device=device, dtype=dtype) for _ in range(2))
        kinds: list[tuple[str, float]] = [("forward", 3), ("backward", 5), ("backward-act", 6)]
        if use_eight_bit_kernels(act):
            kinds += [("forward-codes", 3.5), ("backward-codes", 6)]
        for kind, tensors in kinds:
            yield _benchmark(kind, tensors, activation, gate_up, gradient, act, dact)
        del gate_up, gradient, act, dact
    yield from adapted_cases.benchmarks(device)


def _benchmark(
    kind: str,
    tensors: float,
    activation: str,
    gate_up: torch.Tensor,
    gradient: torch.Tensor,
    act: torch.Tensor,
    dact: torch.Tensor,
) -> Benchmark:
    from burnish_kernels.swiglu import op, reference

    codes, factor = None, None
    if kind.endswith("codes"):
        codes = CodesBuffer(len(act), (act if kind.startswith("forward") else gate_up).shape[1], act.device).rows
        factor = torch.rand(gate_up.shape[1], device=act.device)

    def run() -> object:
        if kind.startswith("forward"):
            return op.forward(gate_up, activation=activation, out=act, codes_out=codes)
        words = {"out": gradient, "act_out": act if kind == "backward-act" else None, "factor_J": factor}
        return op.backward(dact, gate_up, activation=activation, **words, codes_out=codes)

    def plain() -> object:
        if kind.startswith("forward"):
            return reference.forward(gate_up, activation=activation)
        return reference.backward(dact, gate_up, activation=activation)

    name = f"{kind}-{activation}-{act.shape[0]}x{act.shape[1]}"
    return Benchmark(name, run, plain, bytes=int(tensors * act.nbytes))
