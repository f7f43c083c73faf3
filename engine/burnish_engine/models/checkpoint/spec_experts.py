"""Read a mixture of experts from `config.json`: how many there are, which layers have them, and how they are chosen."""

from __future__ import annotations

from typing import Any, Literal

from burnish_engine.contract.facts.facts import ExpertSpec

_USUAL_COUNTS = {"qwen3_moe": 128, "olmoe": 64, "mixtral": 8, "lfm2_moe": 32, "gpt_oss": 128}
MIXTURES = frozenset(_USUAL_COUNTS)
"""model_type of the mixtures whose config is read fully."""
COUNT_KEYS = ("num_experts", "num_local_experts")
"""Keys of config.json that give the number of experts, the first that is there."""
MOST_EXPERTS = 4096
"""Most experts of a layer that are believed: a name is listed for each of their tensors."""
_ROUTERS: dict[str, Literal["softmax_topk", "topk_softmax", "sigmoid"]] = {
    "gpt_oss": "topk_softmax", "lfm2_moe": "sigmoid",
}  # fmt: skip
_ALWAYS_NORMALIZED = {"mixtral", "gpt_oss"}


def expert_count(config: dict[str, Any], family: str) -> int:
    """Return the number of experts of a layer; 0 where there are none.

    Args:
        config: parsed `config.json` of the checkpoint.
        family: model_type of the config.

    Raises:
        TypeError, ValueError: The number is none, or absurd.
    """
    named = (config[key] for key in COUNT_KEYS if config.get(key) is not None)
    count = int(next(named, _USUAL_COUNTS.get(family, 0)))
    if count > MOST_EXPERTS:
        raise ValueError(f"{count} experts")
    return count


def expert_spec(config: dict[str, Any], family: str, count: int) -> ExpertSpec | None:
    """Return the experts of a known mixture (transformers' modeling_*.py of each family); None for other models.

    Args:
        config: parsed `config.json` of the checkpoint, with its family's defaults for absent keys.
        family: model_type of the config.
        count: number of experts.

    Raises:
        LookupError, TypeError, ValueError: Something is missing, odd, or not computed by Burnish.
    """
    if family not in MIXTURES or not count:
        return None
    slots = int(config["num_experts_per_tok"])
    if not 0 < slots <= count:
        raise ValueError(f"{slots} of {count} experts a token")
    if config.get("router_jitter_noise"):
        raise ValueError("a router with noise")
    is_oss, is_lfm2 = family == "gpt_oss", family == "lfm2_moe"
    separate = family in {"qwen3_moe", "lfm2_moe"}
    return ExpertSpec(
        count=count,
        slots=slots,
        size=int(config["moe_intermediate_size" if separate else "intermediate_size"]),
        router=_ROUTERS.get(family, "softmax_topk"),
        normalize=family in _ALWAYS_NORMALIZED or bool(config.get("norm_topk_prob", False)),
        scale=float(config["routed_scaling_factor"]) if is_lfm2 else 1.0,
        rounded=family != "mixtral",
        router_bias=is_oss,
        selection_bias=is_lfm2 and bool(config["use_expert_bias"]),
        bias=is_oss,
        layout="interleaved" if is_oss else "halves",
        activation="clamped" if is_oss else "silu",
        alpha=float(config["swiglu_alpha"]) if is_oss else 1.702,
        limit=float(config["swiglu_limit"]) if is_oss else 7.0,
        storage="mxfp4" if is_oss and _is_mxfp4(config.get("quantization_config")) else "dense",
    )


def mixture_layers(config: dict[str, Any], family: str, experts: int, count: int) -> list[bool]:
    """Return which layers are mixtures: every n-th of Qwen3's, except those listed as dense; not LFM2's first ones.

    Args:
        config: parsed `config.json` of the checkpoint, with its family's defaults for absent keys.
        family: model_type of the config.
        experts: number of experts of a layer.
        count: number of layers.
    """
    if family == "lfm2_moe":
        return [experts > 0 and i >= int(config["num_dense_layers"]) for i in range(count)]
    if family != "qwen3_moe":
        return [experts > 0] * count
    step, dense = int(config.get("decoder_sparse_step") or 1), set(config.get("mlp_only_layers") or [])
    return [experts > 0 and i not in dense and (i + 1) % step == 0 for i in range(count)]


def _is_mxfp4(stored: Any) -> bool:
    return isinstance(stored, dict) and stored.get("quant_method") == "mxfp4"
