"""Apertus: norms over queries and keys, and a feed-forward without a gate, activated by xIELU."""

from __future__ import annotations

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.models.families.matrices import MatrixNames
from burnish_engine.models.families.record import XIELU_ROLES, Family
from burnish_engine.models.families.rules.config import Config, ConfigRules, all_attention
from burnish_engine.models.families.rules.gguf import ATTENTION_PARTS, HEAD_NORMS, GgufRules, Oddities
from burnish_engine.models.families.rules.rope import Ropes, usual_ropes

_ROPE = {
    "rope_type": "llama3", "rope_theta": 12_000_000.0, "factor": 8.0, "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip


def _ropes(config: Config, head_dim: int, max_context: int) -> Ropes:
    given = config.get("rope_scaling") or config.get("rope_parameters")
    return usual_ropes(config if given else {**config, "rope_parameters": _ROPE}, head_dim, max_context)


def _parts(_layer: LayerSpec) -> tuple[str, ...]:
    return (*ATTENTION_PARTS, *HEAD_NORMS, "attn_norm", "ffn_up", "ffn_down", "ffn_norm")


def _oddities(spec: DecoderSpec, _config: Config) -> Oddities:
    return [("has no head of its own", spec.tied_embeddings)]


APERTUS = Family(
    "apertus",
    mixer_norm="attention_layernorm",
    mlp_norm="feedforward_layernorm",
    matrix_names=MatrixNames(gate_up=("mlp.up_proj",)),
    config=ConfigRules(
        defaults={
            "rms_norm_eps": 1e-5, "max_position_embeddings": 65_536, "hidden_act": "xielu",
            "rope_theta": 12_000_000.0,
        },
        fields=lambda _config: {"qk_norm": True, "mlp_gate": False},
        layer_kinds=all_attention,
        ropes=_ropes,
    ),
    gguf=GgufRules(
        "apertus",
        ("tekken", "llama-bpe", "gpt-2"),
        parts=_parts,
        oddities=_oddities,
        activations=("xielu",),
        numbers={f"mlp.act_fn.{role}": f"xielu.{role}" for role in XIELU_ROLES},
    ),
    own_attention=True,
)  # fmt: skip
"""Apertus 8B and 70B."""
FAMILIES = (APERTUS,)
