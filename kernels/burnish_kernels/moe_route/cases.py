"""Test cases, compilations and benchmarks of routing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from burnish_kernels.moe_route.router import Router
from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference: a rounding to the type or two; Triton's interpreter cuts bf16 off.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
ROUTERS = {
    "qwen3": Router("softmax_topk", 8),
    "qwen3.5": Router("softmax_topk", 8),
    "olmoe": Router("softmax_topk", 8, normalize=False),
    "mixtral": Router("softmax_topk", 2, rounded=False),
    "gpt-oss": Router("topk_softmax", 4),
    "lfm2": Router("sigmoid", 4, scale=1.5),
    "sigmoid": Router("sigmoid", 3, normalize=False),
}
EXPERTS = {"qwen3": 128, "qwen3.5": 256, "olmoe": 64, "mixtral": 8, "gpt-oss": 32, "lfm2": 32, "sigmoid": 20}


def cases() -> list[Case]:
    """List routers, types and numbers of tokens; strided rows, one slot, every expert chosen, ties."""
    found = []
    for dtype in TOLERANCE:
        for name, router in ROUTERS.items():
            found += [_case(name, router, tokens, EXPERTS[name], dtype) for tokens in (1, 37)]
            found.append(_case(name, replace(router, slots=1), 5, EXPERTS[name], dtype, padding=24))
            found.append(_case(name, router, 6, router.slots, dtype))
            found.append(_case(name, router, 9, EXPERTS[name], dtype, tied=True))
    found.append(_case("qwen3", replace(ROUTERS["qwen3"], slots=10), 7, 512, torch.float32))
    return found


def _case(
    name: str, router: Router, tokens: int, experts: int, dtype: torch.dtype, *, padding: int = 0, tied: bool = False
) -> Case:
    words = [f"{name}-{tokens}x{experts}-{router.slots}", str(dtype).removeprefix("torch.")]
    words += ["padded"] * bool(padding) + ["tied"] * tied
    options = {"router": router, "tokens": tokens, "experts": experts, "dtype": dtype, "bias": name == "lfm2"}
    return Case("-".join(words), TOLERANCE[dtype], options | {"padding": padding, "tied": tied})


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of weights and gradient against the reference.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where experts were chosen that are not among the best, a tie went to a higher index, or
        something beside the outputs was written.
    """
    from burnish_kernels.moe_route import op, reference

    options = case.options
    router, dtype = options["router"], options["dtype"]
    tokens, experts = options["tokens"], options["experts"]
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, experts, generator=generator).to(dtype)
    if options["tied"]:
        logits = (logits * 2).round() / 2
    bias = torch.randn(experts, generator=generator) * 0.1 if options["bias"] else None
    dweights = torch.randn(tokens, router.slots, generator=generator)
    buffers = StridedBuffers(tokens, options["padding"], dtype, device)
    given = buffers.new(experts, logits)
    ids, weights = op.forward(given, router, bias_E=None if bias is None else bias.to(device))
    gradient = op.backward(dweights.to(device), given, ids, router, out=buffers.new(experts))
    if buffers.spoiled() or not _among_the_best(ids.cpu(), logits, router, bias):
        return math.inf
    leaf = logits.double().requires_grad_()
    exact = reference.weigh(leaf, ids.cpu(), router)
    (exact_gradient,) = torch.autograd.grad(exact, leaf, dweights.double())
    pairs = ((weights, exact), (gradient, exact_gradient))
    return max(_error(found, wanted.detach(), dweights) for found, wanted in pairs)


def _among_the_best(ids: torch.Tensor, logits: torch.Tensor, router: Router, bias: torch.Tensor | None) -> bool:
    """Return whether the choice is the reference's, or differs only where scores are equal but for rounding."""
    from burnish_kernels.moe_route import reference

    wanted = reference.choose(logits, router, bias)
    if not all(len(set(row)) == len(row) for row in ids.tolist()):
        return False
    score = logits.float() if router.kind != "sigmoid" else logits.float().sigmoid() + (0 if bias is None else bias)
    near = (score.gather(1, ids.long()) - score.gather(1, wanted.long())).abs() < 1e-2 * (logits.dtype != torch.float32)
    return bool(((ids == wanted) | (near & (router.kind == "sigmoid"))).all())


def _error(found: torch.Tensor, exact: torch.Tensor, unit: torch.Tensor) -> float:
    """Return the error relative to the exact value, or to a hundredth of `unit` where that is more.

    With one expert the gradient all but cancels, so its rounding is not compared with itself.
    """
    error = float((found.cpu().double() - exact).norm()) / max(float(exact.norm()), 0.01 * float(unit.norm()))
    return math.inf if math.isnan(error) else error


def compilations() -> list[Compilation]:
    """List both kernels for each router and type."""
    from burnish_kernels.moe_route import kernel

    found = []
    for pointer in TYPES.values():
        for name, router in ROUTERS.items():
            sizes = kernel.blocks(EXPERTS[name], router.slots)
            numbers = {"T": "i32", "E": "i32", "logits_stride": "i32", "scale": "fp32"}
            tensors = {"logits_ptr": pointer, "ids_ptr": "*i32"}
            kind = {"KIND": router.kind, "NORMALIZE": router.normalize}
            signature = tensors | numbers | {"bias_ptr": "*fp32", "weights_ptr": "*fp32"}
            constants = sizes | kind | {"ROUNDED": router.rounded, "HAS_BIAS": name == "lfm2"}
            word = f"{name}-{pointer[1:]}"
            found.append(
                Compilation(f"forward-{word}", kernel.route_forward_kernel, signature, constants, kernel.WARPS)
            )
            signature = tensors | numbers | {"dweights_ptr": "*fp32", "dlogits_ptr": pointer, "dlogits_stride": "i32"}
            found.append(
                Compilation(f"backward-{word}", kernel.route_backward_kernel, signature, sizes | kind, kernel.WARPS)
            )
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List both directions of each published router at 16,384 tokens."""
    from burnish_kernels.moe_route import op, reference

    tokens = 16384
    for name in ("qwen3", "olmoe", "gpt-oss"):
        router, experts = ROUTERS[name], EXPERTS[name]
        logits = torch.randn(tokens, experts, device=device).bfloat16()
        ids, weights = op.forward(logits, router)
        moved = logits.nbytes + ids.nbytes + weights.nbytes
        yield Benchmark(
            f"forward-{name}",
            lambda logits=logits, router=router: op.forward(logits, router),  # type: ignore[misc]
            lambda logits=logits, router=router: reference.weigh(  # type: ignore[misc]
                logits, reference.choose(logits, router, None), router
            ),
            bytes=moved,
        )
        yield Benchmark(
            f"backward-{name}",
            lambda w=weights, x=logits, i=ids, r=router: op.backward(w, x, i, r),  # type: ignore[misc]
            lambda w=weights, x=logits, i=ids, r=router: reference.backward(w, x, i, r),  # type: ignore[misc]
            bytes=moved + logits.nbytes,
        )
