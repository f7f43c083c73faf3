"""Test cases, compilations and benchmarks of the gated delta rule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from burnish_kernels.delta_rule.config import KERNELS, SEGMENT, WARMUP, Config, config, precision
from burnish_kernels.delta_rule.sizes import CHUNK, Sizes, chunk_rows, workspace_bytes
from burnish_kernels.registry import CAPABILITIES, Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers

# Relative L2 error against the reference in double precision; Triton's interpreter cuts bf16 off, a GPU has half of it.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 3e-2}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
_LONG = (1, 70, 3, 64, 300, 2, 1, 1, 37, 192, 9)


def cases() -> list[Case]:
    """List documents, heads and dtypes: few and small ones for the interpreter, the published sizes for a GPU."""
    found = [
        _case((5, 1, 67), Sizes(1, 2, 16, 32), torch.float32, padding=8, key_heads=1),
        _case((66, 3, 70), Sizes(1, 1, 16, 16), torch.float32),  # a segment that begins by itself, one that does not
        _case((3, 20), Sizes(1, 1, 32, 16), torch.float16),
        _case((40,), Sizes(1, 1, 16, 16), torch.bfloat16),
    ]
    large = [
        _case(_LONG, sizes, dtype, padding=32)
        for sizes in (Sizes(2, 2, 128, 128), Sizes(2, 4, 128, 128), Sizes(1, 3, 64, 32), Sizes(3, 3, 16, 128))
        for dtype in TOLERANCE
    ]
    large += [_case((5000,), Sizes(1, 2, 128, 128), dtype) for dtype in TOLERANCE]
    mixed = (2047, 2049, 700, 1, 900, 3000, 13)  # segments that begin by themselves beside ones that do not
    large += [_case(mixed, Sizes(2, 4, 128, 128), torch.bfloat16, key_heads=1)]
    return found + [Case(one.name, one.tolerance, one.options, gpu_only=True) for one in large]


def _case(
    lengths: Sequence[int], sizes: Sizes, dtype: torch.dtype, *, padding: int = 0, key_heads: int | None = None
) -> Case:
    heads = f"{sizes.key_heads}x{sizes.key_size}-{sizes.value_heads}x{sizes.value_size}"
    parts = ["+".join(map(str, lengths)), heads, str(dtype).removeprefix("torch.")]
    options = {"lengths": lengths, "sizes": sizes, "dtype": dtype, "padding": padding, "key_heads": key_heads}
    words = {f"padding{padding}": padding, "by-heads": key_heads}
    return Case("-".join([*parts, *(word for word in words if words[word])]), TOLERANCE[dtype], options)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the worst relative L2 error of output, gradients and states against the reference, on upcast inputs.

    Args:
        case: case from `cases()`.
        device: device that the kernel runs on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where something beside the outputs was written.
    """
    from burnish_kernels.delta_rule import op, reference

    options = case.options
    sizes, dtype, padding = options["sizes"], options["dtype"], options["padding"]
    drawn, start, last = _inputs(options["lengths"], sizes, dtype, seed)
    rows, heads = len(start), sizes.value_heads
    exact_inputs = {name: one.double() for name, one in drawn.items()}
    do = exact_inputs.pop("do_TJ")
    exact_o, exact_states = reference.forward(**exact_inputs, start_T=start, sizes=sizes, last_R=last)
    assert exact_states is not None
    exact = [exact_o, exact_states, *_parts(reference.backward(do, **exact_inputs, start_T=start, sizes=sizes), sizes)]
    stepped = exact_states[:2].clone(memory_format=torch.contiguous_format)
    step_rows = len(stepped)
    begun = stepped.to(torch.float32).to(device)
    exact += [reference.step(*_step_inputs(exact_inputs, step_rows), stepped, sizes), stepped]

    buffers = StridedBuffers(rows, padding, dtype, device)
    given = {name: buffers.new(one.shape[1], one) for name, one in drawn.items() if one.ndim == 2}
    given |= {name: one.to(device) for name, one in drawn.items() if one.ndim == 1}
    given_do = given.pop("do_TJ")
    given |= {"start_T": start.to(device), "sizes": sizes}
    states = torch.empty(len(last), heads, sizes.key_size, sizes.value_size, device=device)
    flags = {"key_heads": options["key_heads"]}
    forward_size = workspace_bytes(rows, sizes, dtype, backward=False, exact_states=True, **flags)
    backward_size = workspace_bytes(rows, sizes, dtype, backward=True, **flags)
    space = torch.full((max(forward_size, backward_size),), 255, dtype=torch.uint8, device=device)  # NaN
    o = op.forward(
        **given,
        out=buffers.new(sizes.out_width),
        last_R=last.to(device),
        states_RVDE=states,
        workspace=space[:forward_size],
    )
    outs = {"dqkv_out": buffers.new(sizes.width), "db_out": buffers.new(heads), "da_out": buffers.new(heads)}
    gradients = op.backward(given_do, **given, **outs, workspace=space.fill_(255)[:backward_size])
    newest = op.step(*_step_inputs(given, step_rows), begun, sizes)
    if buffers.spoiled():
        return math.inf
    found = [o, states, *_parts(gradients, sizes), newest, begun]
    return max(_error(ours, theirs) for ours, theirs in zip(found, exact, strict=True))


