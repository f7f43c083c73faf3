"""Checks of a model folder before any weight is read: values of config.json, and tensor shapes in the file headers.

A wrong value would otherwise lead to an error deep in transformers, a refusal after minutes of loading, or a model of
which a part is random or left out. Loads no torch.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe_data import SHORTEST_ROW
from burnish_engine.models.checkpoint.safetensors_header import PLAIN_TYPES, StoredTensor
from burnish_engine.models.checkpoint.spec import MOST_LAYERS
from burnish_engine.models.families import family
from burnish_engine.models.families.experts import BLOCKS
from burnish_engine.models.families.rules.mixture import COUNT_KEYS, MOST_EXPERTS

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_MOST = 2**31  # tokenizers and kernels count in 32 bits
_COUNTS = {"vocab_size": _MOST, "hidden_size": _MOST, "num_hidden_layers": MOST_LAYERS}
_COUNTS_OF_KNOWN = {
    "intermediate_size": _MOST, "num_attention_heads": _MOST, "num_key_value_heads": _MOST, "head_dim": _MOST,
    "max_position_embeddings": _MOST, "sliding_window": _MOST,
}  # fmt: skip
_LEAST = {"max_position_embeddings": SHORTEST_ROW}  # least value where it is not 1
_BOOLEANS = ("attention_bias", "mlp_bias", "conv_bias", "tie_word_embeddings", "use_sliding_window")
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
_NUMBERS = ("rms_norm_eps", "norm_eps", "rope_theta")
ACTIVATIONS = frozenset({
    "gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh", "gelu_pytorch_tanh",
    "hardswish", "laplace", "leaky_relu", "linear", "mish", "prelu", "quick_gelu", "relu", "relu2", "relu6", "sigmoid",
    "silu", "sqrtsoftplus", "swish", "tanh", "xielu",
})  # fmt: skip
"""Names of activations that transformers has (`ACT2FN` in activations.py)."""
DTYPES = frozenset({
    "bfloat16", "double", "float", "float16", "float32", "float4_e2m1fn_x2", "float64", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "half",
})  # fmt: skip
"""Names of torch's floating-point types, of which transformers takes `dtype` and `torch_dtype`."""
ROPE_TYPES = frozenset({"default", "dynamic", "linear", "llama3", "longrope", "proportional", "su", "yarn"})
"""Names of rotary embeddings that transformers has (`ROPE_INIT_FUNCTIONS`), the plain one, and Phi-3's older name."""
_MAY_BE_NULL = {"num_key_value_heads", "head_dim", "sliding_window"}
_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_SHAPES = {
    "embed_tokens": "vocab_size, hidden_size",
    "lm_head": "vocab_size, hidden_size",
    "q_proj": "num_attention_heads x head_dim, hidden_size",
    "k_proj": "num_key_value_heads x head_dim, hidden_size",
    "v_proj": "num_key_value_heads x head_dim, hidden_size",
    "qkv_proj": "(num_attention_heads + 2 x num_key_value_heads) x head_dim, hidden_size",
    "o_proj": "hidden_size, num_attention_heads x head_dim",
    "gate_proj": "intermediate_size, hidden_size",
    "up_proj": "intermediate_size, hidden_size",
    "gate_up_proj": "2 x intermediate_size, hidden_size",
    "input_linear": "2 x shared_intermediate_size, hidden_size",
    "output_linear": "hidden_size, shared_intermediate_size",
    "down_proj": "hidden_size, intermediate_size",
    "q_norm": "head_dim; of OLMo 2 and OLMoE, all heads",
    "k_norm": "head_dim; of OLMo 2 and OLMoE, all heads",
    "in_proj": "3 x hidden_size, hidden_size",
    "conv": "hidden_size, 1, conv_L_cache",
    **dict.fromkeys(("w1", "w3"), "block_ff_dim or intermediate_size, hidden_size"),
    "w2": "hidden_size, block_ff_dim or intermediate_size",
    "gate": "num_experts, hidden_size",
    "router": "num_local_experts, hidden_size",
}
"""Module to the keys of config.json that its weight's shape follows from; of every other vector it is hidden_size."""


