"""Qwen2, Qwen2.5 and dense Qwen3: rope as in transformers, so nothing is permuted."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.export.gguf.families.base import Family, Metadata
from burnish_engine.export.gguf.families.dense import dense_metadata, dense_tensors


def _metadata(spec: DecoderSpec, config: dict[str, Any]) -> Metadata:
    if any(layer.kind == "sliding_attention" for layer in spec.layers):
        raise UsageError(
            "The model uses sliding-window attention in some layers, which llama.cpp does not compute for Qwen.",
            "Export as safetensors instead.",
        )
    return dense_metadata(spec, config)


QWEN2: Family = Family(
    architecture="qwen2",
    pre_tokenizers=("qwen2", "deepseek-r1-qwen"),
    metadata=_metadata,
    tensors=lambda spec, weights: dense_tensors(QWEN2, spec, weights),
)
QWEN3: Family = Family(
    architecture="qwen3",
    pre_tokenizers=("qwen2",),
    metadata=_metadata,
    tensors=lambda spec, weights: dense_tensors(QWEN3, spec, weights),
)
