"""The sum over a token's experts in plain PyTorch: the definition of the kernel's result, and the path without a GPU.

Shapes: P sorted rows, T tokens, k slots, H columns.
"""

from __future__ import annotations

import torch

from burnish_kernels.moe_sort.order import ExpertOrder


def combine(
    y_PH: torch.Tensor,
    order: ExpertOrder,
    weights_Tk: torch.Tensor | None,
    add_TH: torch.Tensor | None,
    scale_T: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the sums `[T, H]` in at least fp32; see `op.combine`."""
    wide = torch.promote_types(y_PH.dtype, torch.float32)
    if add_TH is not None and scale_T is not None:
        add_TH = add_TH * scale_T[:, None]
    row_Tk = order.inverse.long().view(-1, order.slots)
    sums_TH = y_PH.new_zeros((len(row_Tk), y_PH.shape[1]), dtype=wide) if add_TH is None else add_TH.to(wide)
    for slot in range(order.slots):
        own_TH = y_PH[row_Tk[:, slot]].to(wide)
        sums_TH = sums_TH + (own_TH if weights_Tk is None else own_TH * weights_Tk[:, slot, None].to(wide))
    return sums_TH