def check_config(folder: Path, config: Mapping[str, Any], *, nested: bool = False) -> None:
    """Refuse values of config.json that no trainable model can have.

    Args:
        folder: the model folder, for messages.
        config: the language model's configuration.
        nested: whether the configuration is nested under text_config.

    Raises:
        SetupError: A size is null, no whole number, too small or absurd, an epsilon is no positive number, the
            activation or rope is none that transformers has, the dtype none of torch's, the heads do not share out, or
            a switch or token id is of another type. The message names key and value.
    """
    known = family(str(config.get("model_type")))
    # transformers writes 0 where a window that has to be asked for is not (`Qwen2MoeConfig`).
    least = {**_LEAST, "sliding_window": 0} if known and known.config.window_on_request else _LEAST
    for key, most in {**_COUNTS, **(_COUNTS_OF_KNOWN if known else {})}.items():
        if key in config and not (config[key] is None and key in _MAY_BE_NULL):
            _check(folder, nested, key, config[key], _why_no_count(config[key], most, least.get(key, 1)))
    for key in _NUMBERS:
        value = config.get(key)
        if key in config and not (value is None and known is None):
            _check(folder, nested, key, value, _why_no_number(value))
    activation = known.config.activation_key if known else ""
    if activation in config:
        _check(folder, nested, activation, config[activation], _why_no_activation(config[activation]))
    for key in ("dtype", "torch_dtype"):
        if key in config:  # beside text_config or in it
            _check(folder, False, key, config[key], _why_no_dtype(config[key]))
    if known:
        _check_known(folder, nested, config, divide_width=known.config.heads_divide_width)


def check_tensors(
    folder: Path, config: Mapping[str, Any], spec: DecoderSpec | None, tensors: Mapping[str, StoredTensor]
) -> None:
    """Compare the tensors that the weight files announce with config.json.

    Args:
        folder: the model folder, for messages.
        config: the language model's configuration.
        spec: specification of the language model; None: nothing is compared.
        tensors: headers of the language model's tensors, by the names of the language model alone.

    Raises:
        SetupError: Tensors are missing, have other shapes, or are of more or fewer layers. The message names the first.
    """
    if spec is None:
        return
    wanted = _expected(config, spec, tensors)
    if not wanted.keys() & tensors.keys():
        raise SetupError(
            f"The weights in {folder} hold none of the tensors of a {spec.family} model, such as {EMBEDDING}.",
            "Download the model again: config and weights are of different models.",
        )
    layers = 1 + max((int(match[1]) for match in map(_LAYER.match, tensors) if match), default=-1)
    if layers != spec.num_layers:
        raise SetupError(
            f"config.json in {folder} has num_hidden_layers = {spec.num_layers}, and the weight files hold {layers} "
            "layers.",
            "Download the model again: config and weights are of different models, or files are missing.",
        )
    missing = [name for name in wanted if name not in tensors]
    if missing:
        raise SetupError(
            f"The weights in {folder} lack {len(missing)} of {len(wanted)} tensors, first {missing[0]}.",
            "Download the model again.",
        )
    for name, shape in wanted.items():
        stored = tensors[name]
        if stored.shape != shape and (stored.dtype in PLAIN_TYPES or name.endswith(BLOCKS)):
            parts = name.split(".")
            keys = _SHAPES.get(parts[-2], "hidden_size") if parts[-1] == "weight" else "its weight's rows"
            keys = "number and width of the experts, hidden_size" if "experts" in parts else keys
            keys = "one number of the activation" if "act_fn" in parts else keys
            raise SetupError(
                f"The tensor {stored.name} in {stored.file} has the shape {list(stored.shape)}; config.json says "
                f"{list(shape)} ({keys}).",
                "Download the model again: config and weights are of different models.",
            )


