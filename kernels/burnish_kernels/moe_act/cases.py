"""Test cases, compilations and benchmarks of the experts' activation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.moe_act.activation import GPT_OSS, ExpertActivation
from burnish_kernels.moe_sort.cases import MODELS, random_ids
from burnish_kernels.moe_sort.op import sort_by_expert
from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference in double precision: one rounding; Triton's interpreter cuts bf16 off.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 6e-3}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
MOST_COMPARED = 1024  # rows; of a larger case only the last so many are compared
ACTIVATIONS = {
    "silu": ExpertActivation(),
    "silu-interleaved": ExpertActivation(interleaved=True),
    "gelu": ExpertActivation("gelu_tanh"),
    "gpt-oss": GPT_OSS,
    "clamped-halves": ExpertActivation("clamped", alpha=1.2, limit=1.5),
}


def cases() -> list[Case]:
    """List activations and types; strided rows, outputs in place, a bias of the second map, rows of several blocks."""
    found = []
    for dtype in TOLERANCE:
        for name in ACTIVATIONS:
            found += [_case(name, 1, 1, 3, 24, dtype), _case(name, 7, 2, 5, 72, dtype, padding=24, bias=True)]
            found.append(_case(name, 5, 3, 4, 40, dtype, in_place=True))
        found.append(_case("silu", 3, 2, 4, 1100, dtype))
        found.append(_case("gpt-oss", 3, 2, 4, 1100, dtype, bias=True))
    # Twice the intermediate size times the rows passes 2^31.
    far = _case("silu", 20_000, 4, 8, 14336, torch.bfloat16)
    return [*found, Case("far-rows", far.tolerance, far.options, gpu_only=True)]


def _case(
    name: str,
    tokens: int,
    slots: int,
    experts: int,
    size: int,
    dtype: torch.dtype,
    *,
    padding: int = 0,
    bias: bool = False,
    in_place: bool = False,
) -> Case:
    words = ["padded"] * bool(padding) + ["bias"] * bias + ["in-place"] * in_place
    parts = [name, f"{tokens}x{slots}-{experts}x{size}", str(dtype).removeprefix("torch."), *words]
    options = {"activation": name, "tokens": tokens, "slots": slots, "experts": experts, "size": size, "dtype": dtype}
    return Case("-".join(parts), TOLERANCE[dtype], options | {"padding": padding, "bias": bias, "in_place": in_place})


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of activation and gradients against the reference in double precision.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where the activation does not come back bit for bit, or something beside it was written.
    """
    from burnish_kernels.moe_act import op

    options = case.options
    activation, dtype, size = ACTIVATIONS[options["activation"]], options["dtype"], options["size"]
    tokens, slots, experts, hidden = options["tokens"], options["slots"], options["experts"], 40
    generator = torch.Generator(device).manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device).to(dtype)

    ids = random_ids(tokens, slots, experts, "holes", seed).to(device)
    order = sort_by_expert(ids, experts, tile_rows=16)
    rows = order.positions
    buffers = StridedBuffers(rows, options["padding"], dtype, device)
    gate_up = buffers.new(2 * size, draw(rows, 2 * size) * (4 if activation.name == "clamped" else 1))
    weights = torch.rand(tokens, slots, generator=generator, device=device)
    dact = buffers.new(size, draw(rows, size))
    more: dict[str, Any] = {}
    if options["bias"]:
        more = {"dout_TH": draw(tokens, hidden), "bias_EH": draw(experts, hidden), "ids_Tk": ids}
    act = op.forward(gate_up, activation, out=buffers.new(size))
    if rows > MOST_COMPARED:
        exact = _exact_last(gate_up, dact, weights, order, activation)
    else:
        exact = _exact(gate_up, dact, weights, order, activation, more)
    in_place = options["in_place"]
    again = dact if in_place else buffers.new(size)
    out = gate_up if in_place else buffers.new(2 * size)
    dgate_up, dweights = op.backward(dact, gate_up, weights, order, activation, out=out, act_out=again, **more)
    if buffers.spoiled() or not torch.equal(act, again):
        return math.inf
    if rows > MOST_COMPARED:
        own = slice(rows - MOST_COMPARED, rows)
        act, dgate_up, dweights = act[own], dgate_up[own], dweights.view(-1)[order.order[own].long()]
    return max(_error(*pair) for pair in zip((act, dgate_up, dweights), exact, strict=True))


