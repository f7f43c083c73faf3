"""MiniMax-M2: a mixture of many experts chosen by sigmoids and a bias, with norms over all queries and all keys."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.families.experts import ExpertNames
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import NO_BIASES, Config, ConfigRules, all_attention, dense_width
from burnish_engine.models.families.rules.gguf import GgufRules, Metadata, Oddities, normed_parts
from burnish_engine.models.families.rules.mixture import Mixture
from burnish_engine.models.families.rules.rope import Ropes, read_rope, rope_parameters


def _ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    parameters = rope_parameters(config)
    if (rotated := config.get("rotary_dim")) is not None:
        parameters = {"partial_rotary_factor": float(rotated) / head_dim, **parameters}
    return read_rope(parameters, config, head_dim, max_context, rotates_part=True), None


def _expert_fields(_config: Config) -> dict[str, Any]:
    return {"router": "sigmoid", "normalize": True, "selection_bias": True}


def _metadata(spec: DecoderSpec, _config: Config) -> Metadata:
    return {"expert_gating_func": 2, "rope.dimension_count": int(spec.head_dim * spec.rope.partial)}  # 2: sigmoid


def _oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    scaling = spec.rope.scaling
    return [("has no head of its own", spec.tied_embeddings), (f"has {scaling} rope", scaling != "none")]


MINIMAX_M2 = Family(
    "minimax_m2",
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-6, "max_position_embeddings": 196_608, "num_key_value_heads": 8, "head_dim": 128,
            "rope_theta": 5_000_000.0, "num_experts_per_tok": 8,
        },
        fields=lambda _config: {"qk_norm": True, "qk_norm_whole": True, **NO_BIASES},
        layer_kinds=all_attention,
        ropes=_ropes,
        width=dense_width,
        mixture=Mixture(256, fields=_expert_fields),
    ),
    expert_names=ExpertNames(
        "block_sparse_moe", gate="w1", up="w3", down="w2", selection_bias="e_score_correction_bias"
    ),
    gguf=GgufRules(
        "minimax-m2",
        ("minimax-m2", "gpt-2", "llama-bpe"),
        parts=normed_parts,
        metadata=_metadata,
        oddities=_oddities,
        rope="own",
        parameters={"block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias"},
    ),
)  # fmt: skip
"""MiniMax-M2 and M2.1, 230B-A10B."""
FAMILIES = (MINIMAX_M2,)
