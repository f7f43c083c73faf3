"""Arrange the value heads of gated delta nets as llama.cpp's graph reads them.

Where there are more value heads than key heads, transformers numbers the value heads of the first key head first.
llama.cpp repeats the key heads one after the other instead (`ggml_repeat`), so value head v of key head k moves from
place k V + v to v K + k, for K key heads with V value heads each (llama.cpp's conversion/qwen.py,
`_LinearAttentionVReorderBase`).
"""

from __future__ import annotations

import torch

from burnish_engine.contract.facts.facts import DecoderSpec, DeltaSpec

_PER_HEAD = ("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")
_BEHIND_KEYS = ("in_proj_qkv.weight", "conv1d.weight")


def row_order(spec: DecoderSpec | None, name: str) -> torch.Tensor | None:
    """Return which row of a tensor each row of llama.cpp's is; None where they are the same.

    Args:
        spec: shape of the model; None where it is not known in detail.
        name: base name of the tensor.
    """
    delta = _reordered(spec)
    if delta is None or ".linear_attn." not in name:
        return None
    if name.endswith(_PER_HEAD):
        return _order(delta, 1)
    if name.endswith("in_proj_z.weight"):
        return _order(delta, delta.value_dim)
    if name.endswith(_BEHIND_KEYS):
        first = delta.convolved - delta.output
        return torch.cat([torch.arange(first), first + _order(delta, delta.value_dim)])
    return None


def column_order(spec: DecoderSpec | None, name: str) -> torch.Tensor | None:
    """Return which column of a matrix each column of llama.cpp's is; None where they are the same.

    Args:
        spec: shape of the model; None where it is not known in detail.
        name: base name of the matrix.
    """
    delta = _reordered(spec)
    return _order(delta, delta.value_dim) if delta and name.endswith("linear_attn.out_proj.weight") else None


def _reordered(spec: DecoderSpec | None) -> DeltaSpec | None:
    delta = spec.delta if spec else None
    return delta if delta is not None and delta.value_heads != delta.key_heads else None


def _order(delta: DeltaSpec, size: int) -> torch.Tensor:
    """Return the order of all value heads' numbers, of which each head has `size`."""
    places = torch.arange(delta.value_heads * size).view(delta.key_heads, -1, size)
    return places.transpose(0, 1).flatten()
