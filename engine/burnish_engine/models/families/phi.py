"""Phi-3, Phi-3.5 and Phi-4 (mini and full): Llama with its projections stacked in the checkpoint, often longrope.

The stacking is the decoder's own order: q, k, v and gate, up. An adapter of such a module spans the whole stack.
"""

from __future__ import annotations

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.models.families.matrices import MatrixNames
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import NO_BIASES, Config, ConfigRules, window_everywhere
from burnish_engine.models.families.rules.gguf import GgufRules, Metadata, Oddities, window_in_context
from burnish_engine.models.families.rules.rope import Ropes, read_rope, rope_kind, rope_parameters


def _ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    parameters = rope_parameters(config)
    kind = rope_kind(parameters)
    kind = "longrope" if kind in {"su", "yarn"} else kind  # older names of it
    if kind not in {"default", "longrope"}:
        raise ValueError(f"Phi-3 with {kind} rope")
    return read_rope({**parameters, "rope_type": kind}, config, head_dim, max_context, rotates_part=True), None


def _parts(_layer: LayerSpec) -> tuple[str, ...]:
    return ("attn_qkv", "attn_output", "attn_norm", "ffn_up", "ffn_down", "ffn_norm")


def _metadata(spec: DecoderSpec, config: Config) -> Metadata:
    rope, rotated = spec.rope, int(spec.head_dim * spec.rope.partial)
    original = rope.original_context or config.get("original_max_position_embeddings") or spec.max_context
    keys: Metadata = {"rope.scaling.original_context_length": int(original)}
    if rope.scaling == "longrope":
        keys["rope.scaling.attn_factor"] = float(rope.attention_factor)
    keys["rope.dimension_count"] = rotated
    # Programs recognize Phi-4 by a window of 0. llama.cpp computes no window: the file equals the model only within it.
    keys["attention.sliding_window"] = spec.sliding_window or 0
    return keys | window_in_context(spec, config)


def _oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    heads = f"has {spec.num_heads} heads of {spec.head_dim} that do not make up its width of {spec.hidden_size}"
    return [(heads, spec.num_heads * spec.head_dim != spec.hidden_size)]


PHI3 = Family(
    "phi3",
    matrix_names=MatrixNames(gate_up=("mlp.gate_up_proj",)),
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
        },
        fields=lambda _config: {"fused_projections": True, **NO_BIASES},
        layer_kinds=window_everywhere,
        ropes=_ropes,
        part_sizes=(32_064, 3072, 8192, 32, 32),
    ),
    gguf=GgufRules(
        "phi3",
        ("gpt-4o", "dbrx", "gpt-2", "llama-bpe"),
        parts=_parts,
        metadata=_metadata,
        oddities=_oddities,
        rope="longrope",
    ),
    own_attention=True,
)  # fmt: skip
FAMILIES = (PHI3,)
