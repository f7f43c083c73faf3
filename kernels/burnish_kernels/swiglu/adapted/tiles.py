"""Divide the gated activation with adapter products into programs: plain arithmetic, no torch.

The choice depends on shapes and dtype alone, never on the device, so that equal inputs give equal bits everywhere. The
memory plan counts the partial sums of the same division.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

MAX_RANK = 64  # largest rank of an adapter; past it the sums take the registers that the activation needs
PROGRAMS = 792  # two rounds of three on every multiprocessor of an H100, three rounds of two on that of an RTX 4090
_FEWEST_TOKENS = 8192  # with fewer, programs of whole rows leave large cards idle; a second pass costs less
_FEWEST_BLOCKS = 4  # blocks of tokens in a split; with fewer, writing the partial sums costs more than the products


class AdaptedTile(NamedTuple):
    """Block sizes and launch options.

    Attributes:
        T: number of tokens.
        C: number of columns of I.
        warps: warps of a program.
        stages: depth of the software pipeline.
    """

    T: int
    C: int
    warps: int
    stages: int


class BackwardPlan(NamedTuple):
    """The division of the backward pass into programs.

    Attributes:
        tile: tile of a program.
        splits: number of parts of the tokens.
        tokens: tokens of a part; the last may have fewer.
    """

    tile: AdaptedTile
    splits: int
    tokens: int


def can_fuse(ranks: Sequence[int], dtype: torch.dtype) -> bool:
    """Return whether the kernels do adapters of these (padded) ranks; 0 for one that is not there.

    Args:
        ranks: ranks of the down, gate and up projections' adapters, or of the down projection's alone.
        dtype: dtype of the activations.
    """
    return 0 < max(ranks, default=0) <= MAX_RANK and dtype.is_floating_point and dtype.itemsize in (2, 4)


def fills(tokens: int) -> bool:
    """Return whether so many tokens are enough for the forward kernel, each program of which does whole rows."""
    return tokens >= _FEWEST_TOKENS


def rank_block(ranks: int) -> int:
    """Return the next power of two, at least 16; 0 for none."""
    return ranks and max(16, 1 << (ranks - 1).bit_length())


def backward_tile(width: int, ranks: Sequence[int], *, largest: bool = False) -> AdaptedTile:
    """Return the tile of the backward pass by the ranks of the three adapters.

    Args:
        width: bytes of a number of the activations.
        ranks: padded ranks.
        largest: whether rows' largest magnitudes are found as well: a smaller tile has the registers for that.
    """
    if width == 4:
        return AdaptedTile(T=16, C=64, warps=8, stages=2)
    if max(ranks) <= 16 and not largest:
        return AdaptedTile(T=32, C=128, warps=4, stages=2)
    return AdaptedTile(T=32, C=64, warps=4, stages=2 if max(ranks) <= 32 else 3)


def forward_tile(width: int, ranks: int) -> AdaptedTile:
    """Return the tile of the forward pass by the bytes of a number and the rank."""
    if width == 4:
        return AdaptedTile(T=32, C=32, warps=4, stages=3)
    if ranks <= 16:
        return AdaptedTile(T=16, C=256, warps=4, stages=2)
    return AdaptedTile(T=16, C=128, warps=4, stages=3)


def backward_plan(tokens: int, size: int, width: int, ranks: Sequence[int], *, largest: bool = False) -> BackwardPlan:
    """Divide the tokens into parts so that the grid fills a device, and none is empty.

    Args:
        tokens: number of tokens.
        size: columns of the activation.
        width: bytes of a number of the activations.
        ranks: padded ranks of the three adapters.
        largest: whether rows' largest magnitudes are found as well.
    """
    tile = backward_tile(width, ranks, largest=largest)
    blocks = _blocks(tokens, tile.T)
    splits = max(1, min(PROGRAMS // _blocks(size, tile.C), blocks // _FEWEST_BLOCKS))
    share = _blocks(blocks, splits) * tile.T
    return BackwardPlan(tile, _blocks(tokens, share), share)


def _blocks(size: int, block: int) -> int:
    return -(size // -block)
