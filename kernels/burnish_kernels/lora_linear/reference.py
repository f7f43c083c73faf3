"""A frozen projection with LoRA adapters in plain PyTorch: the definition that the kernels are compared with.

Hu et al. 2021 (LoRA, arXiv 2106.09685): y = x Wᵀ + b + scale · drop(x) Aᵀ Bᵀ with scale = alpha / r, or alpha / √r
(rsLoRA, Kalajdzievski 2023, arXiv 2312.03732). A stack of projections (q, k, v one under another) has an adapter for
some ranges of its rows. Dropout masks come from Philox4x32-10, a function of seed, stream, row and column, so that any
pass can make them again.

Shapes: T tokens, K input features, N output features, r rank of one adapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from burnish_kernels.philox import philox

if TYPE_CHECKING:
    from burnish_kernels.lora_linear.stack import StackedAdapter


def lora_linear(
    x_TK: torch.Tensor,
    weight_NK: torch.Tensor,
    bias_N: torch.Tensor | None,
    a_rK: Sequence[torch.Tensor],
    b_Nr: Sequence[torch.Tensor],
    adapters: Sequence[StackedAdapter],
    kept_TK: Sequence[torch.Tensor] | None = None,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Compute the projection `[T, N]`.

    Args:
        x_TK: input.
        weight_NK: frozen weight.
        bias_N: frozen bias.
        a_rK: A of each adapter, `[r_i, K]`.
        b_Nr: B of each adapter, `[rows_i, r_i]`.
        adapters: row range and scale of each adapter.
        kept_TK: mask of the elements of x that dropout keeps, for each adapter; None keeps all.
        dropout: probability that an input is dropped; the kept ones grow by 1 / (1 - p).
    """
    y_TN = torch.nn.functional.linear(x_TK, weight_NK, bias_N)
    for index, adapter in enumerate(adapters):
        seen_TK = x_TK if kept_TK is None else x_TK * kept_TK[index] / (1.0 - dropout)
        delta = adapter.scale * (seen_TK @ a_rK[index].t() @ b_Nr[index].t())
        before, after = adapter.first_row, weight_NK.shape[0] - adapter.first_row - adapter.rows
        y_TN = y_TN + torch.nn.functional.pad(delta, (before, after))
    return y_TN


def threshold(probability: float) -> int:
    """Return the bound below which draws of 31 bits are dropped."""
    return int(probability * 2**31)


def kept(rows: int, columns: int, seed: torch.Tensor, stream: int, probability: float) -> torch.Tensor:
    """Return the mask `[rows, columns]` bool of kept elements.

    The Philox counter is (column / 4, row, stream, 0), the word is column modulo 4.
    """
    words = philox(int(seed), [np.arange(-(columns // -4)), np.arange(rows)[:, None], stream, 0])
    least = np.uint32(2 * threshold(probability))  # of 32 bits, whose lowest does not count
    kept_RC = np.stack([word >= least for word in words], axis=-1).reshape(rows, -1)[:, :columns]
    return torch.from_numpy(kept_RC).to(seed.device)


def dropout(x_TK: torch.Tensor, seed: torch.Tensor, stream: int, probability: float) -> torch.Tensor:
    """Return the input over 1 - p where it is kept, zero elsewhere."""
    mask = kept(x_TK.shape[0], x_TK.shape[1], seed, stream, probability)
    wide = torch.promote_types(x_TK.dtype, torch.float32)
    return (x_TK.to(wide) * mask * (1.0 / (1.0 - probability))).to(x_TK.dtype)
