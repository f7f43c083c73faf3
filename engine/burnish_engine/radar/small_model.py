"""Small models of any causal type that the installed transformers knows, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from burnish_engine.advise.facts.catalog import published_config

TEXTS = (
    "The lamp in the hall is dark again, and the spare one from the shop does not fit.",
    "My bike makes a noise at every turn of the pedals, as if something were loose inside.",
    "Soup for 4 people: 2 onions, 3 carrots, 500 g of beans, salt, and an hour of patience.",
    "The printer takes the paper, thinks about it for a while and gives it back unprinted.",
)
"""Rows to train on, and what the tokenizer is made of."""
_TEMPLATE = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
VOCABULARY = {"vocab_size": 97, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
"""The vocabulary of a model that has no tokenizer."""
_TOKENS, _SPECIAL = 320, ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_LAYERS, _MOST_LAYERS, _MOST_WEIGHTS, _WINDOW = 4, 8, 40_000_000, 16
_NAMES: dict[int, str] = {
    512: "max_position_embeddings",
    128: "intermediate_size mamba_d_ssm attention_hidden_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim "
    "ffn_hidden_size",
    64: "hidden_size moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size "
    "shared_intermediate_size expert_ffn_hidden_size shared_experts_intermediate_size lru_width d_model n_embd "
    "embedding_size",
    32: "query_pre_attn_scalar kv_lora_rank q_lora_rank index_head_dim qk_head_dim attention_head_dim "
    "router_hidden_size",
    16: "qk_rope_head_dim qk_nope_head_dim v_head_dim mamba_n_heads mamba_d_state linear_key_head_dim "
    "linear_value_head_dim index_topk laurel_rank hidden_size_per_layer_input",
    8: "mamba_d_head rotary_dim mamba_dt_rank num_heads",
    4: "num_attention_heads num_experts num_local_experts n_routed_experts moe_num_experts linear_num_value_heads "
    "index_n_heads n_head n_heads encoder_attention_heads decoder_attention_heads",
    2: "num_experts_per_tok num_experts_per_token moe_k moe_topk moe_top_k linear_num_key_heads zero_expert_num "
    "decoder_layers",
    1: "n_shared_experts n_group topk_group num_expert_group num_group first_k_dense_replace mamba_n_groups n_groups "
    "encoder_layers",
}  # fmt: skip
"""Sizes, each with the names that configs have for it; names that a config does not have are left out."""
_SMALL: dict[str, Any] = {
    **{name: size for size, names in _NAMES.items() for name in names.split()},
    "vocab_size_per_layer_input": _TOKENS,
    "layer_types": ["conv", "full_attention"] * 2,
    "is_decoder": True,
}
_NOT_PUBLISHED = ("model_type", "wrapper", "rope_scaling")
"""Keys that are not taken from a published config: factors of a rope are for heads of their size."""
_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")


class StaysLargeError(Exception):
    """A model that its config does not let be made small."""


def save_small(model_type: str, folder: Path) -> Path:
    """Save a small model of a type with random weights and a tokenizer; returns the folder.

    Norms, biases and attention matter in it: weights are spread by 0.8 / sqrt(inputs), vectors by 0.1 around their
    start, and windows are shorter than the rows.

    Raises:
        Exception: transformers cannot build or compute it, with errors of any kind; that of the first sizes tried.
    """
    tokenizer = _save_tokenizer(folder)
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    small_model(model_type, {**ids, "vocab_size": len(tokenizer)}).save_pretrained(folder)
    return folder


def small_config(model_type: str, sizes: Mapping[str, Any], *, unset: bool = False) -> Any:
    """Return the config of a type with few and narrow layers, one of each kind at least.

    Args:
        model_type: name of the type.
        sizes: sizes and token ids by name; those that the config does not have are left out.
        unset: whether sizes are given too that the config has and leaves unset.
    """
    return _small(partial(AutoConfig.for_model, model_type), model_type, sizes, unset=unset)


def _small(make: Callable[..., Any], model_type: str, sizes: Mapping[str, Any], *, unset: bool) -> Any:
    """Make a config and those in it small, see `small_config`."""
    published = {key: value for key, value in published_config(model_type).items() if key not in _NOT_PUBLISHED}
    usual = make(**published)
    parts = {name: part for name in usual.sub_configs if (part := getattr(usual, name, None)) is not None}
    nested = {name: _small(type(part), part.model_type, sizes, unset=unset).to_dict() for name, part in parts.items()}
    return make(**published | _own_sizes(usual, sizes, unset=unset) | nested)


def _own_sizes(config: Any, sizes: Mapping[str, Any], *, unset: bool) -> dict[str, Any]:
    """Return the sizes that a config has; counts only become smaller, so that what is off stays off."""
    known, found = config.to_dict(), {}
    for key, value in {**_head_sizes(known), **sizes, **_layer_sizes(known)}.items():
        before = known.get(key)
        if key.endswith("_id"):
            found[key] = value
        elif before is not None:
            found[key] = min(before, value) if type(before) is int and type(value) is int else value
        elif unset and key in known:
            found[key] = value
    return found


def _head_sizes(config: Mapping[str, Any]) -> dict[str, int]:
    """Return key heads and a head's size, with the ratios to query heads and width that the config has."""
    heads, keys, width = (config.get(key) for key in ("num_attention_heads", "num_key_value_heads", "hidden_size"))
    size = config.get("head_dim")
    fills = bool(heads and size and heads * size == width)
    return {"num_key_value_heads": 4 if keys == heads else 2, "head_dim": 16 if fills else 32}