def _exact(
    gate_up: torch.Tensor,
    dact: torch.Tensor,
    weights: torch.Tensor,
    order: Any,
    activation: ExpertActivation,
    more: dict[str, Any],
) -> list[torch.Tensor]:
    """Return the activation and the gradients by autograd through the reference."""
    from burnish_kernels.moe_act import reference

    leaf, weight = gate_up.double().requires_grad_(), weights.double().requires_grad_()
    act = reference.forward(leaf, activation)
    out = (act * weight.view(-1)[order.order.long()][:, None] * dact.double()).sum()
    if more:
        bias = more["bias_EH"].double()[more["ids_Tk"].long()] * weight[:, :, None]
        out = out + (bias.sum(dim=1) * more["dout_TH"].double()).sum()
    return [act.detach(), *torch.autograd.grad(out, (leaf, weight))]


def _exact_last(
    gate_up: torch.Tensor, dact: torch.Tensor, weights: torch.Tensor, order: Any, activation: ExpertActivation
) -> list[torch.Tensor]:
    """Return the activation and the gradients of the last rows, by the reference."""
    from burnish_kernels.moe_act import reference

    x, g = gate_up[-MOST_COMPARED:].double(), dact[-MOST_COMPARED:].double()
    weight = weights.view(-1)[order.order[-MOST_COMPARED:].long()].double()
    return [reference.forward(x, activation), *reference.backward(g, x, weight, activation)]


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = float((found.to(exact.dtype) - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


def compilations() -> list[Compilation]:
    """List both kernels for the activations of published models and each type, the backward one also without a bias."""
    from burnish_kernels.moe_act import kernel

    found = []
    for pointer in TYPES.values():
        for name in ("silu", "gelu", "gpt-oss"):
            activation = ACTIVATIONS[name]
            kind = {"CLAMPED": activation.name == "clamped", "GELU": activation.name == "gelu_tanh"}
            kind["INTERLEAVED"] = activation.interleaved
            floats = {"alpha": "fp32", "limit": "fp32"}
            signature = dict.fromkeys(("gate_up_ptr", "act_ptr"), pointer) | floats
            signature |= dict.fromkeys(("P", "size", "gate_up_stride", "act_stride"), "i32")
            constants = kind | {"ROWS": kernel.ROWS, "COLUMNS": kernel.COLUMNS}
            word = f"{name}-{pointer[1:]}"
            found.append(Compilation(f"forward-{word}", kernel.act_forward_kernel, signature, constants, kernel.WARPS))
            for bias in (False, True):
                names = ("dact", "gate_up", "dout", "bias", "dgate_up", "act")
                signature = {f"{one}_ptr": pointer for one in names} | floats
                signature |= {"weights_ptr": "*fp32", "dweights_ptr": "*fp32", "order_ptr": "*i32", "ids_ptr": "*i32"}
                strides = [f"{one}_stride" for one in names if one != "bias"]
                signature |= dict.fromkeys(("size", "H", "slots", *strides), "i32")
                constants = kind | {"HAS_BIAS": bias, "HAS_ACT": True, "COLUMNS": kernel.ROW_COLUMNS}
                label = f"backward-{word}{'-bias' * bias}"
                found.append(Compilation(label, kernel.act_backward_kernel, signature, constants, kernel.WARPS))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List both directions at the sizes of published models and 16,384 tokens."""
    from burnish_kernels.moe_act import op, reference

    tokens = 16384
    for name, (experts, slots, _, size) in MODELS.items():
        activation = ACTIVATIONS["gpt-oss" if name.startswith("gpt-oss") else "silu"]
        order = sort_by_expert(random_ids(tokens, slots, experts, "even").to(device), experts)
        gate_up = torch.randn(order.positions, 2 * size, device=device).bfloat16()
        dact, weights = gate_up[:, :size].contiguous(), torch.rand(tokens, slots, device=device)
        act, gradient = torch.empty_like(dact), torch.empty_like(gate_up)
        yield Benchmark(
            f"forward-{name}",
            lambda x=gate_up, a=activation, act=act: op.forward(x, a, out=act),  # type: ignore[misc]
            lambda x=gate_up, a=activation: reference.forward(x, a),  # type: ignore[misc]
            bytes=gate_up.nbytes + act.nbytes,
        )
        yield Benchmark(
            f"backward-{name}",
            lambda d=dact, x=gate_up, w=weights, o=order, a=activation, g=gradient, act=act: op.backward(  # type: ignore[misc]
                d, x, w, o, a, out=g, act_out=act
            ),
            None,
            bytes=2 * gate_up.nbytes + 2 * act.nbytes,
        )
