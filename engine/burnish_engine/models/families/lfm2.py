"""LFM2 and LFM2.5: short convolutions in most layers, attention with QK norm in the others; names of its own."""

from burnish_engine.models.families.base import Family

LFM2 = Family(
    "lfm2",
    mixer_norm="operator_norm",
    mlp_norm="ffn_norm",
    q_norm="q_layernorm",
    k_norm="k_layernorm",
    final_norm="embedding_norm",
)
