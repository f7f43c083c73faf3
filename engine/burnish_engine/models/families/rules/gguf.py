"""Describe how a family becomes a GGUF: names, metadata, and what llama.cpp does not compute of it. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec, RopeSpec

Metadata = dict[str, int | float | bool | str | list[int] | list[bool] | list[float]]
"""GGUF keys without the architecture's prefix, such as `attention.head_count`, to their values; a list has one value
per layer."""
Oddities = list[tuple[str, bool]]
"""Texts that complete "The model ...", each with whether it is true of the model."""

Settings = Mapping[str, Any]
"""A file's GGUF keys without the architecture's prefix to their values; lists are tuples."""

EXPERT_TENSORS = {"gate": "ffn_gate_exps", "up": "ffn_up_exps", "down": "ffn_down_exps"}
"""Part of an expert to the tensor that holds it of all experts [experts, out, in]."""
ATTENTION_PARTS = ("attn_q", "attn_k", "attn_v", "attn_output")
HEAD_NORMS = ("attn_q_norm", "attn_k_norm")
FEED_FORWARD_PARTS = ("ffn_gate", "ffn_up", "ffn_down")
MIXTURE_PARTS = ("ffn_gate_inp", *EXPERT_TENSORS.values())
"""Tensors of a mixture's layer: router and experts."""
SHARED_EXPERT_PARTS = ("ffn_gate_inp_shexp", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp")
"""Tensors of the expert that sees every token, its gate first."""


def usual_parts(layer: LayerSpec) -> tuple[str, ...]:
    """Return the tensors that a layer of a Llama must have, or of a mixture that is otherwise one."""
    feed_forward = MIXTURE_PARTS if layer.is_mixture else FEED_FORWARD_PARTS
    return (*ATTENTION_PARTS, "attn_norm", *feed_forward, "ffn_norm")


def normed_parts(layer: LayerSpec) -> tuple[str, ...]:
    """Return the same of a family that normalizes queries and keys."""
    return (*usual_parts(layer), *HEAD_NORMS)


@dataclass(frozen=True)
class GgufRules:
    """The rules by which a family's models are exported to GGUF.

    Attributes:
        architecture: value of `general.architecture`, which chooses llama.cpp's graph.
        pre_tokenizers: llama.cpp's names of the pre-tokenizers that its models use, most likely first; the right one is
            found by testing.
        named_by: architecture whose names of tensors it shares, where the package gguf does not know its own.
        parts: function from a layer to the tensors that it must have.
        final_norm: GGUF name of the norm before the head.
        plain_norms: ends of the names of norms that multiply by their weight where the family's others multiply by
            1 + weight.
        interleaved: whether llama.cpp's rope turns neighboring rows of a head, which are half a head apart in
            transformers.
        metadata: function from specification and config.json to keys that are not the usual ones.
        oddities: function from specification and config.json to what llama.cpp does not compute of some models.
        rope: "usual": plain, linear, Llama 3's, and yarn that sets nothing else; "rounded": the same, and yarn whose
            bounds only llama.cpp rounds; "longrope": with its factors, and partly rotated heads; "own": `oddities`
            judges it.
        activations: names of the feed-forward's activation in config.json that llama.cpp computes.
        computes_window: whether file and model are compared on rows longer than the window.
        modules: last parts of the names of modules that gguf has no name for in this architecture, and the matrices
            that the file has for each: parts of equally many rows, from top to bottom.
        parameters: names below a layer of parameters that are neither weight nor bias of a module, and their names
            below a block of the file.
        numbers: names below a layer of parameters of one number, and the whole keys under which the file has that of
            each layer.
        merges_as: llama.cpp's name of a vocabulary in SentencePiece's style that merges by a list; empty: by scores.
        config: function from a file's settings to keys of config.json that are not the usual ones; None: models are
            not trained from files of this family. Of families that share an architecture, the first with it is read.
    """

    architecture: str
    pre_tokenizers: tuple[str, ...]
    named_by: str = ""
    parts: Callable[[LayerSpec], Sequence[str]] = usual_parts
    final_norm: str = "output_norm"
    plain_norms: tuple[str, ...] = ()
    interleaved: bool = False
    metadata: Callable[[DecoderSpec, Mapping[str, Any]], Metadata] = lambda _spec, _config: {}
    oddities: Callable[[DecoderSpec, Mapping[str, Any]], Oddities] = lambda _spec, _config: []
    rope: Literal["usual", "rounded", "longrope", "own"] = "usual"
    activations: tuple[str, ...] = ("silu", "swish")
    computes_window: bool = False
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    merges_as: str = ""
    config: Callable[[Settings], dict[str, Any]] | None = None

    @property
    def has_mtp(self) -> bool:
        """Whether llama.cpp's graph has layers for multi-token prediction."""
        return "eh_proj" in self.modules

    def all_metadata(self, spec: DecoderSpec, config: Mapping[str, Any]) -> Metadata:
        """Make the architecture's keys of a model that `advise.facts.gguf_rules` accepts."""
        return {**_usual_metadata(spec), **self.metadata(spec, config)}


def usual_config(_settings: Settings) -> dict[str, Any]:
    """Read no further keys, as of a family whose files have the usual settings alone."""
    return {}


def window_in_context(spec: DecoderSpec, _config: Mapping[str, Any]) -> Metadata:
    """Bound the context by the window: a graph that attends to all tokens equals the model only within it."""
    return {"context_length": min(spec.max_context, spec.sliding_window)} if spec.sliding_window else {}


def narrow_heads(spec: DecoderSpec) -> tuple[str, bool]:
    """Say that a model's heads do not make up its width, for graphs that take it for granted."""
    return "has heads that do not make up its width", spec.num_heads * spec.head_dim != spec.hidden_size


def own_yarn(spec: DecoderSpec) -> tuple[str, bool]:
    """Say that a model's yarn rope is not the one that llama.cpp computes of its factor and original context."""
    rope = spec.rope
    stretch = 1.0 + 0.1 * math.log(rope.factor) if rope.scaling == "yarn" and rope.factor > 1.0 else 1.0
    usual = (rope.beta_fast, rope.beta_slow, rope.truncate) == (32.0, 1.0, True)
    return "has a yarn rope of its own", not usual or abs(rope.attention_factor - stretch) > 1e-6


def named_yarn(spec: DecoderSpec) -> Metadata:
    """Make the keys by which llama.cpp's converter names what llama.cpp assumes of a yarn rope (`own_yarn`)."""
    rope = spec.rope
    if rope.scaling != "yarn":
        return {}
    return {
        "rope.scaling.yarn_attn_factor": rope.attention_factor,
        "rope.scaling.yarn_beta_fast": rope.beta_fast,
        "rope.scaling.yarn_beta_slow": rope.beta_slow,
    }


def lacks_yarn(spec: DecoderSpec) -> tuple[str, bool]:
    """Say that a model's rope is no complete yarn rope, for graphs that know no other."""
    rope = spec.rope
    return f"has {rope.scaling} rope where yarn is expected", rope.scaling != "yarn" or not rope.original_context


def _usual_metadata(spec: DecoderSpec) -> Metadata:
    """Make the keys that every Llama-like architecture reads, and those of a mixture."""
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
        **_rope_metadata(spec.rope),
        **_mixture_metadata(spec),
    }


def _rope_metadata(rope: RopeSpec) -> Metadata:
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


def _mixture_metadata(spec: DecoderSpec) -> Metadata:
    experts = spec.experts
    if experts is None:
        return {}
    return {
        "feed_forward_length": spec.dense_intermediate_size or spec.intermediate_size,
        "expert_count": experts.count,
        "expert_used_count": experts.slots,
        "expert_feed_forward_length": experts.size,
    }
