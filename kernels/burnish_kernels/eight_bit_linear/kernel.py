"""The 8-bit product in Triton; the adapter's 16-bit product follows in the same fp32 accumulator, after the scales.

INT8 operands add up exactly in int32 before.

Launchers assert and never allocate. Row offsets are int64.

Shapes: T tokens, K columns of the reduction, N outputs, R ranks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from burnish_kernels.adapter_arguments import adapter_arguments
from burnish_kernels.dispatch import interpreted
from burnish_kernels.eight_bit_linear.quantize.kernel import kernel_codes, operand, rotated_columns
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.eight_bit_linear.tiles import EightBitTile, rank_block, short_columns
from burnish_kernels.lora_linear.kernel import dot

_ROTATED_COLUMNS = tl.constexpr(64)
_ROOT_HALF = tl.constexpr(0.5**0.5)


@triton.jit
def tile_at(number, rows, blocks, GROUP: tl.constexpr):
    """Return the place of a tile in the grid of tiles, by its number.

    Tiles of GROUP rows of the grid are computed one block of outputs after the other, so that those which run at a time
    share their weights and their inputs through the second-level cache.

    Args:
        number: number of the tile.
        rows: tiles along the tokens.
        blocks: tiles along the outputs.
        GROUP: rows of the grid that share their weights.

    Returns:
        The row and the block of outputs.
    """
    group = number // (GROUP * blocks)
    inner = number - group * GROUP * blocks
    height = tl.minimum(rows - group * GROUP, GROUP)
    return group * GROUP + inner % height, inner // height


@triton.jit
def add_adapter(
    sums, adapter, own_token, output, N, BLOCK_R: tl.constexpr, ONE_BLOCK: tl.constexpr, INTERPRETED: tl.constexpr
):
    """Return the sums of a tile plus the adapter's product.

    With ONE_BLOCK there is no loop over the ranks, so that the compiler may load them before it scales the sums.

    Args:
        sums: sums of the tile, fp32.
        adapter: narrow_ptr, adapter_ptr, R, narrow_stride, adapter_output and adapter_rank of the kernel.
        own_token: rows of the tile, all of which exist.
        output: outputs of the tile.
        N: number of outputs that exist.
        BLOCK_R: ranks multiplied at a time.
        ONE_BLOCK: whether these are all.
        INTERPRETED: whether Triton's interpreter runs it.
    """
    narrow_ptr, adapter_ptr, R, narrow_stride, adapter_output, adapter_rank = adapter
    narrow_at = narrow_ptr + own_token.to(tl.int64)[:, None] * narrow_stride
    adapter_at = adapter_ptr + output.to(tl.int64)[None, :] * adapter_output
    own = (output < N)[None, :]
    if ONE_BLOCK:
        sums = _add_ranks(sums, narrow_at, adapter_at, own, 0, R, adapter_rank, BLOCK_R, INTERPRETED)
    else:
        for first in tl.range(0, R, BLOCK_R, num_stages=1):
            sums = _add_ranks(sums, narrow_at, adapter_at, own, first, R, adapter_rank, BLOCK_R, INTERPRETED)
    return sums


@triton.jit
def _add_ranks(
    sums, narrow_at, adapter_at, own, first, R, adapter_rank, BLOCK_R: tl.constexpr, INTERPRETED: tl.constexpr
):
    rank = first + tl.arange(0, BLOCK_R)
    narrow = tl.load(narrow_at + rank[None, :], mask=(rank < R)[None, :], other=0.0)
    # Outputs are masked rather than clamped: where they lie side by side they are then read some at a time.
    adapter = tl.load(adapter_at + rank[:, None] * adapter_rank, mask=(rank < R)[:, None] & own, other=0.0)
    return dot(narrow, adapter, sums, INTERPRETED)


@triton.jit
def finished(
    sums,
    x_scale_ptr,
    scale_ptr,
    adapter,
    own_token,
    first_output,
    N,
    DTYPE: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    HAS_ADAPTER: tl.constexpr,
    ROTATION: tl.constexpr,
    BLOCK_R: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Return a tile of the result in 16 bits: sums times scales, perhaps rotated, plus the adapter's product.

    Args:
        sums: sums of the tile, int32 or fp32.
        x_scale_ptr: scales of the rows.
        scale_ptr: scales of the outputs, read only with HAS_SCALE.
        adapter: same as for `add_adapter`, read only with HAS_ADAPTER.
        own_token: rows of the tile, all of which exist.
        first_output: first output of the tile.
        N: number of outputs that exist.
        DTYPE: type of the result.
        HAS_SCALE: whether outputs have scales.
        HAS_ADAPTER: whether there is an adapter.
        ROTATION: outputs of a block that is rotated; 0: none.
        BLOCK_R: ranks multiplied at a time.
        ONE_BLOCK: whether these are all.
        INTERPRETED: whether Triton's interpreter runs it.
    """
    output = first_output + tl.arange(0, sums.shape[1])
    sums = sums.to(tl.float32) * tl.load(x_scale_ptr + own_token)[:, None]
    if HAS_SCALE:
        sums *= tl.load(scale_ptr + tl.minimum(output, N - 1))[None, :]
    if ROTATION:
        return _rotated(
            sums.to(DTYPE),
            adapter,
            own_token,
            first_output,
            N,
            HAS_ADAPTER,
            ROTATION,
            BLOCK_R,
            ONE_BLOCK,
            INTERPRETED,
        )
    else:  # noqa: RET505  Triton compiles what follows a return, and both must then have one type
        if HAS_ADAPTER:
            sums = add_adapter(sums, adapter, own_token, output, N, BLOCK_R, ONE_BLOCK, INTERPRETED)
        return sums.to(DTYPE)


