"""Sorting by expert in plain PyTorch: the definition of the kernels' result, and the path without a GPU.

Shapes: P positions, E experts, M tiles.
"""

from __future__ import annotations

import torch

from burnish_kernels.moe_sort.order import ExpertOrder


def sort(ids_P: torch.Tensor, out: ExpertOrder) -> None:
    """Fill `out`; see `op.sort_by_expert`."""
    experts, rows = out.experts, out.tile_rows
    out.order.copy_(torch.argsort(ids_P, stable=True))
    out.inverse[out.order.long()] = torch.arange(len(ids_P), dtype=torch.int32, device=ids_P.device)
    counts = torch.bincount(ids_P, minlength=experts)
    out.offsets.copy_(_starts(counts))
    out.tile_starts.copy_(_starts((counts + rows - 1) // rows))
    out.tiles[:, 0], out.tiles[:, 1] = -1, 0
    for expert in range(experts):
        first, last = int(out.tile_starts[expert]), int(out.tile_starts[expert + 1])
        out.tiles[first:last, 0] = expert
        out.tiles[first:last, 1] = out.offsets[expert] + rows * torch.arange(last - first, device=ids_P.device)


def _starts(counts_E: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(counts_E.cumsum(0), (1, 0))
