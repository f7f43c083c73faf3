"""Export rules for gpt-oss: sinks in attention, windows in every other layer, experts that stay MXFP4."""

from __future__ import annotations

from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.export.gguf.families.base import GgufFamily, Metadata
from burnish_engine.export.gguf.families.experts import ATTENTION, MIXTURE, mixture_metadata, mixture_tensors

_PARTS = (*ATTENTION, "attn_sinks", "post_attention_norm", *MIXTURE)


def _metadata(spec: DecoderSpec, config: dict[str, Any]) -> Metadata:
    keys = mixture_metadata(spec, config)
    keys["attention.sliding_window"] = spec.sliding_window or 0
    keys["rope.scaling.yarn_beta_fast"] = spec.rope.beta_fast
    keys["rope.scaling.yarn_beta_slow"] = spec.rope.beta_slow
    local = [layer.kind == "sliding_attention" for layer in spec.layers]
    if local != [index % 2 == 0 for index in range(spec.num_layers)]:  # llama.cpp's own pattern (openai-moe.cpp)
        keys["attention.sliding_window_pattern"] = local
    return keys


GPT_OSS: GgufFamily = GgufFamily(
    architecture="gpt-oss",
    pre_tokenizers=("gpt-4o",),
    metadata=_metadata,
    tensors=lambda spec, weights: mixture_tensors(GPT_OSS, spec, weights, lambda _layer: _PARTS),
    parameters={"self_attn.sinks": "attn_sinks.weight"},
)
