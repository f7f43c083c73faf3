"""Gather rows of a table: validate, allocate, choose. Triton on CUDA (or in its interpreter), else the reference.

The table may stand in page-locked host memory while everything else is on the GPU: the kernel then reads only the rows
that are asked for over the link, as part of a captured graph, and no copy of the table is ever made.

Shapes: V rows of the table, H columns, T rows asked for.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.gather import reference


def gather_rows(table_VH: torch.Tensor, ids_T: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the table's rows `ids_T`, in that order.

    Args:
        table_VH: table `[V, H]`, rows may be strided, on the device of the ids or in page-locked host memory.
        ids_T: row numbers `[T]` int32 or int64, each at least 0 and under V; not checked on a GPU.
        out: tensor `[T, H]` of the table's type to write to, rows may be strided. Allocated if None.

    Returns:
        The rows `[T, H]`.

    Raises:
        ValueError: Shapes, types or devices do not fit.
    """
    if table_VH.ndim != 2 or table_VH.stride(1) != 1:
        raise ValueError(f"the table must be [V, H] with its columns side by side, not {tuple(table_VH.shape)}")
    if ids_T.ndim != 1 or ids_T.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"ids must be [T] int32 or int64, not {tuple(ids_T.shape)} {ids_T.dtype}")
    if table_VH.device != ids_T.device and not (ids_T.is_cuda and table_VH.is_pinned()):
        raise ValueError(f"the table is on {table_VH.device} and not page-locked, the ids are on {ids_T.device}")
    shape = (len(ids_T), table_VH.shape[1])
    if out is None:
        out = torch.empty(shape, dtype=table_VH.dtype, device=ids_T.device)
    if out.shape != shape or out.dtype != table_VH.dtype or out.device != ids_T.device or out.stride(1) != 1:
        raise ValueError(f"out must be {shape} {table_VH.dtype} on {ids_T.device}, not {tuple(out.shape)} {out.dtype}")
    if not use_kernels(ids_T):
        return out.copy_(reference.gather_rows(table_VH, ids_T))
    from burnish_kernels.gather.kernel import launch_gather

    if len(ids_T):
        launch_gather(table_VH, ids_T, out)
    return out
