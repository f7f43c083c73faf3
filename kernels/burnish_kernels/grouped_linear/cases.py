"""Test cases, compilations and benchmarks of the experts' linear maps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burnish_kernels.grouped_linear.tiles import (
    FULL,
    HOPPERS,
    STORAGES,
    UNPACK_ROWS,
    LinearTile,
    Storage,
    choose_tile,
    half_tiles,
    key,
    rank_block,
    unpack_key,
)
from burnish_kernels.moe_sort.cases import MODELS, SPREADS, random_ids
from burnish_kernels.moe_sort.op import TILE_ROWS, ExpertOrder, sort_by_expert
from burnish_kernels.moe_unpack.cases import random_stack
from burnish_kernels.moe_unpack.op import Mxfp4Experts, Nf4Experts, Packed, nf4_scales
from burnish_kernels.registry import CAPABILITIES, Benchmark, Case, Compilation
from burnish_kernels.strided_buffers import StridedBuffers
from burnish_kernels.tuning import Tuning, device_of

# Relative L2 error against the reference in double precision; Triton's interpreter cuts bf16 off.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1.2e-2}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}


def cases() -> list[Case]:
    """List spreads, storages, directions, adapters and types; numbers that no block divides, padded rows, one token."""
    found = [_case(21, 2, 5, 72, 128, torch.float16, storage=storage, ranks=3) for storage in ("dense", "nf4", "mxfp4")]
    # Each storage in each direction, by turns in either type.
    packed = {torch.float32: ("nf4", "nf4-double", "mxfp4"), torch.bfloat16: ("nf4-double", "mxfp4", "nf4")}
    for dtype, (forward, backward, both) in packed.items():
        ways = [("dense", False), ("dense", True), (forward, False), (backward, True), (both, False), (both, True)]
        found += [_case(21, 2, 5, 72, 128, dtype, storage=one, transposed=way, ranks=3) for one, way in ways]
        found += [_case(23, 3, 4, 40, 72, dtype, spread=spread, by_token=False, padding=24) for spread in SPREADS]
        found += [
            _case(1, 1, 4, 64, 64, dtype, ranks=16, bias=True),
            _case(1, 4, 4, 64, 64, dtype, spread="one", storage="mxfp4", bias=True),
            _case(19, 2, 3, 100, 64, dtype, transposed=True, by_token=False, ranks=8, single=True),
            _case(33, 2, 3, 128, 64, dtype, ranks=16, swap=True),
        ]
    found.append(_case(40, 1, 2, 130, 192, torch.float32, storage="nf4", ranks=70))
    found.append(_case(33, 2, 3, 64, 192, torch.bfloat16, storage="mxfp4", transposed=True, swap=True))
    found += [
        _case(600, 4, 16, 320, 256, torch.bfloat16, storage=storage, transposed=transposed, ranks=16, large=True)
        for storage in ("dense", "nf4-double", "mxfp4")
        for transposed in (False, True)
    ]
    # The last row begins 2^31 elements behind the first.
    found.append(_case(3, 1, 2, 64, 64, torch.bfloat16, padding=1 << 30, large=True))
    return found


def _case(
    tokens: int,
    slots: int,
    experts: int,
    rows: int,
    columns: int,
    dtype: torch.dtype,
    *,
    spread: str = "holes",
    storage: str = "dense",
    transposed: bool = False,
    by_token: bool = True,
    ranks: int = 0,
    bias: bool = False,
    padding: int = 0,
    single: bool = False,
    swap: bool = False,
    large: bool = False,
) -> Case:
    words = {"transposed": transposed, "sorted": not by_token, f"r{ranks}": ranks, "bias": bias}
    words |= {"padded": padding, "fp32-out": single, "swap": swap}
    shape = f"{tokens}x{slots}-{experts}x{rows}x{columns}"
    parts = [shape, storage, str(dtype).removeprefix("torch."), spread, *(word for word in words if words[word])]
    options = {"tokens": tokens, "slots": slots, "experts": experts, "shape": (rows, columns), "dtype": dtype}
    options |= {"spread": spread, "storage": storage, "transposed": transposed, "by_token": by_token, "ranks": ranks}
    options |= {"bias": bias, "padding": padding, "single": single, "swap": swap, "tile_rows": 128 if large else 16}
    return Case("-".join(parts), TOLERANCE[dtype], options, gpu_only=large)


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Return the relative L2 error against the reference in double precision.

    Args:
        case: case from `cases()`.
        device: device that the kernels run on.
        seed: seed of the random inputs.

    Returns:
        The error; infinite where groups of unpacked experts give other bits, a second run with scales made before
        does, or something beside the output was written.
    """
    from burnish_kernels.grouped_linear import op, reference
    from burnish_kernels.moe_unpack import reference as unpacked

    options = case.options
    given = CaseInputs(case, device, seed)
    order, dtype = given.order, options["dtype"]
    tile = None
    if options["swap"]:
        tile = LinearTile(64, 64, 4, 2, 2, swap=1)
    kept = torch.float32 if options["single"] else dtype
    buffers = StridedBuffers(order.positions, options["padding"], kept, device)
    arguments: dict[str, Any] = {
        "by_token": options["by_token"],
        "transposed": options["transposed"],
        "narrow_PR": given.narrow,
        "adapter_ENR": given.adapter,
        "bias_EN": given.bias,
        "tile": tile,
    }
    found = op.grouped_linear(given.x, given.weight, order, out=buffers.new(given.outputs), **arguments)
    scales = nf4_scales(given.weight) if isinstance(given.weight, Nf4Experts) else None
    again = op.grouped_linear(given.x, given.weight, order, out=torch.empty_like(found), scales=scales, **arguments)
    if buffers.spoiled() or not torch.equal(found, again):
        return math.inf
    dense = given.weight
    if not isinstance(dense, torch.Tensor):
        scratch = torch.empty(2, *options["shape"], dtype=dtype, device=device)
        storage: Storage = "mxfp4" if isinstance(dense, Mxfp4Experts) else "nf4"
        own = tile or choose_tile(storage, dtype, transposed=options["transposed"], device=found.device)
        arguments |= {"tile": own, "out": torch.empty_like(found)}
        grouped = op.grouped_linear(given.x, dense, order, scratch_GNK=scratch, **arguments)
        if not torch.equal(found, grouped):
            return math.inf
        dense = unpacked.unpack(dense, 0, options["experts"], dtype)
    exact = torch.empty(found.shape, dtype=torch.float64, device=device)
    wide = [None if one is None else one.double() for one in (given.narrow, given.adapter, given.bias)]
    reference.grouped_linear(
        given.x.double(),
        (dense.transpose(1, 2) if options["transposed"] else dense).double(),
        order,
        exact,
        by_token=options["by_token"],
        narrow_PR=wide[0],
        adapter_ENR=wide[1],
        bias_EN=wide[2],
    )
    error = float((found.double() - exact).norm() / exact.norm())
    return math.inf if math.isnan(error) else error


