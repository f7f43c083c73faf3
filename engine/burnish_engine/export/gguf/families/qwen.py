"""Export rules for Qwen2, Qwen2.5 and Qwen3, dense or a mixture: rope as in transformers, so nothing is permuted."""

from __future__ import annotations

from burnish_engine.export.gguf.families.base import GgufFamily
from burnish_engine.export.gguf.families.dense import dense_metadata, dense_tensors
from burnish_engine.export.gguf.families.experts import ATTENTION, MIXTURE, mixture_metadata, mixture_tensors

QWEN2: GgufFamily = GgufFamily(
    architecture="qwen2",
    pre_tokenizers=("qwen2", "deepseek-r1-qwen"),
    metadata=dense_metadata,
    tensors=lambda spec, weights: dense_tensors(QWEN2, spec, weights),
)
QWEN3: GgufFamily = GgufFamily(
    architecture="qwen3",
    pre_tokenizers=("qwen2",),
    metadata=dense_metadata,
    tensors=lambda spec, weights: dense_tensors(QWEN3, spec, weights),
)
QWEN3_MOE: GgufFamily = GgufFamily(
    architecture="qwen3moe",
    pre_tokenizers=("qwen2",),
    metadata=mixture_metadata,
    tensors=lambda spec, weights: mixture_tensors(
        QWEN3_MOE, spec, weights, lambda _layer: (*ATTENTION, "attn_q_norm", "attn_k_norm", "ffn_norm", *MIXTURE)
    ),
)
