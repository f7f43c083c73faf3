"""A projection on few tokens in Triton, which reads every weight once.

A program computes some outputs of all tokens over a part of the inputs. Of several tokens, it also computes x Aᵀ of the
one adapter that its outputs have, over the same inputs: products are linear, so the parts of both add up. Where several
programs share the inputs, the one that ends last adds the parts in their order, so that the same inputs give the same
bits. Of one token, a launch before computes x Aᵀ for all.

The counters of ended programs must be zero before; each is zero again afterwards. Launchers assert and never allocate.

Shapes: B tokens, N outputs, K inputs, R ranks, S splits.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from burnish_kernels.attention.kernel import dot
from burnish_kernels.decode_linear.config import DecodeConfig
from burnish_kernels.dispatch import interpreted
from burnish_kernels.kernel_overlap import launch_options, let_next_begin, wait_for_earlier

MOST_NARROW_INPUTS = 16384
"""Most inputs of a step of the loop of `narrow_kernel`, which seldom has a second one."""


@triton.jit
def span_of(n0, SPANS: tl.constexpr):
    """First rank and number of ranks of the adapter that an output has; no ranks where it has none."""
    first = 0
    count = 0
    for index in tl.static_range(len(SPANS)):
        own = (n0 >= SPANS[index][0]) & (n0 < SPANS[index][1])
        first = tl.where(own, SPANS[index][2], first)
        count = tl.where(own, SPANS[index][3], count)
    return first, count


@triton.jit
def _store(total, row, output, inside, N, bias_ptr, out_ptr, out_stride, HAS_BIAS: tl.constexpr):
    if HAS_BIAS:
        total += tl.load(bias_ptr + output, mask=output < N, other=0.0).to(tl.float32)[None, :]
    at = row.to(tl.int64)[:, None] * out_stride + output[None, :]
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def finish(
    total,
    row,
    output,
    B,
    N,
    bias_ptr,
    out_ptr,
    parts_ptr,
    counters_ptr,
    out_stride,
    SPLITS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    """Store the outputs; of several splits, the last to end adds up all."""
    inside = (row < B)[:, None] & (output < N)[None, :]
    if SPLITS == 1:
        _store(total, row, output, inside, N, bias_ptr, out_ptr, out_stride, HAS_BIAS)
    else:
        at = row[:, None] * N + output[None, :]
        tl.store(parts_ptr + tl.program_id(1) * B * N + at, total, mask=inside)
        tl.debug_barrier()
        ended = tl.atomic_add(counters_ptr + tl.program_id(0), 1, sem="acq_rel")
        if ended == SPLITS - 1:
            whole = tl.zeros_like(total)
            for split in range(SPLITS):
                whole += tl.load(parts_ptr + split * B * N + at, mask=inside, other=0.0, cache_modifier=".cg")
            tl.store(counters_ptr + tl.program_id(0), 0)
            _store(whole, row, output, inside, N, bias_ptr, out_ptr, out_stride, HAS_BIAS)


@triton.jit
def _dot_with_vector(x_ptr, at_weight, weight, inside, column, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Multiply rows with one token; `weight` are their first columns, which were loaded before."""
    total = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(x_ptr + start + column, mask=start + column < K, other=0.0).to(tl.float32)
        later = start + BLOCK_K
        there = inside[:, None] & (later + column < K)[None, :]
        following = tl.load(at_weight + later, mask=there, other=0.0)
        total += tl.sum(weight.to(tl.float32) * x[None, :], axis=1)
        weight = following
    return total


