"""A projection with weights in E4M3 or INT8 on few tokens in Triton: one byte is read for a weight.

Codes become numbers of 16 bits before they are multiplied, which is exact, and a row's scale multiplies the sum. E4M3
needs no type of 8 bits, which cards before compute capability 8.9 lack: its seven low bits, moved up by seven, are
those of an fp16 number that is 256 times smaller, subnormal ones too. Codes that are no number are not looked for.

What is not said here is as in `decode_linear.kernel`. Launchers assert and never allocate.

Shapes: B tokens, N outputs, K inputs, R ranks, S splits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.attention.kernel import dot
from burnish_kernels.decode_linear.config import DecodeConfig
from burnish_kernels.decode_linear.eight_bit.config import BLOCK_B
from burnish_kernels.decode_linear.kernel import finish, span_of
from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.rows import CODES, EightBitRows


@triton.jit
def decoded(codes, TYPE: tl.constexpr, E4M3: tl.constexpr):
    """Return codes as numbers of TYPE; those of E4M3, given as uint8, divided by 256."""
    if E4M3:
        wide = codes.to(tl.uint16)
        codes = (((wide & 0x80) << 8) | ((wide & 0x7F) << 7)).to(tl.float16, bitcast=True)
    return codes.to(tl.float32).to(TYPE)  # the interpreter turns whole numbers into bf16 wrongly


@triton.jit(do_not_specialize=["B"])
def eight_bit_kernel(
    x_ptr,  # [B, K]
    codes_ptr,  # [N, K] uint8 with E4M3, else int8
    scale_ptr,  # [N] fp32
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
    codes_stride,
    a_stride,
    sb_stride,
    out_stride,
    SPANS: tl.constexpr,
    RANKS: tl.constexpr,
    E4M3: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Multiply with the weights of some outputs."""
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.arange(0, BLOCK_B)
    n0 = tl.program_id(0) * BLOCK_N
    output = n0 + tl.arange(0, BLOCK_N)
    column = tl.arange(0, BLOCK_K)
    rank = tl.arange(0, RANKS)
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    begin = tl.program_id(1) * share
    end = tl.minimum(begin + share, K)
    first, count = span_of(n0, SPANS)
    total = tl.zeros([BLOCK_B, BLOCK_N], tl.float32)
    narrow = tl.zeros([BLOCK_B, RANKS], tl.float32)
    at_x = row.to(tl.int64)[:, None] * x_stride
    at_codes = output.to(tl.int64)[:, None] * codes_stride
    at_a = (first + rank).to(tl.int64)[:, None] * a_stride
    for start in range(begin, end, BLOCK_K):
        k = start + column
        there = (k < end)[None, :]
        x = tl.load(x_ptr + at_x + k[None, :], mask=(row < B)[:, None] & there, other=0.0)
        codes = tl.load(codes_ptr + at_codes + k[None, :], mask=(output < N)[:, None] & there, other=0)
        total = dot(x, tl.trans(decoded(codes, TYPE, E4M3)), total, PRECISION)
        if len(SPANS) > 0:
            a = tl.load(a_ptr + at_a + k[None, :], mask=(rank < count)[:, None] & there, other=0.0)
            narrow = dot(x, tl.trans(a), narrow, PRECISION)
    scale = tl.load(scale_ptr + output, mask=output < N, other=0.0)
    if E4M3:
        scale = scale * 256.0
    total = total * scale[None, :]
    if len(SPANS) > 0:
        at_sb = output.to(tl.int64)[:, None] * sb_stride + (first + rank)[None, :]
        sb = tl.load(sb_ptr + at_sb, mask=(output < N)[:, None] & (rank < count)[None, :], other=0.0)
        total = dot(narrow.to(sb.dtype), tl.trans(sb), total, PRECISION)
    finish(total, row, output, B, N, bias_ptr, out_ptr, parts_ptr, counters_ptr, out_stride, SPLITS, HAS_BIAS)


def launch(
    x_BK: torch.Tensor,
    weight: EightBitRows,
    a_RK: torch.Tensor,
    sb_NR: torch.Tensor,
    spans: tuple[tuple[int, int, int, int], ...],
    *,
    bias_N: torch.Tensor | None,
    out_BN: torch.Tensor,
    parts_SBN: torch.Tensor | None,
    counters: torch.Tensor,
    config: DecodeConfig,
) -> None:
    """Fill `out_BN`."""
    (rows, inputs), outputs = x_BK.shape, out_BN.shape[1]
    tiles, is_e4m3 = triton.cdiv(outputs, config.block_n), weight.codes.dtype == CODES
    assert rows <= BLOCK_B
    assert len(counters) >= tiles
    assert (parts_SBN is None) == (config.splits == 1)
    eight_bit_kernel[(tiles, config.splits)](
        x_ptr=x_BK,
        codes_ptr=weight.codes.view(torch.uint8) if is_e4m3 else weight.codes,
        scale_ptr=weight.scale,
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
        codes_stride=weight.codes.stride(0),
        a_stride=a_RK.stride(0),
        sb_stride=sb_NR.stride(0),
        out_stride=out_BN.stride(0),
        SPANS=spans,
        RANKS=rank_width(spans),
        E4M3=is_e4m3,
        BLOCK_B=BLOCK_B,
        BLOCK_N=config.block_n,
        BLOCK_K=config.block_k,
        SPLITS=config.splits,
        HAS_BIAS=bias_N is not None,
        PRECISION="interpreted" if interpreted() else "tf32",
        num_warps=config.warps,
        num_stages=config.stages,
    )


def rank_width(spans: tuple[tuple[int, int, int, int], ...]) -> int:
    """Return the ranks of an adapter that a program computes, padding included."""
    return int(triton.next_power_of_2(max((span[3] for span in spans), default=16)))
