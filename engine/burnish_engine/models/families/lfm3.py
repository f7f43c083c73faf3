"""LFM3: LFM2's layers with wider convolutions, windows, gates on attention's output and norms after each half."""

from burnish_engine.models.families.base import Family

LFM3 = Family(
    "lfm3",
    mixer_norm="operator_norm",
    mlp_norm="ffn_norm",
    mixer_post_norm="post_operator_norm",
    mlp_post_norm="post_ffn_norm",
    final_norm="embedding_norm",
    stored_names=(("g_proj", "gate_proj"),),  # transformers renames it when it loads (conversion_mapping.py)
)
