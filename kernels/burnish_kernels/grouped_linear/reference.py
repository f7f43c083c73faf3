"""The experts' linear maps in plain PyTorch: the definition of the kernel's result, and the path without a GPU.

Shapes: P sorted rows, O outputs, C columns of the reduction, R ranks, E experts.
"""

from __future__ import annotations

import torch

from burnish_kernels.moe_sort.order import ExpertOrder


def rows_read(order: ExpertOrder, *, gather: bool) -> torch.Tensor | slice:
    """Return which row of the input each sorted row reads."""
    return order.order.long() // order.slots if gather else slice(None)


def grouped_linear(
    x: torch.Tensor,
    weight_GOC: torch.Tensor,
    order: ExpertOrder,
    out_PO: torch.Tensor,
    *,
    gather: bool,
    narrow_PR: torch.Tensor | None = None,
    adapter_EOR: torch.Tensor | None = None,
    bias_EO: torch.Tensor | None = None,
    first: int = 0,
) -> None:
    """Fill the rows of `out_PO` of the experts that `weight_GOC` begins with `first`; see `op.grouped_linear`."""
    x_PC = x[rows_read(order, gather=gather)]
    edges = order.offsets.tolist()
    for index, weight_OC in enumerate(weight_GOC):
        expert = first + index
        own = slice(edges[expert], edges[expert + 1])
        y = x_PC[own] @ weight_OC.t()
        if narrow_PR is not None and adapter_EOR is not None:
            y = y + narrow_PR[own] @ adapter_EOR[expert].t()
        out_PO[own] = y if bias_EO is None else y + bias_EO[expert]
