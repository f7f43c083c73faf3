"""Run Burnish's attention within packed documents inside models of transformers.

For packed documents transformers uses a mask over all pairs of tokens: work that grows with the square of the pack
although documents are short, and kernels that are prepared anew for each length. Here each document attends to itself
alone. Whether a model can do so is measured on the loaded model (`train.plain.plain_step`), not read from a list.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from burnish_engine.models.checkpoint.import_lock import IMPORT_LOCK
from burnish_engine.models.generation.load_fast import device_problem
from burnish_kernels.attention.documents import Documents
from burnish_kernels.attention.op import HEAD_DIMS, attention, tile_rows

NAME = "burnish_packed"
"""Name under which transformers knows our attention."""

_DEFAULT = "sdpa"  # attention that models have before, and that runs outside `within`
# What transformers hands its attention: the first three are done, the others change nothing. Anything else is refused.
_KNOWN = {"is_causal", "sliding_window", "softcap", "position_ids", "cache_position"}


class CannotAttendError(Exception):
    """Raised when a model asks for something that Burnish's attention does not do."""


class _MaskStandIn(torch.Tensor):
    """A placeholder that passes through a model in place of a mask, and carries its window to the attention.

    Attributes:
        window: number of keys that a query sees, itself included; 0: all before it.
    """

    window: int


class PackedDocuments:
    """The documents of one micro-batch, described for each head size.

    Attributes:
        calls: number of times that the attention ran.
    """

    def __init__(self, boundaries: NDArray[np.integer]) -> None:
        self._boundaries = boundaries
        self._made: dict[int, Documents] = {}
        self.calls = 0

    @property
    def rows(self) -> int:
        """Number of tokens of all documents."""
        return int(self._boundaries[-1])

    def documents(self, width: int, dtype: torch.dtype, device: torch.device) -> Documents:
        """Return the documents as kernels for heads of some width take them."""
        if width not in self._made:
            height = tile_rows(width, dtype, device)
            self._made[width] = Documents.from_boundaries(self._boundaries, self.rows, height, device)
        return self._made[width]


# Not a context variable: layers that are computed again in the backward pass run in a thread of autograd's.
_current: PackedDocuments | None = None


@contextmanager
def within(boundaries: NDArray[np.integer] | None) -> Iterator[PackedDocuments | None]:
    """Set the documents of models that were switched over; the backward pass belongs inside the block too.

    Args:
        boundaries: first row of each document, then the number of rows; None changes nothing.

    Yields:
        The pass that holds inside, whose `calls` count how often our attention ran; None outside of any.
    """
    global _current  # noqa: PLW0603
    before, _current = _current, _current if boundaries is None else PackedDocuments(boundaries)
    try:
        yield _current
    finally:
        _current = before


def can_attend(model: Any, device: torch.device) -> bool:
    """Return whether to try it: the GPU runs the kernels, and the model supports flash attention.

    Models of several parts, such as those that see, keep their own attention.
    """
    if device.type != "cuda" or device_problem(device) or not getattr(model, "_supports_flash_attn", False):
        return False
    config = model.config
    if config.get_text_config() is not config or config.sub_configs:
        return False
    return not getattr(config, "attention_dropout", 0.0) and getattr(config, "_attn_implementation", "") == _DEFAULT


def switch_over(model: Any) -> None:
    """Make a model of transformers attend by Burnish's kernels inside `within`, and as before outside.

    Raises:
        CannotAttendError: The model does not accept another attention.
    """
    with IMPORT_LOCK:
        from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(NAME, _packed_attention)
    AttentionMaskInterface.register(NAME, _mask)
    model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:
        raise CannotAttendError(f"{type(model).__name__} does not take another attention")


def switch_back(model: Any) -> None:
    """Undo `switch_over`."""
    model.set_attn_implementation(_DEFAULT)


def _mask(*arguments: Any, **options: Any) -> torch.Tensor | None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    if _current is None:
        mask: torch.Tensor | None = ALL_MASK_ATTENTION_FUNCTIONS[_DEFAULT](*arguments, **options)
        return mask
    both_ways = "allow_is_bidirectional_skip" in options
    if arguments or both_ways or options.get("attention_mask") is not None or options.get("use_vmap"):
        raise CannotAttendError("the model asks for a mask of another kind")
    # FSDP converts floating-point inputs of a layer, and the copy would not know the window.
    stand_in = torch.empty(1, 1, 1, 1, dtype=torch.bool).as_subclass(_MaskStandIn)
    stand_in.window = int(options.get("local_size") or 0)
    return stand_in


def _packed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attend on behalf of transformers: queries `[1, N, T, D]`, keys, values `[1, M, T, D]`, output `[1, T, N, D]`."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if _current is None:
        if isinstance(attention_mask, _MaskStandIn):
            raise CannotAttendError(f"{type(module).__name__} uses a mask again that was made for packed documents")
        found: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
        return found
    _refuse_others(module, query, value, attention_mask, dropout, options)
    _current.calls += 1
    q_TND, k_TMD, v_TMD = (_heads_last(tensor.to(value.dtype)) for tensor in (query, key, value))
    out_TND = attention(
        q_TND,
        k_TMD,
        v_TMD,
        _current.documents(query.shape[-1], value.dtype, value.device),
        scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        window=options.get("sliding_window") or None,
        softcap=options.get("softcap"),
    )
    return out_TND[None], None


def _refuse_others(
    module: Any,
    query: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    options: dict[str, Any],
) -> None:
    """Raise CannotAttendError unless the call asks for causal attention within this micro-batch's documents."""
    assert _current is not None
    name, width = type(module).__name__, query.shape[-1]
    asked = [key for key, given in options.items() if key not in _KNOWN and given is not None and given is not False]
    if asked:
        raise CannotAttendError(f"{name} asks for {', '.join(asked)}")
    causal = options.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    if dropout or not causal or len(query) != 1 or query.shape[2] != _current.rows:
        raise CannotAttendError(f"{name} asks for another kind of attention")
    # Some models leave the window to the mask, others to the attention: only where both say the same is it known.
    windows = getattr(mask, "window", None), options.get("sliding_window") or 0
    if windows[0] != windows[1]:
        raise CannotAttendError(f"{name} has a window of {windows[1]} and a mask of {windows[0]}")
    if not HEAD_DIMS[0] <= width <= HEAD_DIMS[1] or value.shape[-1] != width:
        raise CannotAttendError(f"{name} has heads of {width} and {value.shape[-1]}")


def _heads_last(heads: torch.Tensor) -> torch.Tensor:
    """Turn `[1, N, T, D]` into `[T, N, D]` with adjacent heads, copying only where necessary."""
    turned = heads[0].transpose(0, 1)
    return turned if turned.stride(1) == turned.shape[2] and turned.stride(2) == 1 else turned.contiguous()
