"""Hunyuan's dense models: queries and keys are normalized after their rotation."""

from __future__ import annotations

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.families.record import Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, all_attention
from burnish_engine.models.families.rules.gguf import GgufRules, Oddities, normed_parts
from burnish_engine.models.families.rules.rope import Ropes, read_rope, rope_kind, rope_parameters


def _ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    parameters = rope_parameters(config)
    if rope_kind(parameters) == "dynamic" and parameters.get("alpha"):  # a larger base, whatever the length
        theta = float(parameters.get("rope_theta") or config.get("rope_theta") or 10_000.0)
        parameters = {"rope_theta": theta * float(parameters["alpha"]) ** (head_dim / (head_dim - 2))}
    return read_rope(parameters, config, head_dim, max_context), None


def _oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    return [("has biases in its attention", spec.attention_bias)]


HUNYUAN = Family(
    "hunyuan_v1_dense",
    q_norm="query_layernorm",
    k_norm="key_layernorm",
    config=ConfigRules(
        defaults={"rms_norm_eps": 1e-5, "max_position_embeddings": 2048},
        fields=lambda _config: {"qk_norm": True, "qk_norm_after": True},
        layer_kinds=all_attention,
        ropes=_ropes,
    ),
    gguf=GgufRules("hunyuan-dense", ("hunyuan-dense", "gpt-2", "llama-bpe"), parts=normed_parts, oddities=_oddities),
    own_attention=True,
)
"""Hunyuan 0.5B to 7B of Tencent."""
FAMILIES = (HUNYUAN,)
