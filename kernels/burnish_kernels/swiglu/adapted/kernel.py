"""Gated activation with the products of the adapters around it, so that its wide tensors pass memory once.

Forward: a program takes some whole rows, and sums up xAᵀ of the activation while it writes the activation.

Backward: a program takes a block of columns for a share of the tokens. It multiplies the tensors of each tile (the
activation again, and both gradients) with the adapters' narrow factors while the tile is in registers. The sums over
its tokens go to a workspace in fp32, and a second kernel adds the parts up in a fixed order: no atomics, so the same
inputs give the same bits. (Rows' largest magnitudes are found by atomics, but are the same in any order.) Launchers
assert and never allocate; `tiles` computes the workspace.

Shapes: T tokens, I intermediate size, J = 2I (gate, then up), R ranks of one adapter, S parts of the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.quantize.kernel import magnitude
from burnish_kernels.lora_linear.kernel import dot
from burnish_kernels.swiglu.adapted.tiles import BackwardPlan, forward_tile, rank_block
from burnish_kernels.swiglu.kernel import activation_share, activation_slope


@triton.jit
def _opaque(x, INTERPRETED: tl.constexpr):
    """Return the same values in a form that the compiler cannot compute twice.

    It would compute all of the activation once in the layout of the store and once in that of the matrix unit, rather
    than pass results from one to the other through shared memory; then arithmetic would be the bound instead of memory.
    """
    if x.dtype.primitive_bitwidth == 16 and not INTERPRETED:
        bits = x.to(tl.int16, bitcast=True)
        bits = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [bits], dtype=tl.int16, is_pure=False, pack=2)
        x = bits.to(x.dtype, bitcast=True)
    return x


@triton.jit
def _narrow(p_ptr, p_stride, token, lane, end, ranks, RANKS: tl.constexpr):
    """Load a block [BLOCK_T, RANKS] of a narrow factor."""
    rank = tl.arange(0, RANKS)
    return tl.load(
        p_ptr + token.to(tl.int64) * p_stride + (lane[:, None] * p_stride + rank[None, :]),
        mask=(token + lane < end)[:, None] & (rank < ranks)[None, :],
        other=0.0,
    )


@triton.jit
def _store_part(parts_ptr, first_row, sums, column, size, ranks, RANKS: tl.constexpr):
    rank = tl.arange(0, RANKS)
    tl.store(
        parts_ptr + (first_row + rank).to(tl.int64)[:, None] * size + column[None, :],
        sums,
        mask=(rank < ranks)[:, None] & (column < size)[None, :],
    )


@triton.jit
def _largest(values, factor_ptr, first, column, size, HAS_FACTOR: tl.constexpr):
    """Return the largest magnitude of each row of a tile times the columns' factors, fp32."""
    wide = values.to(tl.float32)
    if HAS_FACTOR:
        wide *= tl.load(factor_ptr + first + column, mask=column < size, other=0.0)[None, :]
    return tl.max(magnitude(wide), axis=1)


@triton.jit
def _raise_largest(largest_at, dgate, dup, factor_ptr, column, size, own, HAS_FACTOR: tl.constexpr):
    """Raise the rows' largest magnitudes to those of a tile. They are compared as the bits of numbers from zero on."""
    gate = _largest(dgate, factor_ptr, 0, column, size, HAS_FACTOR)
    top = tl.maximum(gate, _largest(dup, factor_ptr, size, column, size, HAS_FACTOR))
    tl.atomic_max(largest_at, top.to(tl.int32, bitcast=True), mask=own)


