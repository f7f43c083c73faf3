"""LFM2, LFM2.5 and LFM2-MoE: short convolutions in most layers, attention with QK norm in the others; own names."""

from dataclasses import replace

from burnish_engine.models.families.base import Family
from burnish_engine.models.families.experts import ExpertNames

LFM2 = Family(
    "lfm2",
    mixer_norm="operator_norm",
    mlp_norm="ffn_norm",
    q_norm="q_layernorm",
    k_norm="k_layernorm",
    final_norm="embedding_norm",
)
LFM2_MOE = replace(LFM2, model_type="lfm2_moe", expert_names=ExpertNames("feed_forward", gate="w1", up="w3", down="w2"))
"""LFM2-8B-A1B: dense feed-forwards in the first layers, then experts chosen by sigmoids and a bias."""
