"""A projection with NF4 weights on few tokens in Triton: half a byte is read for a weight.

The memory hands over weights about as fast as a multiprocessor decodes them, so integer instructions count: 2.6 a
weight. A level has two bytes in a 16-bit type, and the sixteen low bytes fill four registers, the high ones four more.
PTX's `prmt` picks four bytes out of eight by indices of three bits: twice for four weights, and once more by the
indices' fourth bit. Two further ones put low and high bytes together, weights of even columns in one register and
those of odd ones in another, as matrix units read them. So a tile of bytes gives two of weights, which are multiplied
with the even and the odd inputs.

What is not said here is as in `decode_linear.kernel`. Level and scale of a block of 64 are rounded to the type of the
inputs before they are multiplied. Launchers assert and never allocate.

Shapes: B tokens, N outputs, K inputs, R ranks, S splits; P parts of the weight, one under another.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from burnish_kernels.attention.kernel import dot
from burnish_kernels.decode_linear.config import DecodeConfig
from burnish_kernels.decode_linear.kernel import finish, span_of
from burnish_kernels.decode_linear.nf4.config import padded
from burnish_kernels.dispatch import interpreted
from burnish_kernels.nf4.kernel import block_scale, level_table, scale_arguments
from burnish_kernels.nf4.reference import BLOCK, levels
from burnish_kernels.nf4.state import Nf4


def _registers(values: Sequence[int]) -> list[str]:
    """Return sixteen bytes as four words, the first in the lowest byte."""
    return [f"0x{int.from_bytes(bytes(values[at : at + 4]), 'little'):08X}" for at in range(0, 16, 4)]


def decode_text(dtype: torch.dtype) -> str:
    """Return PTX that decodes four bytes to four even and four odd weights, each pair of a type times its scales."""
    name = "bf16x2" if dtype == torch.bfloat16 else "f16x2"
    bits = [value & 0xFFFF for value in levels().to(dtype).view(torch.int16).tolist()]
    tables = {"low": _registers([value & 255 for value in bits]), "high": _registers([value >> 8 for value in bits])}
    lines = [
        ".reg .b32 three, fourth, first, second, low, high, zero;",
        "and.b32 three, $4, 0x77777777;",
        "shr.u32 fourth, $4, 1;",
        "lop3.b32 fourth, fourth, 0x44444444, 0x32103210, 0xEA;",  # (a & b) | c
        "mov.b32 zero, 0x80008000;",  # -0 twice: sm_80 has no product of two bf16, only one with a sum
    ]
    for half in range(2):
        if half:
            lines += ["shr.u32 three, three, 16;", "shr.u32 fourth, fourth, 16;"]
        for byte, table in tables.items():
            lines += [
                f"prmt.b32 first, {table[0]}, {table[1]}, three;",
                f"prmt.b32 second, {table[2]}, {table[3]}, three;",
                f"prmt.b32 {byte}, first, second, fourth;",
            ]
        for place, pick in ((half, "0x7351"), (2 + half, "0x6240")):  # even columns are in the high nibbles
            lines += [f"prmt.b32 first, low, high, {pick};", f"fma.rn.{name} ${place}, first, ${5 + half}, zero;"]
    return "\n".join(["{", *lines, "}"])


_DECODE_BF16 = tl.constexpr(decode_text(torch.bfloat16))
_DECODE_FP16 = tl.constexpr(decode_text(torch.float16))
_PLACES = tl.constexpr("=&r,=&r,=&r,=&r,r,r,r")


@triton.jit
def _level(nibble, TYPE: tl.constexpr):
    level = tl.gather(level_table(), tl.reshape(nibble, [nibble.shape[0] * nibble.shape[1]]), 0)
    return tl.reshape(level, nibble.shape).to(TYPE).to(tl.float32)


@triton.jit
def decoded(packed, scale, TYPE: tl.constexpr, INTERPRETED: tl.constexpr):
    """Return the weights of even and of odd columns, of TYPE.

    Args:
        packed: bytes of two weights each, uint8.
        scale: scale of each byte's block, of TYPE.
        TYPE: bf16 or fp16.
        INTERPRETED: whether Triton interprets this.
    """
    if INTERPRETED:
        nibbles = packed.to(tl.int32)
        factor = scale.to(tl.float32)
        even = (_level(nibbles >> 4, TYPE) * factor).to(TYPE)
        odd = (_level(nibbles & 15, TYPE) * factor).to(TYPE)
        return even, odd
    elif TYPE.is_bf16():  # noqa: RET505  Triton compiles what follows a return, and all must then have one type
        return tl.inline_asm_elementwise(
            _DECODE_BF16, _PLACES, [packed, scale], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=4
        )
    else:
        return tl.inline_asm_elementwise(
            _DECODE_FP16, _PLACES, [packed, scale], dtype=(tl.float16, tl.float16), is_pure=True, pack=4
        )


@triton.jit(do_not_specialize=["B"])
def nf4_kernel(
    x_ptr,  # [B, K]
    packed_ptrs,  # P times [rows, K / 2] uint8
    absmax_ptrs,  # P times [rows, K / 64], uint8 with DOUBLE, else fp32
    nested_ptrs,  # P times [blocks / 256] fp32, read only with DOUBLE
    code_ptrs,  # P times [256] fp32, read only with DOUBLE
    offset_ptrs,  # P times [1] fp32, read only with DOUBLE
    a_ptr,  # [R, K]
    sb_ptr,  # [N, R]
    bias_ptr,  # [N], read only with HAS_BIAS
    out_ptr,  # [B, N]
    parts_ptr,  # [S, B, N] fp32, used only with SPLITS > 1
    counters_ptr,  # [tiles] int32
    B,
    N,
    K,
    x_stride,
    a_stride,
    sb_stride,
    out_stride,
    TOPS: tl.constexpr,  # first output of each part
    SPANS: tl.constexpr,
    RANKS: tl.constexpr,
    APART: tl.constexpr,  # whether x Aᵀ is in a branch of its own
    DOUBLE: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,  # divides K
    SPLITS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Multiply with the weights of some outputs, all in one part."""
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    BYTES: tl.constexpr = BLOCK_K // 2
    BLOCKS: tl.constexpr = BLOCK_K // 64
    n0 = tl.program_id(0) * BLOCK_N
    packed_ptr, absmax_ptr, nested_ptr = packed_ptrs[0], absmax_ptrs[0], nested_ptrs[0]
    code_ptr, offset_ptr = code_ptrs[0], offset_ptrs[0]
    top = 0
    for part in tl.static_range(1, len(TOPS)):
        own = n0 >= TOPS[part]
        packed_ptr = tl.where(own, packed_ptrs[part], packed_ptr)
        absmax_ptr = tl.where(own, absmax_ptrs[part], absmax_ptr)
        nested_ptr = tl.where(own, nested_ptrs[part], nested_ptr)
        code_ptr = tl.where(own, code_ptrs[part], code_ptr)
        offset_ptr = tl.where(own, offset_ptrs[part], offset_ptr)
        top = tl.where(own, TOPS[part], top)
    row = tl.arange(0, BLOCK_B)
    output = n0 + tl.arange(0, BLOCK_N)
    own_row = tl.minimum(output, N - 1) - top  # what is past the end is computed and not stored
    column = tl.arange(0, BLOCK_K)
    byte = tl.arange(0, BYTES)
    block = tl.arange(0, BLOCKS)
    rank = tl.arange(0, RANKS)
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    begin = tl.program_id(1) * share
    end = tl.minimum(begin + share, K)
    first, count = span_of(n0, SPANS)
    total = tl.zeros([BLOCK_B, BLOCK_N], tl.float32)
    narrow = tl.zeros([BLOCK_B, RANKS], tl.float32)
    at_x = row.to(tl.int64)[:, None] * x_stride
    at_packed = own_row[:, None] * (K // 2) + byte[None, :]
    at_block = own_row[:, None] * (K // 64) + block[None, :]
    every = tl.full([BLOCK_N, BLOCKS], True, tl.int1)
    at_a = (first + rank).to(tl.int64)[:, None] * a_stride
    for start in range(begin, end, BLOCK_K):
        k = start + column
        x = tl.load(x_ptr + at_x + k[None, :], mask=(row < B)[:, None], other=0.0)
        packed = tl.load(packed_ptr + at_packed + start // 2)
        scale = block_scale(at_block + start // 64, every, absmax_ptr, nested_ptr, code_ptr, offset_ptr, DOUBLE).to(
            TYPE
        )
        scale = tl.reshape(tl.broadcast_to(scale[:, :, None], [BLOCK_N, BLOCKS, 32]), [BLOCK_N, BYTES])
        even, odd = decoded(packed, scale, TYPE, PRECISION == "interpreted")
        x_even, x_odd = tl.split(tl.reshape(x, [BLOCK_B, BYTES, 2]))
        total = dot(x_even, tl.trans(even), total, PRECISION)
        total = dot(x_odd, tl.trans(odd), total, PRECISION)
        if len(SPANS) > 0:
            a = tl.load(a_ptr + at_a + k[None, :], mask=(rank < count)[:, None], other=0.0)
            if APART:
                if count > 0:
                    narrow = dot(x, tl.trans(a), narrow, PRECISION)
            else:
                narrow = dot(x, tl.trans(a), narrow, PRECISION)
    if len(SPANS) > 0:
        at_sb = output.to(tl.int64)[:, None] * sb_stride + (first + rank)[None, :]
        sb = tl.load(sb_ptr + at_sb, mask=(output < N)[:, None] & (rank < count)[None, :], other=0.0)
        total = dot(narrow.to(sb.dtype), tl.trans(sb), total, PRECISION)
    finish(total, row, output, B, N, bias_ptr, out_ptr, parts_ptr, counters_ptr, out_stride, SPLITS, HAS_BIAS)


def rank_constants(rows: int, spans: tuple[tuple[int, int, int, int], ...]) -> dict[str, int | bool]:
    """Return the constants of x Aᵀ.

    Triton divides all products of a loop among the warps in the same way: by tokens where one of them has no fewer
    tokens than outputs. Then every warp would decode all weights of the program. A product in a branch does not count,
    but what it reads is loaded later.

    Args:
        rows: number of tokens.
        spans: adapters of the outputs.
    """
    tokens = padded(rows)
    ranks = max(32 if tokens == 16 else 16, triton.next_power_of_2(max((span[3] for span in spans), default=16)))
    return {"RANKS": ranks, "APART": ranks <= tokens}


def launch(
    x_BK: torch.Tensor,
    parts: Sequence[Nf4],
    a_RK: torch.Tensor,
    sb_NR: torch.Tensor,
    spans: tuple[tuple[int, int, int, int], ...],
    tops: tuple[int, ...],
    *,
    bias_N: torch.Tensor | None,
    out_BN: torch.Tensor,
    parts_SBN: torch.Tensor | None,
    counters: torch.Tensor,
    config: DecodeConfig,
) -> None:
    """Fill `out_BN`."""
    (rows, inputs), outputs = x_BK.shape, out_BN.shape[1]
    tiles = triton.cdiv(outputs, config.block_n)
    assert len(counters) >= tiles
    assert (parts_SBN is None) == (config.splits == 1)
    assert config.block_k % BLOCK == 0
    assert inputs % config.block_k == 0
    assert not any(top % config.block_n for top in tops)
    scales = [scale_arguments(part) for part in parts]
    nf4_kernel[(tiles, config.splits)](
        x_ptr=x_BK,
        packed_ptrs=tuple(part.packed for part in parts),
        **{f"{name}s": tuple(one[name] for one in scales) for name in scales[0]},
        a_ptr=a_RK,
        sb_ptr=sb_NR,
        bias_ptr=bias_N,
        out_ptr=out_BN,
        parts_ptr=parts_SBN,
        counters_ptr=counters,
        B=rows,
        N=outputs,
        K=inputs,
        x_stride=x_BK.stride(0),
        a_stride=a_RK.stride(0),
        sb_stride=sb_NR.stride(0),
        out_stride=out_BN.stride(0),
        TOPS=tops,
        SPANS=spans,
        **rank_constants(rows, spans),
        DOUBLE=parts[0].double,
        BLOCK_B=padded(rows),
        BLOCK_N=config.block_n,
        BLOCK_K=config.block_k,
        SPLITS=config.splits,
        HAS_BIAS=bias_N is not None,
        PRECISION="interpreted" if interpreted() else "tf32",
        num_warps=config.warps,
        num_stages=config.stages,
    )
