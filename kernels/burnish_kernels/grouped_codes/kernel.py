"""Experts' weights made E4M3 codes, and the grouped product of codes, in Triton.

Codes of weights have the columns of the reduction side by side in both directions. The adapter's 16-bit product follows
in the same fp32 accumulator, after the scales. Launchers assert and never allocate.

Shapes: P sorted rows, N outputs, C columns of the reduction, R ranks, E experts, G experts of a group. Offsets are
int64 between rows and experts, and int32 inside one expert's weight.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.adapter_arguments import adapter_arguments
from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.kernel import add_adapter, tile_at
from burnish_kernels.eight_bit_linear.quantize.kernel import kernel_codes, operand, to_e4m3
from burnish_kernels.eight_bit_linear.rows import CODES, EightBitRows
from burnish_kernels.eight_bit_linear.tiles import EightBitTile, rank_block, short_columns
from burnish_kernels.grouped_codes.stack import CodedExperts
from burnish_kernels.grouped_linear.kernel import launched_tiles, tile_rows_of
from burnish_kernels.moe_sort.order import ExpertOrder
from burnish_kernels.moe_unpack.kernel import decode_tile, load_scales
from burnish_kernels.moe_unpack.stacks import Mxfp4Experts

ROWS, COLUMNS, WARPS = 16, 256, 4  # tile of a program that makes codes
TURNED_ROWS, TURNED_COLUMNS = 64, 64  # the same where they are transposed


@triton.jit(do_not_specialize=["first"])
def unpack_codes_kernel(
    weight_ptr,  # [E, N, K]; codes as bytes; packed [E, N, K / 2] uint8
    scale_ptr,  # [E, N, K / 32] uint8, read only of MXFP4
    expert_scale_ptr,  # [E] fp32
    out_ptr,  # [G, N, K] E4M3, in the interpreter and of codes bytes; [G, K, N] with TRANSPOSED
    first,
    N,
    K,
    weight_stride,  # from expert to expert, where they are not packed
    STORAGE: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Make one tile of one expert codes, or move codes."""
    place = tl.program_id(1).to(tl.int64)
    columns = tl.cdiv(K, COLUMNS)
    row = (tl.program_id(0) // columns) * ROWS + tl.arange(0, ROWS)
    first_column = (tl.program_id(0) % columns) * COLUMNS
    column = first_column + tl.arange(0, COLUMNS)
    own = row < N
    inside = own[:, None] & (column < K)[None, :]
    if STORAGE == "dense" or STORAGE == "codes":  # noqa: PLR1714  Triton knows no sets
        weights = weight_ptr + (first + place) * weight_stride
        values = tl.load(weights + row[:, None] * K + column[None, :], mask=inside, other=0)
    else:
        scales = load_scales(scale_ptr + (first + place) * N * K // 32, row, own, first_column, K, STORAGE, COLUMNS)
        packed = weight_ptr + (first + place) * N * K // 2
        values = decode_tile(packed, scales, row, own, first_column, K, STORAGE, tl.float32, ROWS, COLUMNS)
    if STORAGE == "codes":
        codes = values
    else:
        inverse = tl.div_rn(1.0, tl.load(expert_scale_ptr + first + place))
        codes = to_e4m3(values.to(tl.float32) * inverse, INTERPRETED)
    out = out_ptr + place * N * K
    if TRANSPOSED:
        at = out + column[:, None] * N + row[None, :]
        tl.store(at, tl.trans(codes), mask=tl.trans(inside))
    else:
        tl.store(out + row[:, None] * K + column[None, :], codes, mask=inside)


@triton.jit(do_not_specialize=["R", "slots", "first_expert", "experts"])
def grouped_codes_kernel(
    x_ptr,  # [P, C] E4M3, in the interpreter bytes; [T, C] with GATHER
    x_scale_ptr,  # [P] fp32, or [T]
    codes_ptr,  # [G, N, C] as x
    scale_ptr,  # [E] fp32
    narrow_ptr,  # [P, R], read only with HAS_ADAPTER
    adapter_ptr,  # [E, N, R], read only with HAS_ADAPTER
    bias_ptr,  # [E, N], read only with HAS_BIAS
    out_ptr,  # [P, N]
    order_ptr,  # [P] int32
    offsets_ptr,  # [E + 1] int32
    tiles_ptr,  # [M, 2] int32
    tile_starts_ptr,  # [E + 1] int32
    N,
    C,
    R,
    x_stride,
    narrow_stride,
    adapter_expert,
    adapter_output,
    adapter_rank,
    out_stride,
    slots,
    first_expert,
    experts,
    GATHER: tl.constexpr,
    HAS_ADAPTER: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
    PARTS: tl.constexpr,
    GROUP: tl.constexpr,
    IMPRECISE: tl.constexpr,  # columns summed in Hopper's short accumulator; None: all
    INTERPRETED: tl.constexpr,
):
    """Compute tiles of the outputs of `experts` experts from `first_expert` on; EVEN: no block is partly filled."""
    begin = tl.load(tile_starts_ptr + first_expert)
    tiles = tl.load(tile_starts_ptr + first_expert + experts) - begin
    blocks = tl.cdiv(N, BLOCK_N)
    lane = tl.arange(0, BLOCK_C)
    for work in range(tl.program_id(0), tiles * blocks, tl.num_programs(0)):
        row_tile, block = tile_at(work, tiles, blocks, GROUP)
        expert, sorted_row, own, row = tile_rows_of(
            begin + row_tile, tiles_ptr, offsets_ptr, order_ptr, slots, GATHER, BLOCK_M
        )
        output = block * BLOCK_N + tl.arange(0, BLOCK_N)
        own_output = tl.minimum(output, N - 1)  # what exists is read, no more written
        x_at = x_ptr + row.to(tl.int64)[:, None] * x_stride + lane[None, :]
        weights = codes_ptr + (expert - first_expert).to(tl.int64) * N * C
        weight_at = weights + own_output[None, :] * C + lane[:, None]
        sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for column in range(0, C, PARTS * BLOCK_C):
            for part in tl.static_range(PARTS):
                at = column + part * BLOCK_C
                if EVEN:
                    x, weight = tl.load(x_at + at), tl.load(weight_at + at)
                else:
                    inside = lane < C - at
                    x = tl.load(x_at + at, mask=inside[None, :], other=0.0)
                    weight = tl.load(weight_at + at, mask=inside[:, None], other=0.0)
                left, right = operand(x, INTERPRETED), operand(weight, INTERPRETED)
                # 0 would turn wgmma off on Hopper.
                sums = tl.dot(left, right, sums, max_num_imprecise_acc=IMPRECISE, out_dtype=tl.float32)
        sums *= (tl.load(x_scale_ptr + row) * tl.load(scale_ptr + expert))[:, None]
        if HAS_ADAPTER:
            adapters = adapter_ptr + expert.to(tl.int64) * adapter_expert
            adapter = (narrow_ptr, adapters, R, narrow_stride, adapter_output, adapter_rank)
            sums = add_adapter(sums, adapter, tl.where(own, sorted_row, 0), output, N, BLOCK_R, False, INTERPRETED)
        if HAS_BIAS:
            sums += tl.load(bias_ptr + expert.to(tl.int64) * N + own_output).to(tl.float32)[None, :]
        out = out_ptr + sorted_row.to(tl.int64)[:, None] * out_stride + output[None, :]
        tl.store(out, sums.to(out_ptr.dtype.element_ty), mask=own[:, None] & (output < N)[None, :])


def launch_unpack_codes(
    weight: torch.Tensor | Mxfp4Experts | CodedExperts,
    scale_E: torch.Tensor,
    first: int,
    out: torch.Tensor,
    *,
    transposed: bool,
) -> None:
    """Fill `out` with the codes of experts from `first` on; those in NF4 have a kernel of their own."""
    count = len(out)
    rows, columns = out.shape[:0:-1] if transposed else out.shape[1:]
    if isinstance(weight, Mxfp4Experts):
        storage, held, scales = "mxfp4", weight.blocks, weight.scales
    elif isinstance(weight, CodedExperts):
        storage, held, scales = "codes", weight.codes.view(torch.uint8), scale_E
    else:
        storage, held, scales = "dense", weight, scale_E
    tile = (TURNED_ROWS, TURNED_COLUMNS) if transposed else (ROWS, COLUMNS)
    unpack_codes_kernel[(triton.cdiv(rows, tile[0]) * triton.cdiv(columns, tile[1]), count)](
        weight_ptr=held,
        scale_ptr=scales,
        expert_scale_ptr=scale_E,
        out_ptr=out.view(torch.uint8) if storage == "codes" else kernel_codes(out),
        first=first,
        N=rows,
        K=columns,
        weight_stride=held.stride(0),
        STORAGE=storage,
        TRANSPOSED=transposed,
        ROWS=tile[0],
        COLUMNS=tile[1],
        INTERPRETED=interpreted(),
        num_warps=WARPS,
    )


def launch_grouped_codes(
    *,
    x: EightBitRows,
    codes_GNC: torch.Tensor,
    scale_E: torch.Tensor,
    narrow_PR: torch.Tensor | None,
    adapter_ENR: torch.Tensor | None,
    bias_EN: torch.Tensor | None,
    out_PN: torch.Tensor,
    order: ExpertOrder,
    by_token: bool,
    first_expert: int,
    tile: EightBitTile,
) -> None:
    """Fill the rows of `out_PN` of the experts from `first_expert` on, whose codes are given."""
    experts, outputs, columns = codes_GNC.shape
    assert codes_GNC.is_contiguous()
    assert x.codes.shape[1] == columns
    grouped_codes_kernel[(launched_tiles(order, experts) * triton.cdiv(outputs, tile.outputs),)](
        x_ptr=kernel_codes(x.codes),
        x_scale_ptr=x.scale,
        codes_ptr=kernel_codes(codes_GNC),
        scale_ptr=scale_E,
        bias_ptr=bias_EN,
        out_ptr=out_PN,
        order_ptr=order.order,
        offsets_ptr=order.offsets,
        tiles_ptr=order.tiles,
        tile_starts_ptr=order.tile_starts,
        N=outputs,
        C=columns,
        x_stride=x.codes.stride(0),
        out_stride=out_PN.stride(0),
        slots=order.slots,
        first_expert=first_expert,
        experts=experts,
        GATHER=by_token,
        **adapter_arguments(narrow_PR, adapter_ENR, rank_block, grouped=True),
        HAS_BIAS=bias_EN is not None,
        EVEN=columns % (tile.parts * tile.reduction) == 0,
        BLOCK_M=order.tile_rows,
        BLOCK_N=tile.outputs,
        BLOCK_C=tile.reduction,
        PARTS=tile.parts,
        GROUP=tile.group,
        IMPRECISE=short_columns(tile, CODES),
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
        maxnreg=tile.registers,
    )