def _inputs(
    lengths: Sequence[int], sizes: Sizes, dtype: torch.dtype, seed: int
) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """Return random inputs by name, the first row of each row's document, and the documents' last rows."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.tensor(lengths).cumsum(0)
    rows, heads = int(ends[-1]), sizes.value_heads
    widths = {"do_TJ": sizes.out_width, "qkv_TC": sizes.width, "b_TV": heads, "a_TV": heads}
    found = {name: torch.randn(rows, width, generator=generator).to(dtype) for name, width in widths.items()}
    # Published rates begin between 0 and 16; slow ones carry states over chunks.
    found["a_log_V"] = torch.rand(heads, generator=generator).mul(0.2).log()
    found["dt_bias_V"] = torch.randn(heads, generator=generator)
    start = torch.repeat_interleave(ends - torch.tensor(lengths), torch.tensor(lengths))
    return found, start.int(), (ends - 1).int()


def _step_inputs(given: dict[str, Any], rows: int) -> list[torch.Tensor]:
    names = ("qkv_TC", "b_TV", "a_TV", "a_log_V", "dt_bias_V")
    return [given[name][:rows] if given[name].ndim == 2 else given[name] for name in names]


def _parts(gradients: tuple[torch.Tensor, torch.Tensor, torch.Tensor], sizes: Sizes) -> list[torch.Tensor]:
    """Return the gradients of queries, keys, values, b and a."""
    keys = sizes.key_heads * sizes.key_size
    return [*gradients[0].split((keys, keys, sizes.out_width), dim=1), *gradients[1:]]


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = float((found.cpu().double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error  # a maximum may pass over NaN


_SIZES = Sizes(16, 32, 128, 128)
_EXACT = {"gates_ptr", "a_log_ptr", "dt_bias_ptr", "behind_ptr", "state_ptr"}
_INTEGERS = {"start_ptr", "last_ptr"}


def compilations() -> list[Compilation]:
    """List every kernel for every dtype at the published head size."""
    found = []
    for dtype in TYPES:
        for kernel in KERNELS:
            tiles: dict[Config, tuple[int, ...]] = {}
            for capability in CAPABILITIES:
                tile = config(kernel, dtype, capability)
                tiles[tile] = (*tiles.get(tile, ()), capability)
            for tile, capabilities in tiles.items():
                found.append(_compilation(kernel, dtype, tile, capabilities))
                if kernel == "project":
                    found.append(_compilation(kernel, dtype, tile, capabilities, backward=True))
                if kernel in {"states", "output"}:
                    found.append(_compilation(kernel, dtype, tile, capabilities, exact_states=True))
    return found


def _compilation(
    kernel: str,
    dtype: torch.dtype,
    tile: Config,
    capabilities: tuple[int, ...],
    *,
    backward: bool = False,
    exact_states: bool = False,
) -> Compilation:
    from burnish_kernels.delta_rule.launch_kernels import FUNCTIONS

    function = FUNCTIONS[kernel]
    constants = {"W": _SIZES.value_heads, "SHARED": _SIZES.shared, "D": _SIZES.key_size, "E": _SIZES.value_size}
    constants |= {"CHUNK": chunk_rows(dtype), "SEGMENT": SEGMENT, "WARMUP": WARMUP, "BACKWARD": backward, **tile.constants(_SIZES)}
    constants |= {"PRECISION": precision(), "EXACT": precision()}  # type: ignore[dict-item]
    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    exact = _EXACT | ({"states_ptr"} if exact_states or kernel == "last_states" else set())
    signature = {name: "fp32" if name == "scale" else "i32" for name in function.arg_names if name not in constants}
    for name in signature:
        if name.endswith("_ptr"):
            signature[name] = "*i32" if name in _INTEGERS else "*fp32" if name in exact else TYPES[dtype]
    words = [kernel, str(dtype).removeprefix("torch."), "backward" * backward, "exact-states" * exact_states, "hopper" * (capabilities == (90,))]
    name = "-".join(word for word in words if word)
    options = {"num_warps": tile.warps, "num_stages": tile.stages, "capabilities": capabilities}
    return Compilation(name, function, signature, constants, **options)  # type: ignore[arg-type]


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List forward and backward at the sizes of Qwen3.5's 0.8B (2B) and 4B (9B, 35B-A3B), documents of 500 tokens."""
    from burnish_kernels.delta_rule import op, reference

    rows, dtype = 16384, torch.bfloat16
    for sizes in (Sizes(16, 16, 128, 128), Sizes(16, 32, 128, 128)):
        drawn, start, _ = _inputs([500] * (rows // 500) + [rows % 500], sizes, dtype, 0)
        given: dict[str, Any] = {name: one.to(device) for name, one in drawn.items()}
        do = given.pop("do_TJ")
        given |= {"start_T": start.to(device), "sizes": sizes}
        space = torch.empty(workspace_bytes(rows, sizes, dtype, backward=True), dtype=torch.uint8, device=device)
        name, passed = f"{rows}x{sizes.key_heads}-{sizes.value_heads}", rows * (sizes.width + sizes.out_width) * 2
        yield Benchmark(
            f"forward-{name}",
            lambda given=given, space=space: op.forward(**given, workspace=space),  # type: ignore[misc]
            lambda given=given: reference.forward(**given),  # type: ignore[misc]
            bytes=passed,
            flops=operations(rows, sizes),
        )
        yield Benchmark(
            f"backward-{name}",
            lambda given=given, do=do, space=space: op.backward(do, **given, workspace=space),  # type: ignore[misc]
            None,  # the graph of the reference would fill tens of gigabytes
            bytes=passed + rows * sizes.width * 2,
            flops=operations(rows, sizes, backward=True),
        )


def operations(rows: int, sizes: Sizes, *, backward: bool = False) -> int:
    """Return the matrix operations of a pass in chunks, states made again in the backward pass.

    A row costs, for each value head, L D for each product of pairs of keys or queries, L E for each of values, and D E
    for each with a state.
    """
    keys, values, states = (5, 4, 8) if backward else (2, 1, 3)
    pairs = 3 * CHUNK * sizes.key_size + CHUNK * sizes.value_size  # w, u and the system, in both passes
    extra = keys * CHUNK * sizes.key_size + values * CHUNK * sizes.value_size
    return 2 * rows * sizes.value_heads * (pairs + extra + states * sizes.key_size * sizes.value_size)
