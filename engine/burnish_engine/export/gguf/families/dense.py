"""Rules that dense Llama-like decoders share: metadata, tensor names, and rope scaling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec, RopeSpec
from burnish_engine.export.gguf.families.base import GgufFamily, Metadata, PlannedTensor
from burnish_engine.export.weights.merge import MergedWeights

_IGNORED_SUFFIXES = (".rotary_emb.inv_freq", ".rope.freqs", ".attention.bias", ".attention.masked_bias")
_PRECISE = "ffn_gate_inp.weight"  # llama.cpp's converter leaves routers in F32 too
_PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "attn_norm", "ffn_gate", "ffn_up", "ffn_down", "ffn_norm")


def dense_metadata(spec: DecoderSpec, _config: dict[str, Any], *, rope: Metadata | None = None) -> Metadata:
    """Make the keys that every dense Llama-like architecture reads.

    Args:
        spec: model that `advise.facts.gguf_rules` accepts.
        _config: content of config.json; not needed here.
        rope: rope keys, where the family has its own kind of rope.
    """
    return {
        "vocab_size": spec.vocab_size,
        "context_length": spec.max_context,
        "embedding_length": spec.hidden_size,
        "block_count": spec.num_layers,
        "feed_forward_length": spec.intermediate_size,
        "attention.head_count": spec.num_heads,
        "attention.head_count_kv": spec.num_kv_heads,
        "attention.key_length": spec.head_dim,
        "attention.value_length": spec.head_dim,
        "attention.layer_norm_rms_epsilon": float(spec.rms_norm_eps),
        "rope.dimension_count": spec.head_dim,
        **(rope_metadata(spec.rope) if rope is None else rope),
    }


def rope_metadata(rope: RopeSpec) -> Metadata:
    """Make the keys of a plain, linear, yarn or Llama 3 rope."""
    keys: Metadata = {"rope.freq_base": float(rope.theta)}
    if rope.scaling == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope.factor)}
    if rope.scaling == "yarn":
        keys |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": float(rope.factor),
            "rope.scaling.original_context_length": int(rope.original_context or 0),
        }
    return keys


def dense_tensors(
    family: GgufFamily,
    spec: DecoderSpec,
    weights: MergedWeights,
    parts: Callable[[LayerSpec], Sequence[str]] = lambda _layer: _PARTS,
    final_norm: str = "output_norm",
    *,
    others: Sequence[PlannedTensor] = (),
) -> list[PlannedTensor]:
    """List every tensor under its GGUF name, in the order of the checkpoint.

    A tied head is left out: the loader uses the embedding again. One-dimensional tensors and routers stay F32.

    Args:
        family: family whose architecture names the tensors.
        spec: shape of the model.
        weights: weights of the model.
        parts: tensors that each layer must have.
        final_norm: GGUF name of the norm before the head.
        others: tensors of experts, which are planned elsewhere.

    Raises:
        UsageError: The checkpoint has a tensor that this architecture does not name.
        SetupError: A required tensor is missing.
    """
    places = family.places(spec.num_layers)
    planned: list[PlannedTensor] = []
    elsewhere = weights.expert_names
    for base in weights.names:
        if base in elsewhere:
            continue
        if base.endswith(_IGNORED_SUFFIXES) or (spec.tied_embeddings and base == "lm_head.weight"):
            continue
        parts_of = places(base)
        if not parts_of:
            raise UsageError(
                f"The checkpoint has the tensor {base}, which llama.cpp's {family.architecture} architecture does not "
                "know.",
                "Export as safetensors instead.",
            )
        rows, *row = weights.shape(base)
        shape = (rows // len(parts_of), *row)
        for part, name in enumerate(parts_of):
            first = part * shape[0]
            make = partial(_make, family, spec, weights, base, slice(first, first + shape[0]))
            precise = len(shape) < 2 or name.endswith(_PRECISE)
            planned.append(PlannedTensor(name, shape, make, full_precision=precise))
    planned += others
    _check_complete({tensor.name for tensor in planned}, spec, parts, final_norm)
    if spec.rope.scaling == "llama3":
        planned.append(constant("rope_freqs.weight", llama3_factors(spec.rope, spec.head_dim)))
    return planned


def _make(family: GgufFamily, spec: DecoderSpec, weights: MergedWeights, base: str, rows: slice) -> torch.Tensor:
    return family.change(spec, base, weights.load(base))[rows]


def constant(name: str, value: torch.Tensor) -> PlannedTensor:
    """Plan a full-precision tensor that no checkpoint holds."""
    return PlannedTensor(name, tuple(value.shape), lambda: value, full_precision=True)


def _check_complete(
    names: set[str], spec: DecoderSpec, parts: Callable[[LayerSpec], Sequence[str]], final_norm: str
) -> None:
    wanted = {f"blk.{index}.{part}.weight" for index, layer in enumerate(spec.layers) for part in parts(layer)}
    wanted |= {"token_embd.weight", f"{final_norm}.weight"}
    if not spec.tied_embeddings:
        wanted.add("output.weight")
    missing = sorted(wanted - names)
    if missing:
        raise SetupError(
            f"The checkpoint lacks {len(missing)} tensors the export needs, first the one for {missing[0]}.",
            "Download the model again.",
        )


def llama3_factors(rope: RopeSpec, head_dim: int) -> torch.Tensor:
    """Compute the divisor of each rotation frequency [head_dim / 2], fp32.

    Llama 3.1's rule (transformers modeling_rope_utils, `_compute_llama3_parameters`): long wavelengths are divided by
    the factor, short ones are not, with a smooth passage between.
    """
    context = float(rope.original_context or 8192)
    frequencies = 1.0 / (rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim))
    wavelengths = 2 * math.pi / frequencies
    smooth = (context / wavelengths - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    between = 1.0 / ((1.0 - smooth) / rope.factor + smooth)
    factors = torch.where(wavelengths > context / rope.low_freq_factor, torch.full_like(smooth, rope.factor), between)
    factors = torch.where(wavelengths < context / rope.high_freq_factor, torch.ones_like(smooth), factors)
    return factors.float()
