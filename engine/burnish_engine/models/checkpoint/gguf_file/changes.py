"""Turn a base model's tensors into those that llama.cpp's graphs expect, and back."""

from __future__ import annotations

import torch

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.checkpoint.gguf_file.value_heads import column_order, row_order
from burnish_engine.models.families.rules.gguf import GgufRules


def changed(rules: GgufRules, spec: DecoderSpec, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Turn a base tensor into the one that llama.cpp's graph expects.

    Weights of linear layers only get their rows in another order, so that it fits an adapter's B [out, r] as well.

    Args:
        rules: rules of the family.
        spec: shape of the model.
        name: base name of the tensor.
        tensor: the tensor.
    """
    if (order := row_places(rules, spec, name, len(tensor) if tensor.ndim else 0)) is not None:
        tensor = tensor[order]
    if name.endswith(".A_log"):
        return -torch.exp(tensor)
    return tensor + 1.0 if _is_one_plus(rules, spec, name) else tensor


def original(rules: GgufRules, spec: DecoderSpec, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Turn a tensor of a GGUF into the base's: the way back from `changed`, for families without gated delta nets.

    Args:
        rules: rules of the family.
        spec: shape of the model.
        name: base name of the tensor.
        tensor: the tensor; or the bytes of its rows, which only change places.
    """
    if (order := row_places(rules, spec, name, len(tensor))) is not None:
        return torch.empty_like(tensor).index_copy_(0, order, tensor)
    return tensor - 1.0 if _is_one_plus(rules, spec, name) else tensor


def row_places(rules: GgufRules, spec: DecoderSpec, name: str, rows: int) -> torch.Tensor | None:
    """Return which row of a base tensor each row of llama.cpp's is `[rows]`; None where they are the same.

    Args:
        rules: rules of the family.
        spec: shape of the model.
        name: base name of the tensor.
        rows: number of rows of the tensor.
    """
    if rules.interleaved and ".q_proj." in name:
        return permute_rows(torch.arange(rows), spec.num_heads)
    if rules.interleaved and ".k_proj." in name:
        return permute_rows(torch.arange(rows), spec.num_kv_heads)
    return row_order(spec, name)


def _is_one_plus(rules: GgufRules, spec: DecoderSpec, name: str) -> bool:
    """Return whether transformers multiplies by 1 + weight where llama.cpp multiplies by the weight."""
    return spec.norm_one_plus and name.endswith("norm.weight") and not name.endswith(rules.plain_norms)


def in_columns(spec: DecoderSpec, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Put a matrix's columns into the order that llama.cpp's graph expects."""
    order = column_order(spec, name)
    return tensor if order is None else tensor[:, order]


def permute_rows(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder each head's rows from transformers' half-and-half rope to llama.cpp's interleaved pairs.

    Args:
        weight: Q or K weight [heads * head_dim, in], or bias [heads * head_dim].
        heads: number of query heads for Q, of key/value heads for K.

    Source: convert_hf_to_gguf.py of llama.cpp, `LlamaModel.permute`. Without it the file loads and generates nonsense.
    """
    pairs = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)