@triton.jit
def _rotated(
    tile,
    adapter,
    own_token,
    first_output,
    N,
    HAS_ADAPTER: tl.constexpr,
    ROTATION: tl.constexpr,
    BLOCK_R: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Return a tile in 16 bits rotated, plus the adapter's product, in 16 bits again; see `finished`.

    In 16 bits the tile takes half of the registers that its sums had, and on Hopper it is multiplied from there. The
    other half has the sums of 64 columns at a time. A block of 64 is rotated by 32: the halves of what is multiplied
    with Sylvester's matrix are sum and difference of the halves' products with the smaller one, whose operand takes a
    quarter of the registers.
    """
    columns: tl.constexpr = tile.shape[1]
    left, right = halves(tile)
    if columns > _ROTATED_COLUMNS:
        middle = first_output + columns // 2
        left = _rotated(
            left, adapter, own_token, first_output, N, HAS_ADAPTER, ROTATION, BLOCK_R, ONE_BLOCK, INTERPRETED
        )
        right = _rotated(right, adapter, own_token, middle, N, HAS_ADAPTER, ROTATION, BLOCK_R, ONE_BLOCK, INTERPRETED)
        return joined(left, right)
    else:  # noqa: RET505  as above
        left = rotated_columns(left, min(ROTATION, 32), tile.shape[0], columns // 2, INTERPRETED)
        right = rotated_columns(right, min(ROTATION, 32), tile.shape[0], columns // 2, INTERPRETED)
        if columns // 2 < ROTATION:
            left, right = (left + right) * _ROOT_HALF, (left - right) * _ROOT_HALF
        sums = joined(left, right)
        if HAS_ADAPTER:
            output = first_output + tl.arange(0, columns)
            sums = add_adapter(sums, adapter, own_token, output, N, BLOCK_R, ONE_BLOCK, INTERPRETED)
        return sums.to(tile.dtype)


@triton.jit
def halves(x):
    """Return the left and the right half of a tile; each thread keeps what it has of it."""
    rows: tl.constexpr = x.shape[0]
    columns: tl.constexpr = x.shape[1]
    return tl.split(tl.permute(tl.reshape(x, [rows, 2, columns // 2]), (0, 2, 1)))


@triton.jit
def joined(left, right):
    """Return the tile whose halves are given."""
    rows: tl.constexpr = left.shape[0]
    columns: tl.constexpr = 2 * left.shape[1]
    return tl.reshape(tl.permute(tl.join(left, right), (0, 2, 1)), [rows, columns])


@triton.jit(do_not_specialize=["T"])
def eight_bit_linear_kernel(
    x_ptr,  # [T, K] INT8 or E4M3, in the interpreter bytes
    x_scale_ptr,  # [T] fp32
    weight_ptr,  # [N, K] as x
    scale_ptr,  # [N] fp32, read only with HAS_SCALE
    narrow_ptr,  # [T, R], read only with HAS_ADAPTER
    adapter_ptr,  # [N, R], read only with HAS_ADAPTER
    out_ptr,  # [T, N]
    T,
    N,
    K,
    R,
    x_stride,
    weight_stride,
    narrow_stride,
    adapter_output,
    adapter_rank,
    out_stride,
    HAS_SCALE: tl.constexpr,
    HAS_ADAPTER: tl.constexpr,
    ROTATION: tl.constexpr,  # outputs of a block that is rotated before the adapter is added; 0: none
    EVEN: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_R: tl.constexpr,
    PARTS: tl.constexpr,
    GROUP: tl.constexpr,
    IMPRECISE: tl.constexpr,  # columns summed in Hopper's short accumulator; None: all
    INTERPRETED: tl.constexpr,
):
    """Compute one tile; with EVEN no block of the reduction is partly filled."""
    row, block = tile_at(tl.program_id(0), tl.cdiv(T, BLOCK_T), tl.cdiv(N, BLOCK_N), GROUP)
    token = row * BLOCK_T + tl.arange(0, BLOCK_T)
    output = block * BLOCK_N + tl.arange(0, BLOCK_N)
    own_token, own_output = tl.minimum(token, T - 1), tl.minimum(output, N - 1)  # what exists is read, no more written
    lane = tl.arange(0, BLOCK_K)
    x_at = x_ptr + own_token.to(tl.int64)[:, None] * x_stride + lane[None, :]
    weight_at = weight_ptr + own_output.to(tl.int64)[None, :] * weight_stride + lane[:, None]
    sums = tl.zeros([BLOCK_T, BLOCK_N], tl.int32 if x_ptr.dtype.element_ty == tl.int8 else tl.float32)
    for column in range(0, K, PARTS * BLOCK_K):
        for part in tl.static_range(PARTS):
            at = column + part * BLOCK_K
            if EVEN:
                x, weight = tl.load(x_at + at), tl.load(weight_at + at)
            else:
                inside = lane < K - at
                x = tl.load(x_at + at, mask=inside[None, :], other=0.0)
                weight = tl.load(weight_at + at, mask=inside[:, None], other=0.0)
            left, right = operand(x, INTERPRETED), operand(weight, INTERPRETED)
            # 0 would turn wgmma off on Hopper.
            sums = tl.dot(left, right, sums, max_num_imprecise_acc=IMPRECISE, out_dtype=sums.dtype)
    tile = finished(
        sums,
        x_scale_ptr,
        scale_ptr,
        (narrow_ptr, adapter_ptr, R, narrow_stride, adapter_output, adapter_rank),
        own_token,
        block * BLOCK_N,
        N,
        out_ptr.dtype.element_ty,
        HAS_SCALE,
        HAS_ADAPTER,
        ROTATION,
        BLOCK_R,
        False,
        INTERPRETED,
    )
    out = out_ptr + token.to(tl.int64)[:, None] * out_stride + output[None, :]
    tl.store(out, tile, mask=(token < T)[:, None] & (output < N)[None, :])


class EightBitProduct(NamedTuple):
    """The operands, result and tile of one product, for its launcher.

    Attributes:
        x: quantized rows `[T, K]`.
        weight_NK: codes of the weight, of the type of x.
        scale_N: scale of each row of the weight; None: none.
        narrow_TR: input times the adapter's first matrix; None: no adapter.
        adapter_NR: second matrix of the adapter.
        rotation: outputs of a block that is rotated; 0: none.
        out_TN: tensor to fill.
        tile: configuration.
    """

    x: EightBitRows
    weight_NK: torch.Tensor
    scale_N: torch.Tensor | None
    narrow_TR: torch.Tensor | None
    adapter_NR: torch.Tensor | None
    rotation: int
    out_TN: torch.Tensor
    tile: EightBitTile

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that both kernels take: sizes, scales, adapter and tile."""
        (tokens, columns), outputs, tile = self.x.codes.shape, len(self.weight_NK), self.tile
        assert self.weight_NK.shape[1] == columns
        assert self.out_TN.shape == (tokens, outputs)
        return {
            "x_scale_ptr": self.x.scale,
            "scale_ptr": self.x.scale if self.scale_N is None else self.scale_N,
            "T": tokens,
            "N": outputs,
            "K": columns,
            **adapter_arguments(self.narrow_TR, self.adapter_NR, rank_block),
            "HAS_SCALE": self.scale_N is not None,
            "ROTATION": self.rotation,
            "BLOCK_T": tile.tokens,
            "BLOCK_N": tile.outputs,
            "BLOCK_K": tile.reduction,
            "GROUP": tile.group,
            "IMPRECISE": short_columns(tile, self.x.codes.dtype),
            "INTERPRETED": interpreted(),
            "num_warps": tile.warps,
            "num_stages": tile.stages,
            "maxnreg": tile.registers,
        }

    @property
    def tiles(self) -> int:
        """The number of tiles of the result."""
        tokens, outputs = self.out_TN.shape
        return triton.cdiv(tokens, self.tile.tokens) * triton.cdiv(outputs, self.tile.outputs)


def launch_eight_bit_linear(product: EightBitProduct) -> None:
    """Fill the product's `out_TN`."""
    codes, tile = product.x.codes, product.tile
    assert not tile.persistent
    eight_bit_linear_kernel[(product.tiles,)](
        x_ptr=kernel_codes(codes),
        weight_ptr=kernel_codes(product.weight_NK),
        out_ptr=product.out_TN,
        x_stride=codes.stride(0),
        weight_stride=product.weight_NK.stride(0),
        out_stride=product.out_TN.stride(0),
        EVEN=codes.shape[1] % (tile.parts * tile.reduction) == 0,
        PARTS=tile.parts,
        **product.arguments(),
    )