class CaseInputs:
    """Random operands of a case.

    Args:
        case: case from `cases()`.
        device: device of the tensors.
        seed: seed of the random numbers.
    """

    def __init__(self, case: Case, device: str, seed: int) -> None:
        options = case.options
        generator = torch.Generator().manual_seed(seed)
        (rows, columns), experts, ranks = options["shape"], options["experts"], options["ranks"]
        dtype = options["dtype"]

        def draw(*size: int) -> torch.Tensor:
            return torch.randn(*size, generator=generator).to(dtype).to(device)

        ids = random_ids(options["tokens"], options["slots"], experts, options["spread"], seed)
        # Compiled, tiles have their usual height: of 16 rows, another instruction sums weights from registers and those
        # from shared memory in another order (two of 3,024 fp16 results on an H100 differed in their last bit).
        tile_rows = TILE_ROWS if device == "cuda" else options["tile_rows"]
        self.order: ExpertOrder = sort_by_expert(ids.to(device), experts, tile_rows=tile_rows)
        self.outputs = columns if options["transposed"] else rows
        reduction = rows if options["transposed"] else columns
        height = options["tokens"] if options["by_token"] else self.order.positions
        self.x = StridedBuffers(height, options["padding"], dtype, device).new(reduction, draw(height, reduction))
        self.weight: torch.Tensor | Packed
        if options["storage"] == "dense":
            self.weight = draw(experts, rows, columns)
        else:
            self.weight = random_stack(options["storage"], experts, rows, columns, device, seed)
        self.narrow = draw(self.order.positions, ranks) if ranks else None
        self.adapter: torch.Tensor | None = None
        if ranks and options["transposed"]:
            self.adapter = draw(experts, ranks, self.outputs).transpose(1, 2)
        elif ranks:
            self.adapter = draw(experts, self.outputs, ranks)
        self.bias = draw(experts, self.outputs) if options["bias"] else None


