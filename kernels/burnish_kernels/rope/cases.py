"""Test cases, compilations and benchmarks of QK norm and rotary embedding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.registry import Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference in double precision. The norm rounds twice before the rotation's rounding.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
EPS = 0.01  # large, so that it is seen
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}

# Tokens, N, M, D, R (0: no table)
PLAIN = (5, 4, 2, 64, 64)
SHAPES = {
    "one-token": (1, 3, 1, 64, 64),
    "plain": PLAIN,
    "prime": (37, 9, 3, 16, 16),
    "wide": (3, 4, 1, 256, 256),
    "partial": (5, 3, 2, 128, 96),
    "odd-sizes": (7, 5, 1, 72, 36),
    "no-table": (5, 4, 2, 80, 0),
    "no-keys": (5, 3, 0, 64, 0),
}


def cases() -> list[Case]:
    """List shapes, dtypes, norms, both kinds of pairs; strided tokens, in-place outputs, far offsets.

    Positions restart in each document.
    """
    found = []
    for dtype in TOLERANCE:
        for name, shape in SHAPES.items():
            found += [_case(name, shape, dtype, norm=norm) for norm in ("", "norm")]
        found += [
            _case("plain", PLAIN, dtype, norm="1+norm"),
            _case("padding", PLAIN, dtype, norm="norm", padding=24),
            _case("padding", SHAPES["partial"], dtype, padding=8),
            _case("padding", SHAPES["no-keys"], dtype, norm="norm", padding=8),
            _case("in-place", PLAIN, dtype, padding=8, in_place=True),
            _case("in-place", SHAPES["partial"], dtype, in_place=True),
            _case("in-place", SHAPES["no-table"], dtype, in_place=True),
            _case("gradient-in-place", SHAPES["partial"], dtype, norm="norm", in_place=True),
            _case("interleaved", SHAPES["odd-sizes"], dtype, norm="norm", interleaved=True),
            _case("interleaved", SHAPES["partial"], dtype, in_place=True, interleaved=True),
            _case("gated", SHAPES["partial"], dtype, norm="1+norm", padding=8, query_spacing=256),
            _case("gated", SHAPES["odd-sizes"], dtype, query_spacing=80),
        ]
    # The last token begins 2^31 elements behind the first.
    far = _case("far", (3, 2, 1, 64, 64), torch.bfloat16, norm="norm", padding=1 << 30)
    return [*found, Case(far.name, far.tolerance, far.options, gpu_only=True)]


def _case(
    name: str,
    shape: tuple[int, int, int, int, int],
    dtype: torch.dtype,
    *,
    norm: str = "",
    padding: int = 0,
    in_place: bool = False,
    interleaved: bool = False,
    query_spacing: int | None = None,
) -> Case:
    kind = str(dtype).removeprefix("torch.")
    full = "-".join(part for part in (name, "x".join(map(str, shape)), kind, norm) if part)
    options = {"shape": shape, "dtype": dtype, "norm": norm, "padding": padding, "in_place": in_place}
    options |= {"interleaved": interleaved, "query_spacing": query_spacing}
    return Case(full, TOLERANCE[dtype], options)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of outputs and gradients against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where something beside the outputs was written.
    """
    from burnish_kernels.rope import op

    tokens, num_heads, num_kv_heads, head_dim, rotary = case.options["shape"]
    dtype, norm, in_place = (case.options[name] for name in ("dtype", "norm", "in_place"))
    form = {"one_plus_weight": norm == "1+norm", "interleaved": case.options["interleaved"]}
    spacing = case.options["query_spacing"] or head_dim
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(dtype)

    inputs = {"qkv": draw(tokens, num_heads * spacing + 2 * num_kv_heads * head_dim)}
    inputs |= {"dq": draw(tokens, num_heads, head_dim), "dk": draw(tokens, num_kv_heads, head_dim)}
    weights = [draw(head_dim), draw(head_dim)] if norm else [None, None]
    table, index = (None, None) if not rotary else (_table(tokens, rotary), _index(tokens))
    sizes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    exact = _exact(inputs, weights, table, index, {**sizes, "spacing": spacing}, form)

    buffers = StridedBuffers(tokens, case.options["padding"], dtype, device)
    q_width, qk_width = num_heads * spacing, num_heads * spacing + num_kv_heads * head_dim

    def parts(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k = rows[:, :q_width].unflatten(1, (num_heads, spacing)), rows[:, q_width:qk_width]
        return q[..., :head_dim], k.unflatten(1, (num_kv_heads, head_dim))

    def heads(q: torch.Tensor | None = None, k: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Lay out queries and keys with different strides."""
        q, k = buffers.new(num_heads * head_dim, q), buffers.new(qk_width - q_width, k)
        return q.unflatten(1, (num_heads, head_dim)), k.unflatten(1, (num_kv_heads, head_dim))

    moved = [None if tensor is None else tensor.to(device) for tensor in (table, index, *weights)]
    options: dict[str, Any] = {**sizes, "q_weight_D": moved[2], "k_weight_D": moved[3], "eps": EPS, **form}
    options["query_spacing"] = case.options["query_spacing"]
    qkv = buffers.new(inputs["qkv"].shape[1], inputs["qkv"])
    results = parts(qkv) if in_place and not norm else heads()
    op.forward(qkv, moved[0], moved[1], q_out=results[0], k_out=results[1], **options)
    untouched = torch.equal(qkv[:, qk_width:].cpu(), inputs["qkv"][:, qk_width:])

    gradient = buffers.new(qkv.shape[1])
    upstream = heads(inputs["dq"], inputs["dk"])
    if in_place:
        upstream = tuple(own.copy_(dy) for own, dy in zip(parts(gradient), upstream, strict=True))
    op.backward(*upstream, qkv if norm else None, moved[0], moved[1], dqkv_out=gradient, **options)
    between = gradient[:, :q_width].unflatten(1, (num_heads, spacing))[..., head_dim:]
    if not untouched or any(rest.isfinite().any() for rest in (between, gradient[:, qk_width:])) or buffers.spoiled():
        return math.inf
    return max(_error(ours, theirs) for ours, theirs in zip((*results, *parts(gradient)), exact, strict=True))


def _table(tokens: int, rotary: int) -> torch.Tensor:
    """Make the angles of positions, then those of a second, scaled base for long documents."""
    position = torch.arange(tokens, dtype=torch.float64)[:, None]
    power = torch.arange(rotary // 2, dtype=torch.float64) / (rotary // 2)
    halves = []
    for base, scale in ((10_000.0, 1.0), (500_000.0, 1.25)):
        angle = position * base**-power
        halves.append(torch.cat((angle.cos(), angle.sin()), dim=1) * scale)
    return torch.cat(halves).float()


def _index(tokens: int) -> torch.Tensor:
    """Make the table rows of two documents; the second is a long one, so it reads the table's second part."""
    first = tokens // 3
    return torch.cat((torch.arange(first), tokens + torch.arange(tokens - first))).int()


def _exact(
    inputs: dict[str, torch.Tensor],
    weights: list[torch.Tensor | None],
    table: torch.Tensor | None,
    index: torch.Tensor | None,
    sizes: dict[str, int],
    form: dict[str, bool],
) -> list[torch.Tensor]:
    """Return queries, keys and input gradients by autograd through the reference in double precision."""
    from burnish_kernels.rope import reference

    head_dim = sizes["head_dim"]
    wide = None if table is None else table.double()
    outputs, gradients, start = [], [], 0
    for heads, spacing, weight, dy in (
        (sizes["num_heads"], sizes["spacing"], weights[0], inputs["dq"]),
        (sizes["num_kv_heads"], head_dim, weights[1], inputs["dk"]),
    ):
        part = inputs["qkv"][:, start : start + heads * spacing].unflatten(1, (heads, spacing))[..., :head_dim]
        start += heads * spacing
        leaf = part.double().requires_grad_()
        weight_D = None if weight is None else weight.double()
        y = reference.forward(leaf, wide, index, weight_D=weight_D, eps=EPS, **form)
        outputs.append(y.detach())
        gradients.append(dy.double() if y is leaf else torch.autograd.grad(y, leaf, dy.double())[0])
    return [*outputs, *gradients]


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    if found.shape == exact.shape and not exact.numel():  # queries alone
        return 0.0
    error = float((found.cpu().double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


# N, M, D, R and norm of models: SmolLM2, Qwen3, Gemma 3, Llama 3, Phi-4-mini, GLM-4
MODELS = {
    "9+3x64": (9, 3, 64, 64, False),
    "16+8x128-norm": (16, 8, 128, 128, True),
    "4+1x256-norm": (4, 1, 256, 256, True),
    "32+8x64": (32, 8, 64, 64, False),
    "32+8x128": (32, 8, 128, 128, False),
    "32+8x128-norm": (32, 8, 128, 128, True),
    "24+8x128-partial": (24, 8, 128, 96, False),
    "64+8x128-norm": (64, 8, 128, 128, True),
    "32+2x128-interleaved": (32, 2, 128, 64, False),
}


def compilations() -> list[Compilation]:
    """List both kernels for the head sizes of known models, and layers without positions."""
    from burnish_kernels.rope import kernel, launch_kernels

    shapes = {
        **MODELS,
        "16+4x128-none": (16, 4, 128, 0, True),
        "16+16x80-partial": (16, 16, 80, 32, False),
        "16+4x256-norm-gated": (16, 4, 256, 64, True),
    }
    found = []
    for pointer in TYPES.values():
        for name, (num_heads, num_kv_heads, head_dim, rotary, norm) in shapes.items():
            if pointer == "*fp16" and "norm" not in name:
                continue  # hardly differs from bf16
            constants = launch_kernels.configuration(
                num_heads, num_kv_heads, head_dim, rotary, norm=norm, in_place=False,
                query_spacing=2 * head_dim if name.endswith("gated") else None,
            )  # fmt: skip
            constants |= {"ONE_PLUS": head_dim == 256, "INTERLEAVED": name.endswith("interleaved")}
            for function, pointers, strides in (
                (kernel.rope_forward_kernel, ("q_in", "k_in", "q_weight", "k_weight", "q", "k"), ("in", "q", "k")),
                (
                    kernel.rope_backward_kernel,
                    ("dq", "dk", "q_in", "k_in", "q_weight", "k_weight", "q_out", "k_out"),
                    ("dq", "dk", "in", "out"),
                ),
            ):
                signature = {f"{argument}_ptr": pointer for argument in pointers}
                signature |= {"table_ptr": "*fp32", "index_ptr": "*i32", "eps": "fp32", "T": "i32"}
                signature |= {f"{stride}_stride": "i32" for stride in strides}
                full = f"{function.__name__}-{name}-{pointer[1:]}"
                found.append(Compilation(full, function, signature, constants, num_warps=launch_kernels.WARPS))
    return found


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List forward and backward as in a decoder layer: in place without a norm, into new tensors with one."""
    for name, shape in MODELS.items():
        for kind in ("forward", "backward"):
            yield _benchmark(name, shape, kind, device)


def _benchmark(name: str, shape: tuple[int, int, int, int, bool], kind: str, device: str) -> Benchmark:
    from burnish_kernels.rope import op, reference

    rows, dtype = 16384, torch.bfloat16
    num_heads, num_kv_heads, head_dim, rotary, norm = shape
    qkv = torch.randn(rows, (num_heads + 2 * num_kv_heads) * head_dim, device=device, dtype=dtype)
    table = _table(2048, rotary).to(device)
    index = (torch.arange(rows, device=device) % 1024).int()
    weight = torch.ones(head_dim, device=device, dtype=dtype) if norm else None
    out = torch.randn_like(qkv) if norm else qkv
    q_width, qk_width = num_heads * head_dim, (num_heads + num_kv_heads) * head_dim
    q_out = out[:, :q_width].unflatten(1, (num_heads, head_dim))
    k_out = out[:, q_width:qk_width].unflatten(1, (num_kv_heads, head_dim))
    options: dict[str, Any] = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    form = {"interleaved": name.endswith("interleaved")}
    options |= {"q_weight_D": weight, "k_weight_D": weight, **form}

    def run() -> None:
        if kind == "forward":
            op.forward(qkv, table, index, q_out=q_out, k_out=k_out, **options)
        else:
            op.backward(q_out, k_out, qkv if norm else None, table, index, dqkv_out=out, **options)

    def plain() -> object:
        parts = (
            qkv[:, :q_width].unflatten(1, (num_heads, head_dim)),
            qkv[:, q_width:qk_width].unflatten(1, (num_kv_heads, head_dim)),
        )
        if kind == "forward":
            return [reference.forward(part, table, index, weight_D=weight, **form) for part in parts]
        return [reference.backward(part, part, table, index, weight_D=weight, **form) for part in parts]

    # Without a norm, what passes through stays where it is.
    moved = head_dim if norm else rotary
    tensors = 3 if norm and kind == "backward" else 2
    return Benchmark(
        f"{kind}-{name}", run, plain, bytes=tensors * rows * (num_heads + num_kv_heads) * moved * qkv.element_size()
    )
