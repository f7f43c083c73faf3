"""Test cases, compilations, benchmarks and tunings of cross entropy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.cross_entropy.config import CONFIGS, CrossEntropyConfig, default_config, tuning_key
from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.tuning import Tuning

# Relative L2 error against the reference in double precision: a unit in the last place of the dtype for the gradient;
# in fp32 also the error of exp, which grows with the distance of a logit from the largest one.
TOLERANCE = {torch.float32: 4e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}

SCALE = 4096.0  # loss scale: small gradients must not vanish in fp16
PLAIN: dict[str, Any] = {"softcap": None, "label_smoothing": 0.0, "z_loss": 0.0}
ALL: dict[str, Any] = {"softcap": 5.0, "label_smoothing": 0.1, "z_loss": 1e-3}

# Less than a group, one block, exactly whole blocks, whole blocks and a rest, the same of a large vocabulary.
SHAPES = ((1, 3), (7, 131), (2, 8192), (3, 16411), (2, 70001))


def cases() -> list[Case]:
    """List shapes, dtypes, every loss term alone and together, strided rows, far offsets, and a linear layer before."""
    found = []
    for dtype in TOLERANCE:
        found += [_case(rows, size, dtype, **terms) for rows, size in SHAPES for terms in (PLAIN, ALL)]
        found += [_case(5, 1000, dtype, **PLAIN | {term: ALL[term]}) for term in ALL]
        found += [
            _case(6, 1000, dtype, padding=24, targets=torch.int32, **ALL),
            _case(4, 1001, dtype, padding=15, **PLAIN),
        ]
        found += [_case(13, 300, dtype, hidden=32, **terms) for terms in (PLAIN, ALL)]
    found.append(_case(300, 151936, torch.bfloat16, gpu_only=True, **PLAIN))
    found.append(_case(64, 262208, torch.float16, gpu_only=True, **ALL))
    # The last row begins 2^31 elements and more behind the first.
    found.append(_case(3, 4099, torch.bfloat16, padding=(1 << 30) - 3, gpu_only=True, **PLAIN))
    return found


def _case(
    rows: int,
    vocabulary: int,
    dtype: torch.dtype,
    *,
    softcap: float | None,
    label_smoothing: float,
    z_loss: float,
    padding: int = 0,
    targets: torch.dtype = torch.int64,
    hidden: int = 0,
    gpu_only: bool = False,
) -> Case:
    terms = {"softcap": softcap, "label_smoothing": label_smoothing, "z_loss": z_loss}
    words = {**terms, f"padding{padding}": padding, f"hidden{hidden}": hidden}
    name = "-".join(
        [f"{rows}x{vocabulary}", str(dtype).removeprefix("torch."), *(word for word in words if words[word])]
    )
    options = {"rows": rows, "vocabulary": vocabulary, "dtype": dtype, "terms": terms, "padding": padding}
    return Case(name, TOLERANCE[dtype], options | {"targets": targets, "hidden": hidden}, gpu_only)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of losses and gradient against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where a row without a label got a gradient, something beside the logits was written, or a
        target was wrongly called the largest logit or not.
    """
    generator = torch.Generator().manual_seed(seed)
    rows, vocabulary = case.options["rows"], case.options["vocabulary"]
    targets = torch.randint(0, vocabulary, (rows,), generator=generator).to(case.options["targets"])
    targets[1::4] = -100
    targets[-1] = vocabulary - 1
    if case.options["hidden"]:
        return _compare_linear(case, targets, device, generator)
    return _compare_logits(case, targets, device, generator)


