"""Arguments of a launch that say where the adapter beside a frozen weight lies.

A tensor that is absent is passed as None: Triton compiles a kernel of its own for it, which must not read it.
"""

from __future__ import annotations

from typing import Any

import torch


def adapter_arguments(
    narrow: torch.Tensor | None, adapter: torch.Tensor | None, *, grouped: bool = False
) -> dict[str, Any]:
    """Return the arguments that say where the adapter of a product lies, but for the block of its ranks.

    Args:
        narrow: narrow operand `[T, R]`; None: there is no adapter.
        adapter: factor `[N, R]`, of a stack of experts `[E, N, R]`; None: there is no adapter.
        grouped: whether the kernel takes a stack of experts.
    """
    ranks = 0 if narrow is None else narrow.shape[1]
    *expert, output, rank = (*(0,) * (1 + grouped), 1) if adapter is None else adapter.stride()
    return dict.fromkeys(["adapter_expert"] if grouped else [], *expert) | {
        "narrow_ptr": narrow,
        "adapter_ptr": adapter,
        "R": ranks,
        "narrow_stride": 0 if narrow is None else narrow.stride(0),
        "adapter_output": output,
        "adapter_rank": rank,
        "HAS_ADAPTER": ranks > 0,
    }
