"""Experts in NF4 made E4M3 codes, in Triton: a block's sixteen levels become codes once, and weights pick among them.

Decoding each weight alone takes more integer operations than the memory has time for. The sixteen codes of a block fill
four registers, of which PTX's `prmt` picks four bytes at a time by four indices of three bits: twice for four weights,
and once more by the indices' fourth bit. Launchers assert and never allocate.

Shapes: N rows and K columns of one expert's weight, G experts of a group. Offsets are int64 between experts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.quantize.kernel import to_e4m3
from burnish_kernels.moe_unpack.stacks import Nf4Experts
from burnish_kernels.nf4.reference import BLOCK

ROWS, COLUMNS = 32, 256  # tile of a program
TURNED_ROWS, TURNED_COLUMNS = 128, 64  # the same where codes are transposed
WARPS = 4

_PICK = tl.constexpr(
    """
    {
    .reg .b32 index, high, low, bytes, first, second;
    and.b32 index, $2, 0x0F0F0F0F;
    shl.b32 index, index, 4;
    shr.b32 high, $2, 4;
    and.b32 high, high, 0x0F0F0F0F;
    or.b32 index, index, high;
    shr.b32 high, index, 1;
    and.b32 high, high, 0x44444444;
    or.b32 high, high, 0x32103210;
    and.b32 index, index, 0x77777777;
    prmt.b32 low, $3, $4, index;
    prmt.b32 bytes, $5, $6, index;
    prmt.b32 first, low, bytes, high;
    shr.b32 index, index, 16;
    shr.b32 high, high, 16;
    prmt.b32 low, $3, $4, index;
    prmt.b32 bytes, $5, $6, index;
    prmt.b32 second, low, bytes, high;
    mov.b32 $0, first;
    mov.b32 $1, second;
    }
    """
)
"""Codes of a word's eight weights, the first four and the last: a byte's first weight is in its high nibble."""


@triton.jit
def _code(level, scale, inverse, INTERPRETED: tl.constexpr):
    return to_e4m3(level * scale * inverse, INTERPRETED).to(tl.uint8, bitcast=True).to(tl.int32)


@triton.jit
def _four(
    A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr, scale, inverse, INTERPRETED: tl.constexpr
):
    """Return the codes of four levels in one word, the first in its lowest byte."""
    low = _code(A, scale, inverse, INTERPRETED) | (_code(B, scale, inverse, INTERPRETED) << 8)
    high = _code(C, scale, inverse, INTERPRETED) | (_code(D, scale, inverse, INTERPRETED) << 8)
    return low | (high << 16)


@triton.jit
def _picked(nibble, a, b, c, d):
    """Return a weight's code out of four words, as the interpreter finds it."""
    word = tl.where((nibble & 8) != 0, tl.where((nibble & 4) != 0, d, c), tl.where((nibble & 4) != 0, b, a))
    return (word >> ((nibble & 3) * 8)) & 255


@triton.jit
def _codes_of_words(packed, a, b, c, d, INTERPRETED: tl.constexpr):
    """Return the codes of eight weights each: the first four in a word, and the last four."""
    if INTERPRETED:
        first = tl.zeros_like(packed)
        second = tl.zeros_like(packed)
        for byte in tl.static_range(2):
            for half in tl.static_range(2):  # a byte's first weight is in its high nibble
                place: tl.constexpr = 8 * byte + 4 * (1 - half)
                to: tl.constexpr = 16 * byte + 8 * half
                first |= _picked((packed >> place) & 15, a, b, c, d) << to
                second |= _picked((packed >> (place + 16)) & 15, a, b, c, d) << to
        return first, second
    else:  # noqa: RET505  Triton compiles what follows a return, and both must then have one type
        return tl.inline_asm_elementwise(
            _PICK, "=r,=r,r,r,r,r,r", [packed, a, b, c, d], dtype=(tl.int32, tl.int32), is_pure=True, pack=1
        )