def _compare_logits(case: Case, targets: torch.Tensor, device: str, generator: torch.Generator) -> float:
    from burnish_kernels.cross_entropy import op, reference

    options, terms = case.options, case.options["terms"]
    rows, vocabulary, dtype = options["rows"], options["vocabulary"], options["dtype"]
    logits = (3.0 * torch.randn(rows, vocabulary, generator=generator)).to(dtype)
    if rows > 2:
        # The target is the largest; so is another, before it; so is another, behind it.
        targets[0], logits[0, vocabulary // 2] = vocabulary // 2, 20.0
        targets[2], logits[2, [1, vocabulary // 2]] = vocabulary // 2, 20.0
        targets[3 % rows], logits[3 % rows, [1, vocabulary // 2]] = 1, 20.0
    wide = logits.double().requires_grad_()
    exact_loss = reference.losses(wide, targets, **terms)
    (exact_gradient,) = torch.autograd.grad(exact_loss.sum() * SCALE, wide)
    logits[targets == -100] = torch.tensor([math.nan, math.inf, -math.inf]).to(dtype).repeat(vocabulary)[:vocabulary]

    stride = vocabulary + options["padding"]
    storage = torch.empty(rows * stride, dtype=dtype, device=device)
    within = storage.as_strided((rows, vocabulary), (stride, 1))
    near = options["padding"] < 1 << 20
    if near:
        storage.fill_(math.nan)
    within.copy_(logits)
    loss, loss_again = (torch.full((rows,), math.nan, device=device) for _ in range(2))
    correct, correct_again = (
        torch.full((rows,), 7, dtype=torch.int32, device=device),
        torch.empty(rows, dtype=torch.bool, device=device),
    )
    op.loss_only(within, targets.to(device), loss_again, correct_R=correct_again, **terms)
    if not torch.equal(within.cpu().nan_to_num(5.0), logits.nan_to_num(5.0)):
        return math.inf
    scale = torch.tensor(SCALE, device=device)
    op.loss_and_gradient_(within, targets.to(device), loss, scale, correct_R=correct, **terms)
    expected = reference.correct(logits, targets).int()
    wrong = not torch.equal(correct.cpu(), expected) or not torch.equal(correct_again.cpu().int(), expected)
    leaked = bool((within.cpu()[targets == -100] != 0).any())
    spoiled = near and options["padding"] and not bool(storage.view(rows, stride)[:, vocabulary:].isnan().all())
    if wrong or leaked or spoiled:
        return math.inf
    return max(_error(loss, exact_loss), _error(loss_again, exact_loss), _error(within, exact_gradient))


def _compare_linear(case: Case, targets: torch.Tensor, device: str, generator: torch.Generator) -> float:
    from burnish_kernels.cross_entropy import op, reference

    options, terms = case.options, case.options["terms"]
    dtype, hidden = options["dtype"], options["hidden"]
    h = torch.randn(options["rows"], hidden, generator=generator).to(dtype)
    weight = (torch.randn(options["vocabulary"], hidden, generator=generator) / hidden**0.5).to(dtype)
    wide = h.double().requires_grad_()
    exact = reference.losses(wide @ weight.double().t(), targets, **terms)
    (exact_gradient,) = torch.autograd.grad(exact.sum() * SCALE, wide)
    loss, gradient = torch.empty(options["rows"], device=device), torch.empty_like(h, device=device)
    op.linear_cross_entropy(
        h.to(device),
        weight.to(device),
        targets.to(device),
        torch.tensor(SCALE, device=device),
        dh_out=gradient,
        loss_R=loss,
        logits_buffer=op.new_logits_buffer(5, options["vocabulary"], dtype, device),
        **terms,
    )
    # Logits and their gradient are rounded to the dtype on the way: three roundings.
    return max(_error(loss, exact), _error(gradient, exact_gradient)) / 3.0


def _error(ours: torch.Tensor, exact: torch.Tensor) -> float:
    exact = exact.detach()
    return float((ours.detach().cpu().double() - exact).norm() / exact.norm())


def compilations() -> list[Compilation]:
    """List every way to spread a row; every dtype with all terms and with none."""
    found = [_compilation(torch.bfloat16, config, gradient=True, terms=False) for config in CONFIGS]
    for dtype in TYPES:
        for vocabulary in (32000, 151936) if dtype is torch.bfloat16 else (151936,):
            config = default_config(vocabulary, dtype.itemsize)
            found.append(_compilation(dtype, config, gradient=True, terms=True))
            found.append(_compilation(dtype, config, gradient=False, terms=False))
    return found


def _compilation(dtype: torch.dtype, config: CrossEntropyConfig, *, gradient: bool, terms: bool) -> Compilation:
    from burnish_kernels.cross_entropy import kernel

    pointers = {"logits_ptr": TYPES[dtype], "targets_ptr": "*i64", "correct_ptr": "*i32"}
    pointers |= dict.fromkeys(["loss_ptr", "scale_ptr"], "*fp32")
    numbers = {"row_stride": "i32", "V": "i32"} | dict.fromkeys(["softcap", "label_smoothing", "z_loss"], "fp32")
    constants: dict[str, Any] = {"GRADIENT": gradient, "GROUPS": config.groups(), "WIDTH": 16 // dtype.itemsize}
    constants |= dict.fromkeys(["HAS_SOFTCAP", "SMOOTH", "CORRECT"], terms)
    words = [TYPES[dtype][1:], f"{config.warps}x{config.accesses}", "gradient" * gradient, "terms" * terms]
    name = "-".join(word for word in words if word)
    return Compilation(name, kernel.cross_entropy_kernel, pointers | numbers, constants, config.warps, num_stages=1)


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List chunks of common vocabularies, few rows, the losses alone, and a whole step's head."""
    for rows, vocabulary in ((4096, 32000), (4096, 128256), (4096, 151936), (2048, 262144), (128, 151936)):
        for gradient in (True, False):
            yield _benchmark(rows, vocabulary, device, gradient=gradient)
    for hidden, vocabulary in ((1024, 151936), (2048, 128256)):
        yield _linear_benchmark(16384, hidden, vocabulary, device)


def _benchmark(rows: int, vocabulary: int, device: str, *, gradient: bool) -> Benchmark:
    from burnish_kernels.cross_entropy import op

    logits = torch.randn(rows, vocabulary, device=device, dtype=torch.bfloat16)
    targets = torch.randint(0, vocabulary, (rows,), device=device)
    loss, scale = torch.empty(rows, device=device), torch.ones(1, device=device)

    def run() -> None:
        if gradient:
            op.loss_and_gradient_(logits, targets, loss, scale)
        else:
            op.loss_only(logits, targets, loss)

    def plain() -> object:
        if not gradient:
            return torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        leaf = logits.detach().requires_grad_()
        return torch.autograd.grad(torch.nn.functional.cross_entropy(leaf, targets, reduction="sum"), leaf)

    kind = "gradient" if gradient else "loss"
    return Benchmark(f"{kind}-{rows}x{vocabulary}", run, plain, bytes=(1 + gradient) * 2 * rows * vocabulary)


def _linear_benchmark(rows: int, hidden: int, vocabulary: int, device: str) -> Benchmark:
    from burnish_kernels.cross_entropy import op

    h, dh = (torch.randn(rows, hidden, device=device, dtype=torch.bfloat16) for _ in range(2))
    weight = torch.randn(vocabulary, hidden, device=device, dtype=torch.bfloat16) / hidden**0.5
    targets = torch.randint(0, vocabulary, (rows,), device=device)
    loss, scale = torch.empty(rows, device=device), torch.ones(1, device=device)
    buffer = op.new_logits_buffer(4096, vocabulary, torch.bfloat16, device)

    def run() -> None:
        op.linear_cross_entropy(h, weight, targets, scale, dh_out=dh, loss_R=loss, logits_buffer=buffer)

    passes = 4 * 2 * rows * vocabulary  # logits written, read, overwritten, read
    return Benchmark(f"linear-{rows}x{hidden}x{vocabulary}", run, None, passes, flops=4 * rows * hidden * vocabulary)


def tunings(device: str) -> Iterator[Tuning]:
    """List the tunings of how to spread the rows of common vocabularies."""
    for vocabulary in (32000, 65536, 128256, 262144):
        yield _tuning(2048, vocabulary, device)


def _tuning(rows: int, vocabulary: int, device: str) -> Tuning:
    from burnish_kernels.cross_entropy.kernel import launch

    logits = torch.randn(rows, vocabulary, device=device, dtype=torch.bfloat16)
    targets = torch.randint(0, vocabulary, (rows,), device=device)
    loss, scale = torch.empty(rows, device=device), torch.ones(1, device=device)

    def run(config: CrossEntropyConfig) -> None:
        launch(
            logits_RV=logits,
            targets_R=targets,
            loss_R=loss,
            scale=scale,
            softcap=None,
            label_smoothing=0.0,
            z_loss=0.0,
            correct_R=None,
            config=config,
        )

    default = default_config(vocabulary, 2)
    candidates = [default, *(config for config in CONFIGS if config != default)]
    return Tuning(tuning_key(vocabulary, 2), candidates, run)