@triton.jit
def narrow_kernel(
    x_ptr,  # [1, K]
    a_ptr,  # [R, K]
    narrow_ptr,  # [R] fp32
    K,
    R,
    a_stride,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Compute x Aᵀ of one token for all adapters."""
    rank = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside, column = rank < R, tl.arange(0, BLOCK_K)
    let_next_begin(OVERLAPS)
    at_a = a_ptr + rank.to(tl.int64)[:, None] * a_stride + column[None, :]
    a = tl.load(at_a, mask=inside[:, None] & (column < K)[None, :], other=0.0)
    wait_for_earlier(OVERLAPS)
    total = _dot_with_vector(x_ptr, at_a, a, inside, column, K, BLOCK_N, BLOCK_K)
    tl.store(narrow_ptr + rank, total, mask=inside)


@triton.jit
def vector_kernel(
    x_ptr,  # [1, K]
    weight_ptr,  # [N, K + R]: [W, sB]
    narrow_ptr,  # [R] fp32, read only with SPANS
    bias_ptr,  # [N], read only with HAS_BIAS
    out_ptr,  # [1, N]
    N,
    K,
    weight_stride,
    SPANS: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Multiply one token, without matrix units, and add its part of the adapters.

    Until the launch before it has ended, it reads weights alone.
    """
    n0 = tl.program_id(0) * BLOCK_N
    output = n0 + tl.arange(0, BLOCK_N)
    inside, column = output < N, tl.arange(0, BLOCK_K)
    let_next_begin(OVERLAPS)
    at_weight = weight_ptr + output.to(tl.int64)[:, None] * weight_stride + column[None, :]
    weight = tl.load(at_weight, mask=inside[:, None] & (column < K)[None, :], other=0.0)
    wait_for_earlier(OVERLAPS)
    total = _dot_with_vector(x_ptr, at_weight, weight, inside, column, K, BLOCK_N, BLOCK_K)
    if len(SPANS) > 0:
        first, count = span_of(n0, SPANS)
        rank = tl.arange(0, RANKS)
        at_sb = weight_ptr + output.to(tl.int64)[:, None] * weight_stride + (K + first + rank)[None, :]
        sb = tl.load(at_sb, mask=inside[:, None] & (rank < count)[None, :], other=0.0).to(tl.float32)
        narrow = tl.load(narrow_ptr + first + rank, mask=rank < count, other=0.0)
        total += tl.sum(sb * narrow[None, :], axis=1)
    if HAS_BIAS:
        total += tl.load(bias_ptr + output, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + output, total.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["B"])
def decode_kernel(
    x_ptr,  # [B, K]
    weight_ptr,  # [N, K]
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
    weight_stride,
    a_stride,
    sb_stride,
    out_stride,
    SPANS: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Multiply with weights in the type of x."""
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
    at_weight = output.to(tl.int64)[:, None] * weight_stride
    at_a = (first + rank).to(tl.int64)[:, None] * a_stride
    for start in range(begin, end, BLOCK_K):
        k = start + column
        there = (k < end)[None, :]
        x = tl.load(x_ptr + at_x + k[None, :], mask=(row < B)[:, None] & there, other=0.0)
        weight = tl.load(weight_ptr + at_weight + k[None, :], mask=(output < N)[:, None] & there, other=0.0)
        total = dot(x, tl.trans(weight), total, PRECISION)
        if len(SPANS) > 0:
            a = tl.load(a_ptr + at_a + k[None, :], mask=(rank < count)[:, None] & there, other=0.0)
            narrow = dot(x, tl.trans(a), narrow, PRECISION)
    if len(SPANS) > 0:
        at_sb = output.to(tl.int64)[:, None] * sb_stride + (first + rank)[None, :]
        sb = tl.load(sb_ptr + at_sb, mask=(output < N)[:, None] & (rank < count)[None, :], other=0.0)
        total = dot(narrow.to(sb.dtype), tl.trans(sb), total, PRECISION)
    finish(total, row, output, B, N, bias_ptr, out_ptr, parts_ptr, counters_ptr, out_stride, SPLITS, HAS_BIAS)


def narrow_sizes(inputs: int) -> dict[str, int]:
    """Return the sizes of a program of `narrow_kernel`."""
    block = min(triton.next_power_of_2(inputs), MOST_NARROW_INPUTS)
    return {"BLOCK_N": 1, "BLOCK_K": block, "num_warps": 4 if block <= 4096 else 8}


def launch_vector(
    x_BK: torch.Tensor,
    matrix: torch.Tensor,
    spans: tuple[tuple[int, int, int, int], ...],
    *,
    bias_N: torch.Tensor | None,
    out_BN: torch.Tensor,
    narrow_R: torch.Tensor | None,
    config: DecodeConfig,
) -> None:
    """Fill `out_BN` of one token, by way of `narrow_R` where there are adapters."""
    inputs, outputs, ranks = x_BK.shape[1], out_BN.shape[1], len(matrix) - out_BN.shape[1]
    assert len(x_BK) == len(out_BN) == 1
    assert (narrow_R is None) == (not spans)
    shared = launch_options(x_BK, 1)
    if narrow_R is not None:
        narrow_kernel[(ranks,)](
            x_ptr=x_BK,
            a_ptr=matrix[outputs:],
            narrow_ptr=narrow_R,
            K=inputs,
            R=ranks,
            a_stride=matrix.stride(0),
            **narrow_sizes(inputs),
            num_stages=1,
            **shared,
        )
    vector_kernel[(triton.cdiv(outputs, config.block_n),)](
        x_ptr=x_BK,
        weight_ptr=matrix,
        narrow_ptr=narrow_R,
        bias_ptr=bias_N,
        out_ptr=out_BN,
        N=outputs,
        K=inputs,
        weight_stride=matrix.stride(0),
        SPANS=spans,
        RANKS=triton.next_power_of_2(max((span[3] for span in spans), default=16)),
        BLOCK_N=config.block_n,
        BLOCK_K=config.block_k,
        HAS_BIAS=bias_N is not None,
        num_warps=config.warps,
        num_stages=1,
        **shared,
    )


def launch(
    x_BK: torch.Tensor,
    matrix: torch.Tensor,
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
    tiles = triton.cdiv(outputs, config.block_n)
    assert len(counters) >= tiles
    assert (parts_SBN is None) == (config.splits == 1)
    rounded = "interpreted" if interpreted() else "tf32"
    shared: dict[str, Any] = {
        "x_ptr": x_BK,
        "x_stride": x_BK.stride(0),
        "BLOCK_B": max(16, triton.next_power_of_2(rows)),
        "PRECISION": "ieee" if x_BK.dtype == torch.float32 else rounded,
        "weight_ptr": matrix,
        "weight_stride": matrix.stride(0),
        "a_ptr": matrix[outputs:],
        "sb_ptr": matrix[:, inputs:],
        "bias_ptr": bias_N,
        "out_ptr": out_BN,
        "parts_ptr": parts_SBN,
        "counters_ptr": counters,
        "B": rows,
        "N": outputs,
        "K": inputs,
        "a_stride": matrix.stride(0),
        "sb_stride": matrix.stride(0),
        "out_stride": out_BN.stride(0),
        "SPANS": spans,
        "RANKS": triton.next_power_of_2(max((span[3] for span in spans), default=16)),
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "SPLITS": config.splits,
        "HAS_BIAS": bias_N is not None,
        "num_warps": config.warps,
        "num_stages": config.stages,
    }
    decode_kernel[(tiles, config.splits)](**shared)
