"""Arguments of a launch that say where the adapter beside a frozen weight lies.

A tensor that is absent is passed as None: Triton compiles a kernel of its own for it, which must not read it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def adapter_arguments(
    narrow: torch.Tensor | None,
    adapter: torch.Tensor | None,
    rank_block: Callable[[int], int],
    *,
    grouped: bool = False,
) -> dict[str, Any]:
    """Return the arguments of a product's kernel that say where its adapter lies.

    Args:
        narrow: narrow operand `[T, R]`; None: there is no adapter.
        adapter: factor `[N, R]`, of a stack of experts `[E, N, R]`; None: there is no adapter.
        rank_block: function from the number of ranks to those that the kernel multiplies at a time.
        grouped: whether the kernel takes a stack of experts.
    """
    ranks = 0 if narrow is None else narrow.shape[1]
    strides = (0, 0, 1) if adapter is None else (0, *adapter.stride())
    return ({"adapter_expert": strides[-3]} if grouped else {}) | {
        "narrow_ptr": narrow,
        "adapter_ptr": adapter,
        "R": ranks,
        "narrow_stride": 0 if narrow is None else narrow.stride(0),
        "adapter_output": strides[-2],
        "adapter_rank": strides[-1],
        "HAS_ADAPTER": ranks > 0,
        "BLOCK_R": rank_block(ranks),
    }
