"""Rows of a table in plain PyTorch."""

from __future__ import annotations

import torch


def gather_rows(table_VH: torch.Tensor, ids_T: torch.Tensor) -> torch.Tensor:
    """Return the table's rows `ids_T`, `[T, H]`, in that order."""
    return table_VH.index_select(0, ids_T)
