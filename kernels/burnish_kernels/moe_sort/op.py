"""Sorting by expert: validate, allocate, choose. Triton on CUDA (or in its interpreter), the reference elsewhere.

Shapes: T tokens, k slots of a token, P = T·k positions, E experts.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.moe_sort import reference
from burnish_kernels.moe_sort.order import TILE_ROWS, ExpertOrder, empty_order

__all__ = ["TILE_ROWS", "ExpertOrder", "empty_order", "sort_by_expert"]

MOST_POSITIONS = 1 << 26


def sort_by_expert(
    ids_Tk: torch.Tensor, experts: int, *, tile_rows: int = TILE_ROWS, out: ExpertOrder | None = None
) -> ExpertOrder:
    """Sort positions by their expert, stably, and cut each expert's rows into tiles.

    Args:
        ids_Tk: experts of each token `[T, k]` int32, each at least 0 and under E; not checked.
        experts: number of experts, E.
        tile_rows: most rows of a tile, a power of two.
        out: order to write to. Allocated if None.

    Returns:
        The order. All its values stay on the device.

    Raises:
        ValueError: Shapes, types or sizes do not fit.
    """
    if ids_Tk.ndim != 2 or ids_Tk.dtype != torch.int32 or not ids_Tk.is_contiguous() or not ids_Tk.shape[1]:
        raise ValueError(f"ids must be [T, k] int32 and contiguous, not {tuple(ids_Tk.shape)} {ids_Tk.dtype}")
    if experts < 1 or tile_rows < 1 or tile_rows & (tile_rows - 1):
        raise ValueError(f"there is at least one expert, and a tile has 2^n rows, not {experts} and {tile_rows}")
    if ids_Tk.numel() > MOST_POSITIONS:
        raise ValueError(f"at most {MOST_POSITIONS} positions can be sorted, not {ids_Tk.numel()}")
    slots = ids_Tk.shape[1]
    if out is None:
        out = empty_order(ids_Tk.numel(), experts, slots, tile_rows=tile_rows, device=ids_Tk.device)
    if (out.positions, out.experts, out.slots, out.tile_rows) != (ids_Tk.numel(), experts, slots, tile_rows):
        raise ValueError(
            f"out is for {out.positions} positions, {out.experts} experts, {out.slots} slots and tiles of "
            f"{out.tile_rows} rows, not for {ids_Tk.numel()}, {experts}, {slots} and {tile_rows}"
        )
    if not use_kernels(ids_Tk):
        reference.sort(ids_Tk.view(-1), out)
        return out
    from burnish_kernels.moe_sort.kernel import CHUNK, launch_sort

    counts_EB = ids_Tk.new_empty(experts, -(ids_Tk.numel() // -CHUNK))
    launch_sort(ids_Tk.view(-1), counts_EB, ids_Tk.new_empty(experts), out)
    return out