def small_model(model_type: str, vocabulary: Mapping[str, int] = VOCABULARY) -> Any:
    """Build a model in the first sizes in which it computes.

    Args:
        model_type: name of the type.
        vocabulary: number of tokens and the ids of special ones, by their names in a config.

    Raises:
        Exception: as in `save_small`.
    """
    ids = {**vocabulary, "decoder_start_token_id": vocabulary["bos_token_id"]}
    usual = {**_SMALL, **ids}
    narrow = {**usual, "head_dim": 16}
    alike = {**narrow, "num_key_value_heads": 4}
    failed: list[Exception] = []
    for sizes, unset in ((usual, 0), (narrow, 0), (alike, 0), (usual, 1), (narrow, 1), (alike, 1), (ids, 0)):
        try:
            return _computing(small_config(model_type, sizes, unset=bool(unset)))
        except Exception as error:  # noqa: BLE001  transformers fails with errors of any kind
            failed.append(error)
    raise failed[0]


def _computing(config: Any) -> Any:
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config)
    if sum(value.numel() for value in empty.parameters()) > _MOST_WEIGHTS:
        raise StaysLargeError
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim > 1:
                value.normal_(0, 0.8 * value.shape[-1] ** -0.5)
            else:
                value.add_(0.1 * torch.randn_like(value))
        model(input_ids=torch.arange(3, 11)[None], use_cache=False)
    return model


def _layer_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return number of layers, what the config lists for each of them, and windows; every kind of layer stays."""
    usual = next((count for key in _LAYER_COUNTS if (count := config.get(key))), 0)
    lists = {key: value for key, value in config.items() if isinstance(value, list) and len(value) == usual}
    kinds = lists.get("layer_types") or []
    prefix = next((n for n in range(1, len(kinds) + 1) if set(kinds[:n]) == set(kinds)), 1)
    shared = min(config.get("num_kv_shared_layers") or 0, 1)  # without layers of their kind before them there are none
    layers = min(max(prefix + shared, _LAYERS), _MOST_LAYERS)
    sizes = dict.fromkeys(_LAYER_COUNTS, layers) | {key: value[:layers] for key, value in lists.items()}
    if any("sliding" in kind for kind in kinds):
        sizes["sliding_window"] = _WINDOW
    return sizes | {"attention_chunk_size": _WINDOW, "num_kv_shared_layers": shared}


def _save_tokenizer(folder: Path) -> Any:
    """Save a byte-level BPE tokenizer, split as SmolLM's is, which llama.cpp knows."""
    tokenizer = Tokenizer(models.BPE())
    digits, level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=_TOKENS, special_tokens=list(_SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _SPECIAL])
    unknown, begin, end = _SPECIAL
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=begin, eos_token=end, pad_token=end, unk_token=unknown
    )
    fast.chat_template = _TEMPLATE
    fast.save_pretrained(folder)
    return fast
