"""The experts' narrow products in plain PyTorch: the definition of the kernels' results, and the path without a GPU.

Shapes: P sorted rows, C columns, R ranks, E experts.
"""

from __future__ import annotations

import torch

from burnish_kernels.grouped_linear.reference import rows_read
from burnish_kernels.moe_sort.order import ExpertOrder


def project(
    x: torch.Tensor, matrix_ERC: torch.Tensor, order: ExpertOrder, out_PR: torch.Tensor, *, by_token: bool
) -> None:
    """Fill `out_PR`; see `op.project`."""
    x_PC = x[rows_read(order, by_token=by_token)]
    edges = order.offsets.tolist()
    for expert, matrix_RC in enumerate(matrix_ERC):
        own = slice(edges[expert], edges[expert + 1])
        out_PR[own] = x_PC[own] @ matrix_RC.t()


def outer_accumulate(
    p_PR: torch.Tensor,
    q: torch.Tensor,
    order: ExpertOrder,
    out_ERC: torch.Tensor,
    *,
    scale: float,
    by_token: bool,
    weights_Tk: torch.Tensor | None = None,
) -> None:
    """Add to `out_ERC`; see `op.outer_accumulate`."""
    q_PC = q[rows_read(order, by_token=by_token)].to(out_ERC.dtype)
    p_PR = p_PR.to(out_ERC.dtype)
    if weights_Tk is not None:
        p_PR = p_PR * weights_Tk.view(-1)[order.order.long()][:, None].to(out_ERC.dtype)
    edges = order.offsets.tolist()
    for expert, sums_RC in enumerate(out_ERC):
        own = slice(edges[expert], edges[expert + 1])
        sums_RC.add_(p_PR[own].t() @ q_PC[own], alpha=scale)
