"""Model families: how the tensors of each one fit the fast decoder. One small file a family; `family` looks one up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.families.base import Family, Module
from burnish_engine.models.families.gemma3 import GEMMA3
from burnish_engine.models.families.gpt_oss import GPT_OSS
from burnish_engine.models.families.granite import GRANITE, GRANITE4
from burnish_engine.models.families.lfm2 import LFM2, LFM2_MOE
from burnish_engine.models.families.lfm3 import LFM3
from burnish_engine.models.families.llama import LLAMA
from burnish_engine.models.families.mistral import MINISTRAL3, MISTRAL, MIXTRAL
from burnish_engine.models.families.olmo2 import OLMO2, OLMOE
from burnish_engine.models.families.phi3 import PHI3
from burnish_engine.models.families.qwen import QWEN2, QWEN3, QWEN3_MOE
from burnish_engine.models.families.smollm3 import SMOLLM3

__all__ = ["Family", "Module", "family", "stores_fp8", "stores_nf4", "why_not_fast"]

_FAMILIES = {
    entry.model_type: entry
    for entry in (
        LLAMA, MISTRAL, MINISTRAL3, QWEN2, QWEN3, SMOLLM3, GEMMA3, PHI3, LFM2, LFM3, GRANITE, GRANITE4, OLMO2,
        QWEN3_MOE, OLMOE, MIXTRAL, LFM2_MOE, GPT_OSS,
    )
}  # fmt: skip

_DROPOUTS = ("attention_dropout", "resid_pdrop", "embd_pdrop")


def family(model_type: str) -> Family | None:
    """Return the family of a config.json's model_type; None where the fast decoder does not know it."""
    return _FAMILIES.get(model_type)


def why_not_fast(config: dict[str, Any], spec: DecoderSpec | None, *, nf4: bool = False) -> str:
    """Explain why the fast decoder does not do this checkpoint, completing "The model ..."; empty where it does.

    Args:
        config: parsed config.json of the checkpoint.
        spec: specification that `decoder_spec` read from the config.
        nf4: whether the run keeps the frozen weights as NF4; then the checkpoint may store them so (bitsandbytes).
    """
    stored = config.get("quantization_config")
    is_mxfp4 = spec is not None and spec.has_mxfp4_experts
    is_read = (nf4 and stores_nf4(config)) or stores_fp8(config)
    if stored and not is_mxfp4 and (not is_read or (spec is not None and spec.num_experts > 0)):
        return "is stored quantized"
    if any(config.get(key) for key in _DROPOUTS):
        return "drops out parts of its activations in training"
    if spec is None and isinstance(config.get("text_config"), dict):
        return "has parts beside its language model, such as one for images"
    found = family(str(config.get("model_type", "")))
    if found is None:
        return f"is of the architecture {config.get('model_type')!r}"
    return "has settings Burnish does not know" if spec is None else found.supported(spec)


def stores_nf4(config: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint stores its linear weights as NF4 by bitsandbytes.

    Args:
        config: parsed config.json of the checkpoint.
    """
    stored = config.get("quantization_config")
    if not isinstance(stored, dict):
        return False
    method = stored.get("quant_method", "bitsandbytes")
    return bool(stored.get("load_in_4bit")) and method == "bitsandbytes" and stored.get("bnb_4bit_quant_type") == "nf4"


def stores_fp8(config: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint stores linear weights as E4M3 with scales, by transformers or compressed-tensors.

    Args:
        config: parsed config.json of the checkpoint.
    """
    stored = config.get("quantization_config")
    if not isinstance(stored, dict):
        return False
    if stored.get("quant_method") == "fp8":
        return stored.get("weight_block_size") in (None, [128, 128])
    groups = stored.get("config_groups")
    if stored.get("quant_method") != "compressed-tensors" or not isinstance(groups, dict) or not groups:
        return False
    weights = [group.get("weights") for group in groups.values() if isinstance(group, dict)]
    return len(weights) == len(groups) and all(
        isinstance(one, dict) and (one.get("type"), one.get("num_bits")) == ("float", 8) and one.get("symmetric", True)
        for one in weights
    )