def embedding_rows(config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> int:
    """Return the rows of the embedding: those of the stored tensor, else vocab_size; 0 where neither is known."""
    stored, size = tensors.get(EMBEDDING), config.get("vocab_size")
    if stored is not None and len(stored.shape) == 2:
        return stored.shape[0]
    return size if isinstance(size, int) else 0


def _expected(
    config: Mapping[str, Any], spec: DecoderSpec, tensors: Mapping[str, StoredTensor]
) -> dict[str, tuple[int, ...]]:
    """Return name and shape of the tensors that must exist; of quantized weights only the never quantized ones."""
    known = family(spec.family)
    embedding: dict[str, tuple[int, ...]] = {EMBEDDING: (spec.vocab_size, spec.hidden_size)}
    if known is None:
        return embedding
    if config.get("quantization_config") and not spec.has_mxfp4_experts:
        return embedding | {vector.name: vector.shape for vector in known.vectors(spec)}
    return known.tensors(spec, tensors)


def _check_known(folder: Path, nested: bool, config: Mapping[str, Any], *, divide_width: bool) -> None:
    """Check what only families with a specification are known to have."""
    for key in _BOOLEANS:
        value = config.get(key)
        _check(folder, nested, key, value, "" if value is None or isinstance(value, bool) else "which is no switch")
    for key in _TOKENS:
        _check(folder, False, key, config.get(key), why_no_tokens(config.get(key)))  # beside text_config or in it
    for key in ("rope_scaling", "rope_parameters"):
        _check_rope(folder, nested, key, config.get(key))
    if all(isinstance(config.get(key), int) for key in ("hidden_size", "num_attention_heads")):
        _check_heads(folder, nested, config, divide_width=divide_width)
    for key in COUNT_KEYS:
        count = config.get(key) or 0  # dense models of a family with mixtures
        _check(folder, nested, key, count, _why_no_count(count, MOST_EXPERTS) if count else "")
    experts, visited = next(filter(None, map(config.get, COUNT_KEYS)), None), config.get("num_experts_per_tok")
    if isinstance(experts, int) and isinstance(visited, int) and visited > experts:
        _check(folder, nested, "num_experts_per_tok", visited, f"and the model has {experts} experts")


def _check_rope(folder: Path, nested: bool, key: str, rope: Any) -> None:
    """Check the type of a rotary embedding, or of those for each kind of layer."""
    if not isinstance(rope, Mapping):
        return
    for inner, value in rope.items():
        _check_rope(folder, nested, f"{key}.{inner}", value)
        if inner in ("rope_type", "type") and not (isinstance(value, str) and value in ROPE_TYPES):
            _check(folder, nested, f"{key}.{inner}", value, "which is no rotary embedding that transformers has")


def _check_heads(folder: Path, nested: bool, config: Mapping[str, Any], *, divide_width: bool) -> None:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    keys = config.get("num_key_value_heads") or heads
    if width % heads and (not config.get("head_dim") or divide_width):
        _check(folder, nested, "num_attention_heads", heads, f"which does not divide hidden_size = {width}")
    if heads % keys:
        _check(folder, nested, "num_attention_heads", heads, f"which is no multiple of num_key_value_heads = {keys}")


def _why_no_count(value: Any, most: int, least: int = 1) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return "which is no whole number"
    if value < least:
        return f"which must be at least {least}"
    return f"which is more than any model has ({most:,} at most)" if value > most else ""


def _why_no_number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "which is no number"
    return "" if 0 < value <= sys.float_info.max else "which is no positive, finite number"


def _why_no_activation(value: Any) -> str:
    return "" if isinstance(value, str) and value in ACTIVATIONS else "which is no activation that transformers has"


def why_no_tokens(value: Any) -> str:
    """Say why a value is no token id and no list of them; empty where it is one, or null."""
    ids = value if isinstance(value, list) else [value]
    fits = value is None or all(isinstance(one, int) and not isinstance(one, bool) for one in ids)
    return "" if fits else "which is no token id"


def _why_no_dtype(value: Any) -> str:
    if value is None or isinstance(value, dict):  # a type for each part of a model
        return ""
    known = isinstance(value, str) and value.removeprefix("torch.") in DTYPES
    return "" if known else "which is no floating-point type of torch"


def _check(folder: Path, nested: bool, key: str, value: Any, why: str) -> None:
    if why:
        shown = json.dumps(value)
        raise SetupError(
            f"config.json in {folder} has {'text_config.' if nested else ''}{key} = "
            f"{shown if len(shown) <= 60 else shown[:57] + '...'}, {why}.",
            "Download config.json again, or correct it.",
        )
