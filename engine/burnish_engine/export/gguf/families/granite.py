"""Export rules for Granite 3 and dense Granite 4: llama.cpp's Llama with four factors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.export.gguf.families.base import GgufFamily, Metadata
from burnish_engine.export.gguf.families.dense import dense_metadata, dense_tensors
from burnish_engine.export.gguf.families.llama import interleaved


def _metadata(spec: DecoderSpec, config: dict[str, Any]) -> Metadata:
    return {
        **dense_metadata(spec, config),
        "attention.scale": float(spec.attention_scale or spec.head_dim**-0.5),
        "embedding_scale": float(spec.embedding_scale),
        "residual_scale": float(spec.residual_scale),
        "logit_scale": float(spec.logit_divisor),
        "rope.scaling.finetuned": spec.layers[0].rope,  # its switch for rope in all layers (src/models/granite.cpp)
    }


GRANITE: GgufFamily = GgufFamily(
    architecture="granite",
    pre_tokenizers=("refact", "starcoder", "dbrx", "gpt-4o"),
    metadata=_metadata,
    tensors=lambda spec, weights: dense_tensors(GRANITE, spec, weights),
    change=interleaved,
)
GRANITE4: GgufFamily = replace(
    GRANITE,
    pre_tokenizers=("dbrx", "gpt-4o", "refact"),
    tensors=lambda spec, weights: dense_tensors(GRANITE4, spec, weights),
    modules={"shared_mlp.input_linear": ("ffn_gate", "ffn_up"), "shared_mlp.output_linear": ("ffn_down",)},
)
