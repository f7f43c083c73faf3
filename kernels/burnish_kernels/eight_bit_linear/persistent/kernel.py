"""The 8-bit product for Hopper: programs that stay, operands and results moved by the copy engine.

A tile of 128 x 256 makes most products of a byte read, and the second-level cache could not feed smaller ones at the
tensor cores' rate; its sums stay in their short accumulator. A program computes tile after tile.

Shapes: T tokens, K columns of the reduction, N outputs, R ranks.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from burnish_kernels.dispatch import multiprocessors
from burnish_kernels.eight_bit_linear.kernel import EightBitProduct, finished, halves, tile_at
from burnish_kernels.eight_bit_linear.quantize.kernel import kernel_codes, operand

ALIGNMENT = 16  # bytes, of addresses and strides that the copy engine takes


@triton.jit(do_not_specialize=["T"])
def eight_bit_linear_persistent_kernel(
    x_desc,  # [T, K] INT8 or E4M3, in the interpreter bytes; read as [BLOCK_T, BLOCK_K], zeros past the ends
    weight_desc,  # [N, K] as x; read as [BLOCK_N, BLOCK_K]
    out_desc,  # [T, N]; written as [BLOCK_T, BLOCK_N / 2], rotated BLOCK_N / 4
    x_scale_ptr,  # [T] fp32
    scale_ptr,  # [N] fp32, read only with HAS_SCALE
    narrow_ptr,  # [T, R], read only with HAS_ADAPTER
    adapter_ptr,  # [N, R], read only with HAS_ADAPTER
    T,
    N,
    K,
    R,
    programs,
    narrow_stride,
    adapter_output,
    adapter_rank,
    HAS_SCALE: tl.constexpr,
    HAS_ADAPTER: tl.constexpr,
    ROTATION: tl.constexpr,  # outputs of a block that is rotated before the adapter is added; 0: none
    BLOCK_T: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_R: tl.constexpr,
    ONE_BLOCK: tl.constexpr,  # whether it has all ranks
    GROUP: tl.constexpr,
    IMPRECISE: tl.constexpr,  # columns summed in the short accumulator; None: all
    INTERPRETED: tl.constexpr,
):
    """Compute every tile whose number is that of the program modulo the number of programs, one after the other."""
    rows, blocks = tl.cdiv(T, BLOCK_T), tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), rows * blocks, programs):
        row, block = tile_at(tile, rows, blocks, GROUP)
        first_token, first_output = row * BLOCK_T, block * BLOCK_N
        sums = tl.zeros([BLOCK_T, BLOCK_N], tl.int32 if x_desc.dtype == tl.int8 else tl.float32)
        for column in range(0, K, BLOCK_K):
            x = operand(x_desc.load([first_token, column]), INTERPRETED)
            weight = operand(weight_desc.load([first_output, column]), INTERPRETED)
            sums = tl.dot(x, tl.trans(weight), sums, max_num_imprecise_acc=IMPRECISE, out_dtype=sums.dtype)
        result = finished(
            sums,
            x_scale_ptr,
            scale_ptr,
            (narrow_ptr, adapter_ptr, R, narrow_stride, adapter_output, adapter_rank),
            tl.minimum(first_token + tl.arange(0, BLOCK_T), T - 1),
            first_output,
            N,
            out_desc.dtype,
            HAS_SCALE,
            HAS_ADAPTER,
            ROTATION,
            BLOCK_R,
            ONE_BLOCK,
            INTERPRETED,
        )
        _store(out_desc, first_token, first_output, result)


@triton.jit
def _store(out_desc, first_token, first_output, tile):
    """Write a tile in the descriptor's parts: whole it would need shared memory that the operands on their way have."""
    columns: tl.constexpr = tile.shape[1]
    if columns > out_desc.block_shape[1]:
        left, right = halves(tile)
        _store(out_desc, first_token, first_output, left)
        _store(out_desc, first_token, first_output + columns // 2, right)
    else:
        out_desc.store([first_token, first_output], tile)


def fits_copy_engine(*matrices: torch.Tensor) -> bool:
    """Return whether the copy engine can read and write the matrices: their addresses and rows are aligned."""
    return all(
        one.data_ptr() % ALIGNMENT == 0 and one.stride(0) * one.element_size() % ALIGNMENT == 0 and one.stride(1) == 1
        for one in matrices
    )


def launch_eight_bit_linear_persistent(product: EightBitProduct) -> None:
    """Fill the product's `out_TN`; all must fit the copy engine."""
    codes, weight_NK, out_TN, tile = product.x.codes, product.weight_NK, product.out_TN, product.tile
    assert fits_copy_engine(codes, weight_NK, out_TN)
    arguments = product.arguments()
    programs = min(product.tiles, tile.persistent * multiprocessors(out_TN.device))
    eight_bit_linear_persistent_kernel[(programs,)](
        x_desc=_described(kernel_codes(codes), tile.tokens, tile.reduction),
        weight_desc=_described(kernel_codes(weight_NK), tile.outputs, tile.reduction),
        out_desc=_described(out_TN, tile.tokens, tile.outputs // (4 if product.rotation else 2)),
        programs=programs,
        ONE_BLOCK=arguments["R"] <= arguments["BLOCK_R"],
        **arguments,
    )


def _described(matrix: torch.Tensor, rows: int, columns: int) -> Any:
    return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), [rows, columns])
