"""Attention within packed documents by our kernels, in models of transformers.

transformers' own way for a pack is a mask over all pairs of its tokens: work that grows with the square of the pack
although documents are short, and kernels that are prepared anew for each length. Here each document sees itself alone.
Whether a model can do so is measured on the loaded model (`train.plain_step`), not read from a list.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from burnish_kernels.attention.op import HEAD_DIMS, Documents, attention, documents, tile_rows

NAME = "burnish_packed"
"""As transformers knows it."""

_UNKNOWN = ("position_bias", "s_aux", "cache")  # what our kernels do not take


class CannotAttendError(Exception):
    """The model asks for something that our attention does not do."""


class _Pass:
    """The documents of one pass, described as each head size wants them."""

    def __init__(self, boundaries: NDArray[np.integer]) -> None:
        self._boundaries = boundaries
        self._made: dict[int, Documents] = {}

    @property
    def rows(self) -> int:
        return int(self._boundaries[-1])

    def documents(self, width: int, dtype: torch.dtype, device: torch.device) -> Documents:
        if width not in self._made:
            height = tile_rows(width, dtype, device)
            self._made[width] = documents(self._boundaries, self.rows, height, device)
        return self._made[width]


# Not a context variable: layers that are computed again in the backward pass run in a thread of autograd's.
_now: _Pass | None = None


@contextmanager
def within(boundaries: NDArray[np.integer] | None) -> Iterator[None]:
    """Inside, models that were switched over see these documents; the backward pass belongs inside too.

    Args:
        boundaries: First row of each document, then the number of rows; None changes nothing.
    """
    global _now  # noqa: PLW0603
    before, _now = _now, _now if boundaries is None else _Pass(boundaries)
    try:
        yield
    finally:
        _now = before


def can_attend(model: Any, device: torch.device) -> bool:
    """Whether it is worth trying: on a GPU, where each layer's attention is handed what flash attention needs."""
    if device.type != "cuda" or not getattr(model, "_supports_flash_attn", False):
        return False
    config = model.config.get_text_config()
    return not getattr(config, "attention_dropout", 0.0) and getattr(config, "_attn_implementation", "") == "sdpa"


def switch_over(model: Any) -> None:
    """Have a model of transformers attend by our kernels inside `within`, and as before outside."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)
    model.set_attn_implementation(NAME)


def switch_back(model: Any) -> None:
    """Undo `switch_over`."""
    model.set_attn_implementation("sdpa")


def _mask(*arguments: Any, **options: Any) -> torch.Tensor | None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    return None if _now is not None else ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](*arguments, **options)


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers calls it: `[1, N, T, D]` queries, `[1, M, T, D]` keys and values, `[1, T, N, D]` out."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if _now is None:
        found: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
        return found
    _, _, rows, width = query.shape
    asked = [name for name in _UNKNOWN if options.get(name) is not None]
    causal = options.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    if asked or attention_mask is not None or dropout or not causal or len(query) != 1 or rows != _now.rows:
        raise CannotAttendError(f"{type(module).__name__} asks for {', '.join(asked) or 'another kind of attention'}")
    if not HEAD_DIMS[0] <= width <= HEAD_DIMS[1] or value.shape[-1] != width:
        raise CannotAttendError(f"{type(module).__name__} has heads of {width} and {value.shape[-1]}")
    q_TND, k_TMD, v_TMD = (_apart(tensor.to(value.dtype)) for tensor in (query, key, value))
    out_TND = attention(
        q_TND,
        k_TMD,
        v_TMD,
        _now.documents(width, value.dtype, value.device),
        scale=width**-0.5 if scaling is None else float(scaling),
        window=options.get("sliding_window"),
        softcap=options.get("softcap"),
    )
    return out_TND[None], None


def _apart(heads: torch.Tensor) -> torch.Tensor:
    """`[1, N, T, D]` as `[T, N, D]` with heads next to each other, copied only where it has to be."""
    turned = heads[0].transpose(0, 1)
    return turned if turned.stride(1) == turned.shape[2] and turned.stride(2) == 1 else turned.contiguous()