def compilations() -> list[Compilation]:
    """List every tile of each storage and direction, with an adapter, on sizes that fill tiles and others.

    What fp16 needs is what bf16 needs, so it is compiled in one direction; what masks need is more than without.
    """
    from burnish_kernels.grouped_linear import kernel

    others = tuple(one for one in CAPABILITIES if one not in HOPPERS)
    found = []
    for storage in STORAGES:
        found.append(_compilation(kernel, "*fp32", storage, FULL, True, True))
        for capabilities in (HOPPERS, others):
            default, *tried = half_tiles(storage, capabilities[0])
            found.append(_compilation(kernel, "*fp16", storage, default, False, True, capabilities))
            for transposed in (False, True):
                found.append(_compilation(kernel, "*bf16", storage, default, transposed, True, capabilities))
                for tile in (default, *tried):
                    found.append(_compilation(kernel, "*bf16", storage, tile, transposed, False, capabilities))
    return found


def _compilation(
    kernel: Any,
    pointer: str,
    storage: Storage,
    tile: LinearTile,
    transposed: bool,
    even: bool,
    capabilities: tuple[int, ...] = CAPABILITIES,
) -> Compilation:
    packed = storage != "dense"
    signature = dict.fromkeys(("x_ptr", "narrow_ptr", "adapter_ptr", "bias_ptr", "out_ptr"), pointer)
    signature |= {"weight_ptr": "*u8" if packed else pointer, "scale_ptr": "*fp32" if storage == "nf4" else "*u8"}
    signature |= dict.fromkeys(("order_ptr", "offsets_ptr", "tiles_ptr", "tile_starts_ptr"), "*i32")
    # Strides of one are constants, as in a launch.
    ones = {
        "weight_output" if transposed else "weight_column": 1,
        "adapter_output" if transposed else "adapter_rank": 1,
    }
    numbers = ["N", "C", "R", "x_stride", "weight_expert", "weight_output", "weight_column", "narrow_stride"]
    numbers += ["adapter_expert", "adapter_output", "adapter_rank", "out_stride", "slots"]
    numbers += ["first_expert", "experts"]
    signature |= {name: "i32" for name in numbers if name not in ones}
    constants = ones | {
        "STORAGE": storage,
        "TRANSPOSED": transposed,
        "GATHER": True,
        "HAS_ADAPTER": True,
        "HAS_BIAS": not transposed,
        "EVEN": even,
        "SWAP": bool(tile.swap),
        "BLOCK_M": TILE_ROWS,
        "BLOCK_N": tile.outputs,
        "BLOCK_C": tile.reduction,
        "BLOCK_R": rank_block(16),
        "GROUP": tile.group,
        "INTERPRETED": False,
    }
    name = f"{key(storage, transposed=transposed)}-{pointer[1:]}-{tile.outputs}x{tile.reduction}"
    name += f"-{tile.warps}-{tile.stages}-{tile.group}-{tile.swap}{'-even' if even else ''}"
    name += "-hopper" * (capabilities == HOPPERS)
    function = kernel.grouped_linear_kernel
    return Compilation(name, function, signature, constants, tile.warps, tile.stages, capabilities)


