"""Gate of attention's output in plain PyTorch: the definition of the kernel's result, and the path without a GPU.

One logit scales a whole head (transformers' `Lfm3Attention`) or each number has its own (`Qwen3_5Attention`; Qiu et al.
2025, arXiv 2505.06708). The sigmoid is rounded to the input's type, as in transformers.

`forward` can be differentiated by autograd, `backward` is the same gradient written out.

Shapes: T tokens, N heads of D numbers, G logits of a head: 1 or D.
"""

from __future__ import annotations

import torch


def forward(x_TND: torch.Tensor, gate_TNG: torch.Tensor) -> torch.Tensor:
    """Compute x times sigmoid(gate); see `op.forward`."""
    return x_TND * torch.sigmoid(gate_TNG)


def backward(dy_TND: torch.Tensor, x_TND: torch.Tensor, gate_TNG: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradients of x and of the logits; see `op.backward`."""
    wide = torch.promote_types(x_TND.dtype, torch.float32)
    share_TNG = torch.sigmoid(gate_TNG.to(wide))
    dshare_TNG = dy_TND.to(wide) * x_TND.to(wide)
    if gate_TNG.shape[2] == 1:
        dshare_TNG = dshare_TNG.sum(dim=2, keepdim=True)
    dgate_TNG = dshare_TNG * share_TNG * (1.0 - share_TNG)
    return dy_TND * share_TNG.to(dy_TND.dtype), dgate_TNG.to(gate_TNG.dtype)
