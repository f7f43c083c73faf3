"""Rows quantized to E4M3 or INT8 and codes transposed, in Triton, with the helpers of every kernel that writes codes.

The type of the codes' memory says which; in Triton functions `INT8` does.

Triton's interpreter cannot convert E4M3, so there codes are bytes that `to_e4m3` and `operand` make and read
themselves. Launchers assert and never allocate. Row offsets are int64.

Shapes: T tokens, K columns, N rows of a matrix that is transposed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.dispatch import interpreted, multiprocessors
from burnish_kernels.eight_bit_linear import reference
from burnish_kernels.eight_bit_linear.rows import CODES, INT8, LARGEST, LARGEST_OF, EightBitRows
from burnish_kernels.eight_bit_linear.tiles import rotated_tile, rows_tile
from burnish_kernels.lora_linear.kernel import dot

TURN, TURN_WARPS = 128, 8  # rows and columns of a tile that is transposed

_LARGEST = tl.constexpr(LARGEST)
_SMALLEST_SCALE = tl.constexpr(reference.SMALLEST_SCALE)
_SMALLEST_NORMAL = tl.constexpr(2.0**-6)
_HALF_UNITS = tl.constexpr(2.0**14)  # fp32 numbers from here on are as far apart as E4M3's subnormals: 2^-9
_HALF_UNITS_BITS = tl.constexpr((127 + 14) << 23)
_TWO_120 = tl.constexpr(2.0**120)
_LARGEST_INT8 = tl.constexpr(LARGEST_OF[INT8])
_UNITS = tl.constexpr(1.5 * 2.0**23)  # fp32 numbers near it are whole, and its last byte is 0


@triton.jit
def to_e4m3(x, INTERPRETED: tl.constexpr):
    """Round fp32 to E4M3, to nearest, halves to even; beyond 448 is 448, NaN stays. Bytes in the interpreter.

    WORKAROUND: Triton's interpreter drops the carry of a rounded mantissa, truncates subnormals and loses NaN
    (`_convert_float` in triton/runtime/interpreter.py of 3.9). This can go when it no longer does.
    """
    if not INTERPRETED:
        return x.to(tl.float8e4nv)
    else:  # noqa: RET505  Triton compiles what follows a return, and both must then have one type
        size = tl.minimum(tl.abs(x), _LARGEST)
        bits = size.to(tl.int32, bitcast=True)
        normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
        subnormal = (size + _HALF_UNITS).to(tl.int32, bitcast=True) - _HALF_UNITS_BITS
        code = tl.where(size < _SMALLEST_NORMAL, subnormal, normal)
        code = tl.where(x != x, 0x7F, code)  # noqa: PLR0124  NaN alone differs from itself
        return (code | ((x.to(tl.int32, bitcast=True) >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def to_codes(x, INT8: tl.constexpr, INTERPRETED: tl.constexpr):
    """Round fp32 values over their row's scale to codes, to nearest, halves to even, beyond the largest to it."""
    if INT8:
        # Nothing is beyond the largest, and infinite scales make codes irrelevant: this bound keeps the product that
        # made x from being fused with the sum.
        bounded = tl.minimum(x, _LARGEST_INT8)
        return (bounded + _UNITS).to(tl.int32, bitcast=True).to(tl.int8)  # the last byte is the number
    else:  # noqa: RET505  as above
        return to_e4m3(x, INTERPRETED)


@triton.jit
def operand(codes, INTERPRETED: tl.constexpr):
    """Return codes as an operand of a product: as they are, but E4M3 in fp32 in the interpreter, which holds bytes."""
    if not INTERPRETED or codes.dtype == tl.int8:
        return codes
    else:  # noqa: RET505  as above
        bits = codes.to(tl.int32)
        size = ((bits & 0x7F) << 20).to(tl.float32, bitcast=True) * _TWO_120
        size = tl.where((bits & 0x7F) == 0x7F, float("nan"), size)
        return tl.where(bits > 0x7F, -size, size)


@triton.jit
def magnitude(x):
    """Return magnitudes of what is quantized; of NaN infinity: `tl.max` would lose it, and INT8 has no code for it."""
    return tl.where(x == x, tl.abs(x), float("inf"))  # noqa: PLR0124  as above


@triton.jit
def row_scale(largest, INT8: tl.constexpr):
    """Return the scale of rows whose largest magnitudes are given, and its reciprocal, by which codes are made."""
    most: tl.constexpr = _LARGEST_INT8 if INT8 else _LARGEST
    scale = tl.where(largest == 0.0, 1.0, tl.maximum(tl.div_rn(largest, most), _SMALLEST_SCALE))
    return scale, tl.div_rn(1.0, scale)


@triton.jit
def hadamard_signs(BLOCK: tl.constexpr):
    """Return Sylvester's Hadamard matrix `[BLOCK, BLOCK]` fp32 of -1 and 1.

    Entry i, j is -1 to the number of ones that the binary numbers i and j have in common.
    """
    common = tl.arange(0, BLOCK)[:, None] & tl.arange(0, BLOCK)[None, :]
    common = common ^ (common >> 4)
    common = common ^ (common >> 2)
    common = common ^ (common >> 1)
    return (1 - 2 * (common & 1)).to(tl.float32)