def benchmarks(device: str) -> Iterator[Benchmark]:
    """List both maps of published models' experts and the input's gradient, at 16,384 tokens, from 16 bits."""
    from burnish_kernels.grouped_linear import op

    tokens = 16384
    for name, (experts, slots, hidden, size) in MODELS.items():
        order = sort_by_expert(random_ids(tokens, slots, experts, "even").to(device), experts)
        weight = torch.randn(experts, 2 * size, hidden, device=device, dtype=torch.bfloat16)
        x = torch.randn(tokens, hidden, device=device, dtype=torch.bfloat16)
        y = torch.randn(order.positions, 2 * size, device=device, dtype=torch.bfloat16)
        dx = torch.empty(order.positions, hidden, device=device, dtype=torch.bfloat16)
        flops = 2 * order.positions * hidden * 2 * size
        yield Benchmark(
            f"gate-up-{name}",
            lambda x=x, w=weight, o=order, y=y: op.grouped_linear(x, w, o, by_token=True, out=y),  # type: ignore[misc]
            None,
            bytes=weight.nbytes + x.nbytes + y.nbytes,
            flops=flops,
        )
        yield Benchmark(
            f"gate-up-dx-{name}",
            lambda y=y, w=weight, o=order, dx=dx: op.grouped_linear(  # type: ignore[misc]
                y, w, o, by_token=False, transposed=True, out=dx
            ),
            None,
            bytes=weight.nbytes + dx.nbytes + y.nbytes,
            flops=flops,
        )


def tunings(device: str) -> Iterator[Tuning]:
    """List the product of each storage and direction, at a size that is between those of published models."""
    from burnish_kernels.grouped_linear import op

    experts, slots, hidden, outputs, tokens = 32, 4, 2048, 2048, 8192
    order = sort_by_expert(random_ids(tokens, slots, experts, "even").to(device), experts)
    x = torch.randn(order.positions, hidden, device=device, dtype=torch.bfloat16)
    out = torch.empty_like(x)
    found = device_of(device)
    for storage in STORAGES:
        weight: torch.Tensor | Packed
        if storage == "dense":
            weight = torch.randn(experts, outputs, hidden, device=device, dtype=torch.bfloat16)
        else:
            weight = random_stack(storage, experts, outputs, hidden, device)
        for transposed in (False, True):

            def run(tile: LinearTile, weight: Any = weight, transposed: bool = transposed) -> object:
                return op.grouped_linear(x, weight, order, by_token=False, transposed=transposed, out=out, tile=tile)

            tiles = half_tiles(storage, found.capability if found else CAPABILITIES[0])
            yield Tuning(key(storage, transposed=transposed), tiles, run)
    for storage in UNPACK_ROWS:
        yield _unpack_tuning(storage, device)


def _unpack_tuning(storage: Storage, device: str, sizes: tuple[int, int] = (2048, 2048), experts: int = 16) -> Tuning:
    """Make the choice of the rows of an expert from which unpacking pays.

    A candidate's work are products with ever more rows an expert, each in the way that the candidate takes for it; the
    best candidate takes the faster way in most of them.

    Args:
        storage: form of the weights.
        device: device of the tensors.
        sizes: outputs and columns of the product.
        experts: number of experts.
    """
    from burnish_kernels.grouped_linear import op

    default, (outputs, columns) = UNPACK_ROWS[storage], sizes
    counts = [max(int(default * share), 1) for share in (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)]
    weight = random_stack(storage, experts, outputs, columns, device)
    scratch = torch.empty(max(experts // 4, 1), outputs, columns, device=device, dtype=torch.bfloat16)
    products = []
    for count in counts:
        order = sort_by_expert(random_ids(count * experts, 1, experts, "even").to(device), experts)
        x = torch.randn(order.positions, columns, device=device, dtype=torch.bfloat16)
        products.append((count, x, order, x.new_empty(order.positions, outputs)))

    def run(candidate: dict[str, int]) -> None:
        for count, x, order, out in products:
            own = scratch if count >= candidate["rows"] else None
            op.grouped_linear(x, weight, order, by_token=False, out=out, scratch_GNK=own)

    never = counts[-1] + 1
    rows = [default, *(count for count in counts if count != default), never]
    return Tuning(unpack_key(storage), [{"rows": count} for count in rows], run)
