"""Export rules for Qwen2, Qwen2.5 and dense Qwen3: rope as in transformers, so nothing is permuted."""

from __future__ import annotations

from burnish_engine.export.gguf.families.base import GgufFamily
from burnish_engine.export.gguf.families.dense import dense_metadata, dense_tensors

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
