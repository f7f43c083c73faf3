"""Model families: one record describes all that differs from one to the other; `FAMILIES` has them by model_type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish_engine.contract.facts.coverage import Matrix
from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.models.families import (
    gemma,
    gemma4,
    glm,
    gpt_oss,
    granite,
    lfm,
    llama,
    olmo,
    phi,
    qwen,
    qwen3_5,
)
from burnish_engine.models.families.further import apertus, exaone, hunyuan, llama_like, mellum, minimax
from burnish_engine.models.families.record import Family, Module

__all__ = [
    "FAMILIES",
    "GGUF_METHOD",
    "Family",
    "Module",
    "family",
    "layer_matrices",
    "own_dropout",
    "softmax_in_fp32",
    "stores_blocks",
    "stores_fp8",
    "stores_gguf",
    "stores_nf4",
    "why_not_fast",
]

FAMILIES: dict[str, Family] = {
    record.model_type: record
    for kin in (
        llama, llama_like, qwen, qwen3_5, mellum, gemma, gemma4, lfm, granite, olmo, exaone, phi, glm, hunyuan, gpt_oss,
        minimax, apertus,
    )
    for record in kin.FAMILIES
}  # fmt: skip
"""model_type of config.json to the family's record."""
GGUF_METHOD = "gguf"
"""`quant_method` in the config.json that is read from a GGUF."""
_USUAL = Family("")
_UNFUSED = gemma.UNFUSED | granite.UNFUSED
_DROPOUTS = ("attention_dropout", "residual_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop")


def family(model_type: str) -> Family | None:
    """Return the family of a config.json's model_type; None where Burnish does not know it."""
    return FAMILIES.get(model_type)


def layer_matrices(spec: DecoderSpec, layer: LayerSpec) -> tuple[Matrix, ...]:
    """Return the matrices of a layer in the model's order: those counted on the built model, else the family's.

    Names are those of transformers 5. A family that Burnish does not know has Llama's.
    """
    return FAMILIES.get(spec.family, _USUAL).layer_matrices(spec, layer)


def softmax_in_fp32(model_type: str) -> bool | None:
    """Return `Family.softmax_in_fp32`, also for families that only the plain engine trains."""
    known = FAMILIES.get(model_type)
    return _UNFUSED.get(model_type) if known is None else known.softmax_in_fp32


def why_not_fast(config: dict[str, Any], spec: DecoderSpec | None, *, nf4: bool = False) -> str:
    """Explain why the fast decoder does not do this checkpoint, completing "The model ..."; empty where it does.

    Args:
        config: parsed config.json of the checkpoint.
        spec: specification that `decoder_spec` read from the config.
        nf4: whether the run keeps the frozen weights as NF4; then the checkpoint may store them so (bitsandbytes).
    """
    stored = config.get("quantization_config")
    is_mxfp4 = spec is not None and spec.has_mxfp4_experts
    is_read = (nf4 and stores_nf4(config)) or stores_fp8(config) or stores_gguf(config)
    if stored and not is_mxfp4 and (not is_read or (spec is not None and spec.num_experts > 0)):
        return "is stored quantized"
    if spec is None and isinstance(config.get("text_config"), dict):
        return "has parts beside its language model, such as one for images"
    found = family(str(config.get("model_type", "")))
    if found is None:
        return f"is of the architecture {config.get('model_type')!r}"
    return "has settings Burnish does not know" if spec is None else found.supported(spec)


def own_dropout(config: Mapping[str, Any]) -> float:
    """Return the largest probability of dropout that a config.json names; 0 where it names none.

    Args:
        config: parsed config.json of the checkpoint.
    """
    return max(float(config.get(key) or 0.0) for key in _DROPOUTS)


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


def stores_gguf(config: Mapping[str, Any]) -> bool:
    """Return whether a model's weights lie in a GGUF, in blocks or in 16 bits.

    Args:
        config: parsed config.json of the checkpoint, or what was read as such from the GGUF.
    """
    stored = config.get("quantization_config")
    return isinstance(stored, Mapping) and stored.get("quant_method") == GGUF_METHOD


def stores_blocks(config: Mapping[str, Any]) -> bool:
    """Return whether a model's linear weights lie in a GGUF in blocks, in which they stay in memory.

    Args:
        config: parsed config.json of the checkpoint, or what was read as such from the GGUF.
    """
    return stores_gguf(config) and bool(config["quantization_config"]["layers"])


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
