"""Export rules for OLMo 2 and OLMoE: norms over all queries and all keys; rope as in transformers."""

from __future__ import annotations

from burnish_engine.export.gguf.families.base import GgufFamily
from burnish_engine.export.gguf.families.dense import dense_metadata, dense_tensors
from burnish_engine.export.gguf.families.experts import ATTENTION, MIXTURE, mixture_metadata, mixture_tensors

_PARTS = (
    "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm", "post_attention_norm", "ffn_gate",
    "ffn_up", "ffn_down", "post_ffw_norm",
)  # fmt: skip

OLMO2: GgufFamily = GgufFamily(
    architecture="olmo2",
    pre_tokenizers=("dbrx", "olmo", "gpt-2"),
    metadata=dense_metadata,
    tensors=lambda spec, weights: dense_tensors(OLMO2, spec, weights, lambda _layer: _PARTS),
)
OLMOE: GgufFamily = GgufFamily(
    architecture="olmoe",
    pre_tokenizers=("olmo", "dbrx", "gpt-2"),
    metadata=mixture_metadata,
    tensors=lambda spec, weights: mixture_tensors(
        OLMOE, spec, weights, lambda _layer: (*ATTENTION, "attn_q_norm", "attn_k_norm", "ffn_norm", *MIXTURE)
    ),
)