@triton.jit(do_not_specialize=["first"])
def nf4_codes_kernel(
    packed_ptr,  # [E, N, K / 8] int32
    scale_ptr,  # [G, N, K / 64] fp32
    expert_scale_ptr,  # [E] fp32
    out_ptr,  # [G, N, K / 4] int32; with TRANSPOSED [G, K, N] bytes
    first,
    N,
    K,
    TRANSPOSED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Make one tile of one expert codes."""
    place = tl.program_id(1).to(tl.int64)
    tiles = tl.cdiv(K, COLUMNS)
    row = (tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % tiles) * COLUMNS
    block = column // 64 + tl.arange(0, COLUMNS // 64)
    inside = (row < N)[:, None] & (block < K // 64)[None, :]
    at = row[:, None] * (K // 64) + block[None, :]
    scale = tl.load(scale_ptr + place * N * (K // 64) + at, mask=inside, other=0.0)
    inverse = tl.div_rn(1.0, tl.load(expert_scale_ptr + first + place))
    # The levels of `nf4.reference.LEVELS`, in order.
    a = _four(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, scale, inverse, INTERPRETED)
    b = _four(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0, scale, inverse, INTERPRETED)
    c = _four(
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, scale, inverse, INTERPRETED
    )
    d = _four(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0, scale, inverse, INTERPRETED)
    word_at = at[:, :, None] * 8 + tl.arange(0, 8)[None, None, :]
    packed = tl.load(packed_ptr + (first + place) * N * (K // 8) + word_at, mask=inside[:, :, None], other=0)
    shape: tl.constexpr = [ROWS, COLUMNS // 64, 8]
    a, b = tl.broadcast_to(a[:, :, None], shape), tl.broadcast_to(b[:, :, None], shape)
    c, d = tl.broadcast_to(c[:, :, None], shape), tl.broadcast_to(d[:, :, None], shape)
    low, high = _codes_of_words(packed, a, b, c, d, INTERPRETED)
    fours = tl.join(low, high)
    if TRANSPOSED:
        even = tl.join(fours & 255, (fours >> 16) & 255)
        odd = tl.join((fours >> 8) & 255, (fours >> 24) & 255)
        codes = tl.reshape(tl.join(even, odd).to(tl.uint8), [ROWS, COLUMNS])
        own = column + tl.arange(0, COLUMNS)
        out = out_ptr + place * N * K + own[:, None] * N + row[None, :]
        tl.store(out, tl.trans(codes), mask=(own < K)[:, None] & (row < N)[None, :])
    else:
        four = column // 4 + tl.arange(0, COLUMNS // 4)
        out = out_ptr + place * N * (K // 4) + row[:, None] * (K // 4) + four[None, :]
        fours = tl.reshape(fours, [ROWS, COLUMNS // 4])
        tl.store(out, fours, mask=(row < N)[:, None] & (four < K // 4)[None, :])


def launch_nf4_codes(
    stack: Nf4Experts, scales: torch.Tensor, scale_E: torch.Tensor, first: int, out: torch.Tensor, *, transposed: bool
) -> None:
    """Fill `out` with the codes of experts from `first` on; `scales` begin with that expert."""
    count, (rows, columns) = len(out), stack.shape
    assert scales.shape == (count, rows * columns // BLOCK)
    assert scales.is_contiguous()
    assert out.is_contiguous()
    tile = (TURNED_ROWS, TURNED_COLUMNS) if transposed else (ROWS, COLUMNS)
    nf4_codes_kernel[(triton.cdiv(rows, tile[0]) * triton.cdiv(columns, tile[1]), count)](
        packed_ptr=stack.packed.view(torch.int32),
        scale_ptr=scales,
        expert_scale_ptr=scale_E,
        out_ptr=out.view(torch.uint8 if transposed else torch.int32),
        first=first,
        N=rows,
        K=columns,
        TRANSPOSED=transposed,
        ROWS=tile[0],
        COLUMNS=tile[1],
        INTERPRETED=interpreted(),
        num_warps=WARPS,
    )
