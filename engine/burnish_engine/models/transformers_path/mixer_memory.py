"""Measure what state spaces, linear attention and convolutions keep for the backward pass, on models without weights.

Each family computes these parts in its own way, so nothing but running them tells. Without weights that takes no
memory and well below a second.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from burnish_engine.contract.facts.coverage import Matrix
from burnish_engine.contract.facts.facts import KeptBytes
from burnish_engine.models.families.matrices import MIXER_KINDS

_TOKENS = 64  # parts that compute in larger chunks of tokens get one chunk


class _Placed(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def layer(self) -> int | None: ...
    @property
    def matrix(self) -> Matrix: ...


def kept_by_mixers(model: Any, placed: Sequence[_Placed], hidden: int) -> dict[int, KeptBytes]:
    """Measure the parts of each layer that mix tokens otherwise than by attention.

    Args:
        model: transformers model on the meta device.
        placed: matrices of the model.
        hidden: width of the layers' input.

    Returns:
        Bytes by number of layer. Layers without such a part, and those that cannot be measured, are left out.
    """
    parts: dict[int, dict[str, list[tuple[Any, ...]]]] = {}
    for one in placed:
        name = one.matrix.name
        if one.layer is not None and one.matrix.kind in MIXER_KINDS and "." in name:
            part = one.path.removesuffix(".weight").removesuffix(name) + name.partition(".")[0]
            shape = (name, one.matrix.rows, one.matrix.columns, one.matrix.count)
            parts.setdefault(one.layer, {}).setdefault(part, []).append(shape)
    known: dict[Any, KeptBytes | None] = {}
    found = {}
    for layer, by_part in parts.items():
        alike = tuple(map(tuple, by_part.values()))
        if alike not in known:
            known[alike] = _measured([model.get_submodule(part) for part in by_part], hidden)
        if (kept := known[alike]) is not None:
            found[layer] = kept
    return found


def _measured(parts: Sequence[torch.nn.Module], hidden: int) -> KeptBytes | None:
    def total(dtype: torch.dtype, *, whole: bool) -> int:
        return math.ceil(sum(_kept(part, hidden, dtype, whole=whole) for part in parts))

    try:
        return KeptBytes(
            bf16=total(torch.bfloat16, whole=False),
            fp32=total(torch.float32, whole=False),
            whole_bf16=total(torch.bfloat16, whole=True),
            whole_fp32=total(torch.float32, whole=True),
        )
    # Foreign code is called with nothing but hidden states: what needs more ends in errors of any kind.
    except Exception:  # noqa: BLE001
        return None


def _kept(part: torch.nn.Module, hidden: int, dtype: torch.dtype, *, whole: bool) -> float:
    """Sum what autograd saves of a token while a part runs, without parameters and the part's input, bytes."""
    tokens = max(_TOKENS, int(getattr(part, "chunk_size", 0) or 0))
    own = copy.deepcopy(part).to(dtype).train().requires_grad_(whole)
    given = torch.empty(1, tokens, hidden, dtype=dtype, device="meta", requires_grad=True)
    kept: dict[int, torch.UntypedStorage] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage  # held, so that no other storage gets its number
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        _result = own(given)
    left_out = {one.untyped_storage()._cdata for one in (given, *own.parameters())}
    return sum(storage.nbytes() for number, storage in kept.items() if number not in left_out) / tokens
