"""The experts' linear maps in plain PyTorch: the definition of the kernel's result, and the path without a GPU.

Shapes: P sorted rows, N outputs, C columns of the reduction, R ranks, E experts.
"""

from __future__ import annotations

import torch

from burnish_kernels.moe_sort.order import ExpertOrder


def rows_read(order: ExpertOrder, *, by_token: bool) -> torch.Tensor | slice:
    """Return which row of the input each sorted row reads."""
    return order.order.long() // order.slots if by_token else slice(None)


def grouped_linear(
    x: torch.Tensor,
    weight_GNC: torch.Tensor,
    order: ExpertOrder,
    out_PN: torch.Tensor,
    *,
    by_token: bool,
    narrow_PR: torch.Tensor | None = None,
    adapter_ENR: torch.Tensor | None = None,
    bias_EN: torch.Tensor | None = None,
    first: int = 0,
) -> None:
    """Fill the rows of `out_PN` of the experts that `weight_GNC` begins with `first`; see `op.grouped_linear`."""
    x_PC = x[rows_read(order, by_token=by_token)]
    edges = order.offsets.tolist()
    for index, weight_NC in enumerate(weight_GNC):
        expert = first + index
        own = slice(edges[expert], edges[expert + 1])
        y = x_PC[own] @ weight_NC.t()
        if narrow_PR is not None and adapter_ENR is not None:
            y = y + narrow_PR[own] @ adapter_ENR[expert].t()
        out_PN[own] = y if bias_EN is None else y + bias_EN[expert]