@triton.jit
def rotated(x, signs, BLOCK: tl.constexpr, INTERPRETED: tl.constexpr):
    """Return rows of BLOCK columns times the orthogonal Hadamard matrix, fp32.

    Tensor cores add its products in an order of their own: the last bit may be another one than the reference's.

    Args:
        x: rows `[M, BLOCK]`, fp16 or bf16; or fp32, multiplied as two parts in bf16, so that 2^-17 of it is lost.
        signs: what `hadamard_signs` returns.
        BLOCK: 16, 32 or 64.
        INTERPRETED: whether Triton's interpreter runs it.
    """
    sums = tl.zeros([x.shape[0], BLOCK], tl.float32)
    if x.dtype == tl.float32:
        high = x.to(tl.bfloat16)
        low = (x - high.to(tl.float32)).to(tl.bfloat16)
        sums = dot(high, signs.to(tl.bfloat16), sums, INTERPRETED)
        sums = dot(low, signs.to(tl.bfloat16), sums, INTERPRETED)
    else:
        sums = dot(x, signs.to(x.dtype), sums, INTERPRETED)
    return sums * (BLOCK**-0.5)


@triton.jit
def rotated_columns(x, BLOCK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INTERPRETED: tl.constexpr):
    """Return rows `[ROWS, COLUMNS]` whose blocks of BLOCK columns are rotated, fp32."""
    blocks = tl.reshape(x, [ROWS * COLUMNS // BLOCK, BLOCK])
    return tl.reshape(rotated(blocks, hadamard_signs(BLOCK), BLOCK, INTERPRETED), [ROWS, COLUMNS])


@triton.jit(do_not_specialize=["T"])
def quantize_rotated_kernel(
    x_ptr,  # [T, K]
    codes_ptr,  # [T, K] INT8 or E4M3, in the interpreter bytes
    scale_ptr,  # [T] fp32
    T,
    K,
    x_stride,
    codes_stride,
    ROTATION: tl.constexpr,  # columns of a block that is rotated
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,  # blocks of a row, at least K / ROTATION
    INTERPRETED: tl.constexpr,
):
    """Rotate and quantize ROWS rows at a time, which are read once; their blocks lie one below the other.

    Programs stay, so that the signs are made once.
    """
    signs = hadamard_signs(ROTATION)
    block = tl.arange(0, ROWS * BLOCKS)
    first = (block % BLOCKS) * ROTATION
    column = first[:, None] + tl.arange(0, ROTATION)[None, :]
    for first_row in tl.range(tl.program_id(0) * ROWS, T, tl.num_programs(0) * ROWS, num_stages=1):
        row = first_row + block // BLOCKS
        inside = ((row < T) & (first < K))[:, None]
        far = row.to(tl.int64)[:, None]
        x = tl.load(x_ptr + far * x_stride + column, mask=inside, other=0.0)
        x = rotated(x, signs, ROTATION, INTERPRETED)
        largest = tl.max(tl.reshape(tl.max(magnitude(x), axis=1), [ROWS, BLOCKS]), axis=1)
        scale, inverse = row_scale(largest, codes_ptr.dtype.element_ty == tl.int8)
        own = first_row + tl.arange(0, ROWS)
        tl.store(scale_ptr + own, scale, mask=own < T)
        inverse = tl.reshape(tl.broadcast_to(inverse[:, None], [ROWS, BLOCKS]), [ROWS * BLOCKS])
        codes = to_codes(x * inverse[:, None], codes_ptr.dtype.element_ty == tl.int8, INTERPRETED)
        tl.store(codes_ptr + far * codes_stride + column, codes, mask=inside)


@triton.jit
def load_scaled(
    x_at,
    factor_ptr,
    column,
    K,
    HAS_FACTOR: tl.constexpr,
):
    """Load columns of some rows as what is quantized: fp32, times the columns' factors if any; zeros past K."""
    inside = column < K
    x = tl.load(x_at + column[None, :], mask=inside[None, :], other=0.0).to(tl.float32)
    if HAS_FACTOR:
        x *= tl.load(factor_ptr + column, mask=inside, other=0.0)[None, :]
    return x


@triton.jit
def store_codes(
    x_at,
    factor_ptr,
    codes_at,
    inverse,
    own,
    K,
    HAS_FACTOR: tl.constexpr,
    COLUMNS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Store the codes of some rows, which lie in the cache, given the reciprocals of their scales.

    Args:
        x_at: pointers to the rows `[ROWS, 1]`; read even where not own.
        factor_ptr: factor of each column, read only with HAS_FACTOR.
        codes_at: pointers to the rows' codes `[ROWS, 1]`.
        inverse: reciprocal of each row's scale `[ROWS]`.
        own: rows that are stored `[ROWS]`.
        K: number of columns.
        HAS_FACTOR: whether columns have factors.
        COLUMNS: number of columns at a time.
        INTERPRETED: whether codes are bytes.
    """
    for first in range(0, K, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        x = load_scaled(x_at, factor_ptr, column, K, HAS_FACTOR)
        codes = to_codes(x * inverse[:, None], codes_at.dtype.element_ty == tl.int8, INTERPRETED)
        tl.store(codes_at + column[None, :], codes, mask=own[:, None] & (column < K)[None, :])


@triton.jit(do_not_specialize=["T"])
def quantize_rows_kernel(
    x_ptr,  # [T, K]
    factor_ptr,  # [K] fp32, read only with HAS_FACTOR
    codes_ptr,  # [T, K] INT8 or E4M3, in the interpreter bytes
    scale_ptr,  # [T] fp32
    T,
    K,
    x_stride,
    codes_stride,
    HAS_FACTOR: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Quantize ROWS rows; what of them is read again is in the cache."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own = row < T
    x_at = x_ptr + tl.minimum(row, T - 1).to(tl.int64)[:, None] * x_stride
    codes_at = codes_ptr + row.to(tl.int64)[:, None] * codes_stride
    largest = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, K, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        x = load_scaled(x_at, factor_ptr, column, K, HAS_FACTOR)
        largest = tl.maximum(largest, magnitude(x))
    scale, inverse = row_scale(tl.max(largest, axis=1), codes_ptr.dtype.element_ty == tl.int8)
    tl.store(scale_ptr + row, scale, mask=own)
    store_codes(x_at, factor_ptr, codes_at, inverse, own, K, HAS_FACTOR, COLUMNS, INTERPRETED)


@triton.jit
def transpose_kernel(
    codes_ptr,  # [N, K] uint8
    out_ptr,  # [K, N] uint8
    N,
    K,
    codes_stride,
    out_stride,
    TURN: tl.constexpr,
):
    """Transpose one tile of bytes."""
    row = tl.program_id(1) * TURN + tl.arange(0, TURN)
    column = tl.program_id(0) * TURN + tl.arange(0, TURN)
    inside = (row < N)[:, None] & (column < K)[None, :]
    codes = tl.load(codes_ptr + row.to(tl.int64)[:, None] * codes_stride + column[None, :], mask=inside, other=0)
    out = out_ptr + column.to(tl.int64)[:, None] * out_stride + row[None, :]
    tl.store(out, tl.trans(codes), mask=tl.trans(inside))


def kernel_codes(codes: torch.Tensor) -> torch.Tensor:
    """Return codes as kernels take them: as they are, but E4M3 as bytes in the interpreter."""
    return codes.view(torch.uint8) if interpreted() and codes.dtype == CODES else codes


def launch_quantize_rows(x_TK: torch.Tensor, factor_K: torch.Tensor | None, out: EightBitRows) -> None:
    """Fill codes and scales of `out`."""
    tokens, columns = x_TK.shape
    assert out.codes.shape == x_TK.shape
    tile = rows_tile(columns)
    quantize_rows_kernel[(triton.cdiv(tokens, tile.rows),)](
        x_ptr=x_TK,
        factor_ptr=factor_K,
        codes_ptr=kernel_codes(out.codes),
        scale_ptr=out.scale,
        T=tokens,
        K=columns,
        x_stride=x_TK.stride(0),
        codes_stride=out.codes.stride(0),
        HAS_FACTOR=factor_K is not None,
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
    )


def launch_quantize_rotated(x_TK: torch.Tensor, rotation: int, out: EightBitRows) -> None:
    """Fill codes and scales of `out` with those of rotated rows."""
    tokens, columns = x_TK.shape
    assert out.codes.shape == x_TK.shape
    assert columns % rotation == 0
    tile = rotated_tile(columns, rotation)
    programs = min(triton.cdiv(tokens, tile.rows), tile.programs * multiprocessors(x_TK.device))
    quantize_rotated_kernel[(programs,)](
        x_ptr=x_TK,
        codes_ptr=kernel_codes(out.codes),
        scale_ptr=out.scale,
        T=tokens,
        K=columns,
        x_stride=x_TK.stride(0),
        codes_stride=out.codes.stride(0),
        ROTATION=rotation,
        ROWS=tile.rows,
        BLOCKS=tile.blocks,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
    )


def launch_transpose(codes_NK: torch.Tensor, out_KN: torch.Tensor) -> None:
    """Fill `out_KN`."""
    rows, columns = codes_NK.shape
    assert out_KN.shape == (columns, rows)
    transpose_kernel[(triton.cdiv(columns, TURN), triton.cdiv(rows, TURN))](
        codes_ptr=codes_NK.view(torch.uint8),
        out_ptr=out_KN.view(torch.uint8),
        N=rows,
        K=columns,
        codes_stride=codes_NK.stride(0),
        out_stride=out_KN.stride(0),
        TURN=TURN,
        num_warps=TURN_WARPS,
    )