@triton.jit(do_not_specialize=["T"])
def adapted_backward_kernel(
    dact_ptr,  # [T, I]
    gate_ptr,  # [T, I]
    up_ptr,  # [T, I], gate's stride
    dgate_ptr,  # [T, I]
    dup_ptr,  # [T, I], dgate's stride
    act_p_ptr,  # [T, act_ranks]
    gate_p_ptr,  # [T, gate_ranks]
    up_p_ptr,  # [T, up_ranks]
    parts_ptr,  # [S, act_ranks + gate_ranks + up_ranks, I] fp32
    factor_ptr,  # [2I] fp32, read only with HAS_FACTOR
    largest_ptr,  # [T] int32: the bits of fp32 from zero on; raised only with HAS_LARGEST
    T,
    size,
    dact_stride,
    gate_stride,
    dgate_stride,
    act_p_stride,
    gate_p_stride,
    up_p_stride,
    act_ranks,
    gate_ranks,
    up_ranks,
    split_tokens,
    ACTIVATION: tl.constexpr,
    ACT_RANKS: tl.constexpr,  # blocks; 0: no such adapter
    GATE_RANKS: tl.constexpr,
    UP_RANKS: tl.constexpr,
    HAS_LARGEST: tl.constexpr,
    HAS_FACTOR: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
    STAGES: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Compute the gradients of a block of columns for a share of the tokens, and their sums with the narrow factors."""
    column = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    lane = tl.arange(0, BLOCK_T)
    start = tl.program_id(1) * split_tokens
    end = tl.minimum(start + split_tokens, T)
    own_columns = (column < size)[None, :]
    dact_tile = lane[:, None] * dact_stride + column[None, :]
    gate_tile = lane[:, None] * gate_stride + column[None, :]
    dgate_tile = lane[:, None] * dgate_stride + column[None, :]
    dtype = dgate_ptr.dtype.element_ty
    if ACT_RANKS > 0:
        act_sums = tl.zeros([ACT_RANKS, BLOCK_C], tl.float32)
    if GATE_RANKS > 0:
        gate_sums = tl.zeros([GATE_RANKS, BLOCK_C], tl.float32)
    if UP_RANKS > 0:
        up_sums = tl.zeros([UP_RANKS, BLOCK_C], tl.float32)
    for done in tl.range(0, end - start, BLOCK_T, num_stages=STAGES):
        token = start + done
        far = token.to(tl.int64)
        inside = (token + lane < end)[:, None] & own_columns
        gate = tl.load(gate_ptr + far * gate_stride + gate_tile, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + far * gate_stride + gate_tile, mask=inside, other=0.0).to(tl.float32)
        dact = tl.load(dact_ptr + far * dact_stride + dact_tile, mask=inside, other=0.0).to(tl.float32)
        share = activation_share(gate, ACTIVATION)
        # Rounded before they are multiplied: the sums are those of the tensors as they stand in memory.
        dgate = (dact * up * activation_slope(gate, share, ACTIVATION)).to(dtype)
        dup = (dact * (gate * share)).to(dtype)
        dgate, dup = _opaque(dgate, INTERPRETED), _opaque(dup, INTERPRETED)
        tl.store(dgate_ptr + far * dgate_stride + dgate_tile, dgate, mask=inside)
        tl.store(dup_ptr + far * dgate_stride + dgate_tile, dup, mask=inside)
        own = token + lane < end
        if HAS_LARGEST:
            largest_at = largest_ptr + token + lane
            _raise_largest(largest_at, dgate, dup, factor_ptr, column, size, own, HAS_FACTOR)
        if ACT_RANKS > 0:
            p = _narrow(act_p_ptr, act_p_stride, token, lane, end, act_ranks, ACT_RANKS)
            act = _opaque((gate * share * up).to(dtype), INTERPRETED)
            act_sums = dot(tl.trans(p), act, act_sums, INTERPRETED)
        if GATE_RANKS > 0:
            p = _narrow(gate_p_ptr, gate_p_stride, token, lane, end, gate_ranks, GATE_RANKS)
            gate_sums = dot(tl.trans(p), dgate, gate_sums, INTERPRETED)
        if UP_RANKS > 0:
            p = _narrow(up_p_ptr, up_p_stride, token, lane, end, up_ranks, UP_RANKS)
            up_sums = dot(tl.trans(p), dup, up_sums, INTERPRETED)
    first_row = tl.program_id(1) * (act_ranks + gate_ranks + up_ranks)
    if ACT_RANKS > 0:
        _store_part(parts_ptr, first_row, act_sums, column, size, act_ranks, ACT_RANKS)
    if GATE_RANKS > 0:
        _store_part(parts_ptr, first_row + act_ranks, gate_sums, column, size, gate_ranks, GATE_RANKS)
    if UP_RANKS > 0:
        _store_part(parts_ptr, first_row + act_ranks + gate_ranks, up_sums, column, size, up_ranks, UP_RANKS)


@triton.jit(do_not_specialize=["T"])
def adapted_forward_kernel(
    gate_ptr,  # [T, I]
    up_ptr,  # [T, I], the same stride
    a_ptr,  # [R, I]
    act_ptr,  # [T, I]
    out_ptr,  # [T, R]
    T,
    size,
    ranks,
    gate_stride,
    a_stride,
    act_stride,
    out_stride,
    ACTIVATION: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
    STAGES: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Compute the activation of some whole rows, and its product with A."""
    row = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    rank = tl.arange(0, RANKS)
    own_rows, own_ranks = (row < T)[:, None], (rank < ranks)[:, None]
    far = row.to(tl.int64)[:, None]
    gate_rows, up_rows, act_rows = gate_ptr + far * gate_stride, up_ptr + far * gate_stride, act_ptr + far * act_stride
    a_rows = a_ptr + rank.to(tl.int64)[:, None] * a_stride
    sums = tl.zeros([BLOCK_T, RANKS], tl.float32)
    for first in tl.range(0, size, BLOCK_C, num_stages=STAGES):
        column = first + tl.arange(0, BLOCK_C)
        own_columns = (column < size)[None, :]
        gate = tl.load(gate_rows + column[None, :], mask=own_rows & own_columns, other=0.0).to(tl.float32)
        up = tl.load(up_rows + column[None, :], mask=own_rows & own_columns, other=0.0).to(tl.float32)
        a = tl.load(a_rows + column[None, :], mask=own_ranks & own_columns, other=0.0)
        act = _opaque((gate * activation_share(gate, ACTIVATION) * up).to(act_ptr.dtype.element_ty), INTERPRETED)
        tl.store(act_rows + column[None, :], act, mask=own_rows & own_columns)
        sums = dot(act, tl.trans(a), sums, INTERPRETED)
    out = out_ptr + far * out_stride + rank[None, :]
    tl.store(out, sums.to(out_ptr.dtype.element_ty), mask=own_rows & (rank < ranks)[None, :])


def launch_forward(
    gate_up_TJ: torch.Tensor, a_RI: torch.Tensor, act_TI: torch.Tensor, xa_TR: torch.Tensor, activation: str
) -> None:
    """Fill `act_TI` and `xa_TR`."""
    (rows, size), ranks = act_TI.shape, len(a_RI)
    assert gate_up_TJ.shape == (rows, 2 * size)
    assert a_RI.shape == (ranks, size)
    assert xa_TR.shape == (rows, ranks)
    tile = forward_tile(act_TI.dtype.itemsize, ranks)
    adapted_forward_kernel[(triton.cdiv(rows, tile.T),)](
        gate_ptr=gate_up_TJ,
        up_ptr=gate_up_TJ[:, size:],
        a_ptr=a_RI,
        act_ptr=act_TI,
        out_ptr=xa_TR,
        T=rows,
        size=size,
        ranks=ranks,
        gate_stride=gate_up_TJ.stride(0),
        a_stride=a_RI.stride(0),
        act_stride=act_TI.stride(0),
        out_stride=xa_TR.stride(0),
        ACTIVATION=activation,
        RANKS=rank_block(ranks),
        BLOCK_T=tile.T,
        BLOCK_C=tile.C,
        STAGES=tile.stages,
        INTERPRETED=interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def launch_backward(
    *,
    dact_TI: torch.Tensor,
    gate_up_TJ: torch.Tensor,
    dgate_up_TJ: torch.Tensor,
    factors: Sequence[torch.Tensor | None],
    plan: BackwardPlan,
    parts: torch.Tensor,
    activation: str,
    largest_T: torch.Tensor | None = None,
    factor_J: torch.Tensor | None = None,
) -> None:
    """Fill `dgate_up_TJ`, `parts` and, if given, `largest_T`.

    The factors `[T, R]` are those of the activation, of dgate and of dup.
    """
    rows, size = dact_TI.shape
    act_ranks, gate_ranks, up_ranks = (0 if factor is None else factor.shape[1] for factor in factors)
    assert gate_up_TJ.shape == dgate_up_TJ.shape == (rows, 2 * size)
    assert parts.shape == (plan.splits, act_ranks + gate_ranks + up_ranks, size)
    assert plan.splits * plan.tokens >= rows
    act_p_TR, gate_p_TR, up_p_TR = factors
    act_stride, gate_stride, up_stride = (0 if factor is None else factor.stride(0) for factor in factors)
    adapted_backward_kernel[(triton.cdiv(size, plan.tile.C), plan.splits)](
        dact_ptr=dact_TI,
        gate_ptr=gate_up_TJ,
        up_ptr=gate_up_TJ[:, size:],
        dgate_ptr=dgate_up_TJ,
        dup_ptr=dgate_up_TJ[:, size:],
        act_p_ptr=act_p_TR,
        gate_p_ptr=gate_p_TR,
        up_p_ptr=up_p_TR,
        parts_ptr=parts,
        factor_ptr=factor_J,
        largest_ptr=None if largest_T is None else largest_T.zero_().view(torch.int32),
        T=rows,
        size=size,
        dact_stride=dact_TI.stride(0),
        gate_stride=gate_up_TJ.stride(0),
        dgate_stride=dgate_up_TJ.stride(0),
        act_p_stride=act_stride,
        gate_p_stride=gate_stride,
        up_p_stride=up_stride,
        act_ranks=act_ranks,
        gate_ranks=gate_ranks,
        up_ranks=up_ranks,
        split_tokens=plan.tokens,
        ACTIVATION=activation,
        ACT_RANKS=rank_block(act_ranks),
        GATE_RANKS=rank_block(gate_ranks),
        UP_RANKS=rank_block(up_ranks),
        HAS_LARGEST=largest_T is not None,
        HAS_FACTOR=factor_J is not None,
        BLOCK_T=plan.tile.T,
        BLOCK_C=plan.tile.C,
        STAGES=plan.tile.stages,
        INTERPRETED=interpreted(),
        num_warps=plan.tile.warps,
        num_stages=plan.tile.stages,
    )
