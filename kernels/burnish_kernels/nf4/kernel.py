"""NF4 dequantization in Triton: both levels in one pass, half a byte read and one value or code written.

A thread takes four bytes, so eight values, and writes them together. The 16 levels are looked up by `tl.gather` in
shared memory: one load a value; a tree of selects would need fifteen instructions and be bound by them. Both kernels
are compiled without fused multiply-add: bitsandbytes rounds the scale's product before it adds the offset.

Launchers assert and never allocate. Offsets into the result are int64.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.quantize.kernel import kernel_codes, rotated_columns, to_codes
from burnish_kernels.nf4.reference import TILE
from burnish_kernels.nf4.state import Nf4

WORDS = 512  # words of eight values in a program of 4 warps: four a thread
BLOCK = 1024  # values of a program where rows are not whole words
PASTE = 1024  # values of a program
CODE_ROWS, CODE_WORDS, CODE_WARPS = 64, 8, 4  # tile of a program that writes codes


@triton.jit
def level_table():
    """Make the table of `reference.LEVELS` in registers, which saves a kernel argument."""
    index = tl.arange(0, 16)
    table = tl.where(index == 0, -1.0, 0.0)
    table = tl.where(index == 1, -0.6961928009986877, table)
    table = tl.where(index == 2, -0.5250730514526367, table)
    table = tl.where(index == 3, -0.39491748809814453, table)
    table = tl.where(index == 4, -0.28444138169288635, table)
    table = tl.where(index == 5, -0.18477343022823334, table)
    table = tl.where(index == 6, -0.09105003625154495, table)
    table = tl.where(index == 8, 0.07958029955625534, table)
    table = tl.where(index == 9, 0.16093020141124725, table)
    table = tl.where(index == 10, 0.24611230194568634, table)
    table = tl.where(index == 11, 0.33791524171829224, table)
    table = tl.where(index == 12, 0.44070982933044434, table)
    table = tl.where(index == 13, 0.5626170039176941, table)
    table = tl.where(index == 14, 0.7229568362236023, table)
    return tl.where(index == 15, 1.0, table)


@triton.jit
def block_scale(block, inside, absmax_ptr, nested_ptr, code_ptr, offset_ptr, DOUBLE: tl.constexpr):
    """Return the scale of each block of 64."""
    scale = tl.load(absmax_ptr + block, mask=inside, other=0)
    if DOUBLE:
        nested = tl.load(nested_ptr + (block >> 8), mask=inside, other=0.0)
        scale = tl.load(code_ptr + scale.to(tl.int32)) * nested + tl.load(offset_ptr)
    return scale


@triton.jit
def dequantize_words_kernel(
    packed_ptr,  # [words] int32, eight values each
    absmax_ptr,  # [words / 8], uint8 with DOUBLE, else fp32
    nested_ptr,  # [words / 2048] fp32, read only with DOUBLE
    code_ptr,  # [256] fp32, read only with DOUBLE
    offset_ptr,  # [1] fp32, read only with DOUBLE
    out_ptr,  # [N, 8 * row_words]
    word_count,
    row_words,
    out_stride,
    DOUBLE: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Dequantize WORDS words of eight values, of rows that are whole words."""
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    inside = word < word_count
    bits = tl.load(packed_ptr + word, mask=inside, other=0)
    scale = block_scale(word >> 3, inside, absmax_ptr, nested_ptr, code_ptr, offset_ptr, DOUBLE)
    lane = tl.arange(0, 8)
    nibble = (bits[:, None] >> ((lane ^ 1) * 4)[None, :]) & 15  # the high half of a byte is the first
    level = tl.reshape(tl.gather(level_table(), tl.reshape(nibble, [WORDS * 8]), 0), [WORDS, 8])
    row = word // row_words
    at = row.to(tl.int64) * out_stride + (word - row * row_words) * 8
    value = (level * scale[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + at[:, None] + lane[None, :], value, mask=inside[:, None])


@triton.jit
def dequantize_values_kernel(
    packed_ptr,  # [ceil(count / 2)] uint8
    absmax_ptr,  # [ceil(count / 64)], uint8 with DOUBLE, else fp32
    nested_ptr,  # [ceil(count / 16384)] fp32, read only with DOUBLE
    code_ptr,  # [256] fp32, read only with DOUBLE
    offset_ptr,  # [1] fp32, read only with DOUBLE
    out_ptr,  # [N, K]
    count,
    K,
    out_stride,
    DOUBLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Dequantize BLOCK values, of rows of any length."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    byte = tl.load(packed_ptr + (index >> 1), mask=inside, other=0).to(tl.int32)
    nibble = (byte >> (4 - (index & 1) * 4).to(tl.int32)) & 15
    scale = block_scale(index >> 6, inside, absmax_ptr, nested_ptr, code_ptr, offset_ptr, DOUBLE)
    value = tl.gather(level_table(), nibble, 0) * scale
    row = index // K
    tl.store(out_ptr + row * out_stride + (index - row * K), value.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["first_row"])
def encode_kernel(
    packed_ptr,  # [N, row_words] int32, eight values each
    absmax_ptr,  # [words / 8], uint8 with DOUBLE, else fp32
    nested_ptr,  # [words / 2048] fp32, read only with DOUBLE
    code_ptr,  # [256] fp32, read only with DOUBLE
    offset_ptr,  # [1] fp32, read only with DOUBLE
    scale_ptr,  # [N] fp32; with TILE of each TILE x TILE values of a larger weight, [tiles, 8 * row_words / TILE]
    out_ptr,  # [N, K] E4M3 or INT8, or [K, N] with TRANSPOSED; E4M3 as bytes in the interpreter
    N,
    row_words,
    out_stride,
    first_row,  # number of the first row in the larger weight
    DOUBLE: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    TILE: tl.constexpr,
    ROTATION: tl.constexpr,  # columns of a block that is rotated; 0: none. Not with TILE
    ROWS: tl.constexpr,
    WORDS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Dequantize a tile of ROWS rows and WORDS words of eight values, and round it to codes over the scales."""
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    inside = (row < N)[:, None] & (word < row_words)[None, :]
    at = row[:, None] * row_words + word[None, :]
    bits = tl.load(packed_ptr + at, mask=inside, other=0)
    scale = block_scale(at >> 3, inside, absmax_ptr, nested_ptr, code_ptr, offset_ptr, DOUBLE)
    if TILE:
        tile = ((first_row + row) // TILE)[:, None] * (row_words * 8 // TILE) + (word * 8 // TILE)[None, :]
        inverse = tl.div_rn(1.0, tl.load(scale_ptr + tile, mask=inside, other=1.0))
    else:
        inverse = tl.div_rn(1.0, tl.load(scale_ptr + row, mask=row < N, other=1.0))[:, None]
    lane = tl.arange(0, 8)
    nibble = (bits[:, :, None] >> ((lane ^ 1) * 4)[None, None, :]) & 15
    level = tl.reshape(tl.gather(level_table(), tl.reshape(nibble, [ROWS * WORDS * 8]), 0), [ROWS, WORDS, 8])
    if ROTATION:
        value = tl.reshape(level * scale[:, :, None], [ROWS, WORDS * 8])
        value = rotated_columns(value, ROTATION, ROWS, WORDS * 8, INTERPRETED) * inverse
    else:
        value = tl.reshape(level * scale[:, :, None] * inverse[:, :, None], [ROWS, WORDS * 8])
    codes = to_codes(value, out_ptr.dtype.element_ty == tl.int8, INTERPRETED)
    column = tl.program_id(0) * WORDS * 8 + tl.arange(0, WORDS * 8)
    if TRANSPOSED:
        out = out_ptr + column.to(tl.int64)[:, None] * out_stride + row[None, :]
        tl.store(out, tl.trans(codes), mask=(column < row_words * 8)[:, None] & (row < N)[None, :])
    else:
        out = out_ptr + row.to(tl.int64)[:, None] * out_stride + column[None, :]
        tl.store(out, codes, mask=(row < N)[:, None] & (column < row_words * 8)[None, :])


@triton.jit
def paste_kernel(
    buffer_ptr,  # [N + R, K + R]
    a_ptr,  # [R, K]
    b_ptr,  # [N, R]
    N,
    K,
    R,
    buffer_stride,
    a_row,
    a_column,
    b_row,
    b_column,
    a_programs,
    BLOCK: tl.constexpr,
):
    """Copy BLOCK values of A below the weight, or of B to its right."""
    program = tl.program_id(0)
    if program < a_programs:
        index = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        row = index // K
        column = index - row * K
        inside = row < R
        value = tl.load(a_ptr + row * a_row + column * a_column, mask=inside)
        tl.store(buffer_ptr + (row + N) * buffer_stride + column, value, mask=inside)
    else:
        index = (program - a_programs).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        row = index // R
        column = index - row * R
        inside = row < N
        value = tl.load(b_ptr + row * b_row + column * b_column, mask=inside)
        tl.store(buffer_ptr + row * buffer_stride + K + column, value, mask=inside)


def whole_words(weight: Nf4) -> bool:
    """Return whether rows are words of eight values, aligned and few enough for offsets of 32 bits."""
    rows, columns = weight.shape
    aligned = columns % 8 == 0 and weight.packed.data_ptr() % 4 == 0 and weight.packed.storage_offset() % 4 == 0
    return aligned and rows * columns // 8 < 2**31 - WORDS


def scale_arguments(weight: Nf4) -> dict[str, object]:
    """Return the arguments of a launch that `block_scale` reads."""
    unused = weight.packed
    return {
        "absmax_ptr": weight.absmax_q if weight.double else weight.absmax,
        "nested_ptr": unused if weight.nested_absmax is None else weight.nested_absmax,
        "code_ptr": unused if weight.code256 is None else weight.code256,
        "offset_ptr": unused if weight.offset is None else weight.offset,
    }


def launch_dequantize(weight: Nf4, out_NK: torch.Tensor) -> None:
    """Fill `out_NK`."""
    rows, columns = weight.shape
    count = rows * columns
    assert out_NK.shape == weight.shape
    assert out_NK.stride(1) == 1
    if whole_words(weight):
        dequantize_words_kernel[(triton.cdiv(count // 8, WORDS),)](
            packed_ptr=weight.packed.view(torch.int32),
            **scale_arguments(weight),
            out_ptr=out_NK,
            word_count=count // 8,
            row_words=columns // 8,
            out_stride=out_NK.stride(0),
            DOUBLE=weight.double,
            WORDS=WORDS,
            num_warps=4,
            enable_fp_fusion=False,
        )
    else:
        dequantize_values_kernel[(triton.cdiv(count, BLOCK),)](
            packed_ptr=weight.packed,
            **scale_arguments(weight),
            out_ptr=out_NK,
            count=count,
            K=columns,
            out_stride=out_NK.stride(0),
            DOUBLE=weight.double,
            BLOCK=BLOCK,
            num_warps=4,
            enable_fp_fusion=False,
        )


def launch_encode(
    weight: Nf4, scale: torch.Tensor, out: torch.Tensor, *, transposed: bool, first_row: int, rotation: int
) -> None:
    """Fill `out`, `[N, K]`, or `[K, N]` if transposed."""
    rows, columns = weight.shape
    assert whole_words(weight)
    assert out.shape == ((columns, rows) if transposed else (rows, columns))
    encode_kernel[(triton.cdiv(columns // 8, CODE_WORDS), triton.cdiv(rows, CODE_ROWS))](
        packed_ptr=weight.packed.view(torch.int32),
        **scale_arguments(weight),
        scale_ptr=scale,
        out_ptr=kernel_codes(out),
        N=rows,
        row_words=columns // 8,
        out_stride=out.stride(0),
        first_row=first_row,
        DOUBLE=weight.double,
        TRANSPOSED=transposed,
        TILE=TILE if scale.ndim == 2 else 0,
        ROTATION=rotation,
        ROWS=CODE_ROWS,
        WORDS=CODE_WORDS,
        INTERPRETED=interpreted(),
        num_warps=CODE_WARPS,
        enable_fp_fusion=False,
    )


def launch_paste(buffer: torch.Tensor, a_RK: torch.Tensor, sb_NR: torch.Tensor) -> None:
    """Write A under the weight in `buffer` and scaled B to its right."""
    rank, columns = a_RK.shape
    rows = sb_NR.shape[0]
    assert buffer.shape == (rows + rank, columns + rank)
    assert buffer.stride(1) == 1
    if not rank:
        return
    a_programs = triton.cdiv(rank * columns, PASTE)
    paste_kernel[(a_programs + triton.cdiv(rows * rank, PASTE),)](
        buffer_ptr=buffer,
        a_ptr=a_RK,
        b_ptr=sb_NR,
        N=rows,
        K=columns,
        R=rank,
        buffer_stride=buffer.stride(0),
        a_row=a_RK.stride(0),
        a_column=a_RK.stride(1),
        b_row=sb_NR.stride(0),
        b_column=sb_NR.stride(1),
        a_programs=a_programs,
        BLOCK=PASTE,
        num_warps=4,
    )
