"""Published configurations shrunk to a fraction of a second of computing, with everything odd about them left in.

Rope bases, scalings and factors, windows, norms' epsilon, tied heads, head sizes and layer patterns are the published
ones; only counts and widths shrink. Windows and original contexts shrink to 64 and 256 tokens, so that rows of a test
reach beyond them. Weights are spread by 0.8 / sqrt(width); the published
initializer_range is 0.5 to 1.4 of 1 / sqrt(width).
"""

import torch

from burnish_engine.models.checkpoint.source import open_model

from support.models.published import CONFIGS
from support.models.published_kin import KIN
from support.models.tiny import make_tokenizer
from support.models.tiny_models import ONE_PLUS

ORIGINAL_CONTEXT = 256  # llama.cpp rounds a context up to this
WINDOW = 64

LFM2 = {
    "model_type": "lfm2", "block_auto_adjust_ff_dim": True, "block_ff_dim": 6656, "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 256, "conv_L_cache": 3, "conv_bias": False, "hidden_size": 1024, "norm_eps": 1e-05,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14], "max_position_embeddings": 128000, "num_attention_heads": 16,
    "num_hidden_layers": 16, "num_key_value_heads": 8, "rope_theta": 1000000.0, "vocab_size": 65536,
}  # fmt: skip
"""LiquidAI/LFM2-350M as published."""
LFM2_5 = {
    "model_type": "lfm2", "block_auto_adjust_ff_dim": False, "block_ff_dim": 4608, "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 256, "conv_L_cache": 3, "conv_bias": False, "hidden_size": 1024, "norm_eps": 1e-05,
    "intermediate_size": 4608, "layer_types": ["conv", "conv", "full_attention"] * 5 + ["conv"],
    "max_position_embeddings": 128000, "num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}, "tie_embedding": True, "vocab_size": 65536,
}  # fmt: skip
"""The newer form of the same, as LFM2.5 has it."""
SMOLLM2 = {
    "model_type": "llama", "hidden_act": "silu", "hidden_size": 576, "intermediate_size": 1536,
    "max_position_embeddings": 8192, "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
    "rms_norm_eps": 1e-05, "rope_theta": 100000, "tie_word_embeddings": True, "vocab_size": 49152,
}  # fmt: skip
PHI_4 = {
    "model_type": "phi3", "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 17920,
    "max_position_embeddings": 16384, "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10,
    "original_max_position_embeddings": 16384, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 250000,
    "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 100352,
}  # fmt: skip
GEMMA_3_4B_TEXT = {
    **CONFIGS["google/gemma-3-1b-it"], "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "num_key_value_heads": 4,
    "num_attention_heads": 8, "hidden_size": 2560, "sliding_window": 1024, "max_position_embeddings": 131072,
}  # fmt: skip
"""The language model of google/gemma-3-4b-it."""

_GEMMA4 = {
    "model_type": "gemma4_text", "attention_bias": False, "attention_dropout": 0.0, "final_logit_softcapping": 30.0,
    "global_head_dim": 512, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-06,
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "tie_word_embeddings": True, "use_bidirectional_attention": None, "vocab_size": 262144,
    "vocab_size_per_layer_input": 262144,
}  # fmt: skip
GEMMA4 = {
    "google/gemma-4-E2B-it, text": {
        **_GEMMA4, "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35, "num_attention_heads": 8,
        "num_key_value_heads": 1, "num_kv_shared_layers": 20, "use_double_wide_mlp": True, "sliding_window": 512,
        "hidden_size_per_layer_input": 256, "max_position_embeddings": 131072, "attention_k_eq_v": False,
        "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 7,
    },
    "google/gemma-4-31B-it, text": {
        **_GEMMA4, "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 60, "num_attention_heads": 32,
        "num_key_value_heads": 16, "num_global_key_value_heads": 4, "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0, "sliding_window": 1024, "max_position_embeddings": 262144,
        "attention_k_eq_v": True, "use_double_wide_mlp": False,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 10,
    },
}  # fmt: skip
"""Language models of Gemma 4, with the lent keys and inputs of the layers' own of the smaller ones."""
_QWEN3_5 = {
    "model_type": "qwen3_5_text", "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True,
    "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144, "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False,
    "rms_norm_eps": 1e-06, "vocab_size": 248320,
    "rope_parameters": {
        "mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
        "rope_theta": 10000000, "rope_type": "default",
    },
}  # fmt: skip
"""Settings that the dense models of Qwen3.5 share."""
QWEN3_5 = {
    "Qwen/Qwen3.5-0.8B, text": {
        **_QWEN3_5, "hidden_size": 1024, "intermediate_size": 3584, "num_attention_heads": 8, "num_hidden_layers": 24,
        "num_key_value_heads": 2, "linear_num_value_heads": 16, "tie_word_embeddings": True,
    },
    "Qwen/Qwen3.5-9B, text": {
        **_QWEN3_5, "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 16,
        "num_hidden_layers": 32, "num_key_value_heads": 4, "linear_num_value_heads": 32, "tie_word_embeddings": False,
    },
}  # fmt: skip
"""Language models of Qwen3.5: as many value heads as key heads, and twice as many."""

NEWER = {
    "ibm-granite/granite-3.3-2b-instruct": {
        "model_type": "granite", "attention_bias": False, "attention_dropout": 0.0, "attention_multiplier": 0.015625,
        "embedding_multiplier": 12.0, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192,
        "logits_scaling": 8.0, "max_position_embeddings": 131072, "mlp_bias": False, "num_attention_heads": 32,
        "num_hidden_layers": 40, "num_key_value_heads": 8, "residual_multiplier": 0.22, "rms_norm_eps": 1e-05,
        "rope_scaling": None, "rope_theta": 10000000.0, "tie_word_embeddings": True, "vocab_size": 49159,
    },
    "ibm-granite/granite-4.0-micro": {
        "model_type": "granitemoehybrid", "attention_bias": False, "attention_dropout": 0.0,
        "attention_multiplier": 0.015625, "embedding_multiplier": 12, "hidden_act": "silu", "hidden_size": 2560,
        "intermediate_size": 8192, "layer_types": ["attention"] * 40, "logits_scaling": 10,
        "max_position_embeddings": 131072, "num_attention_heads": 40, "num_experts_per_tok": 0,
        "num_hidden_layers": 40, "num_key_value_heads": 8, "num_local_experts": 0, "position_embedding_type": "rope",
        "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 10000000,
        "shared_intermediate_size": 8192, "tie_word_embeddings": True, "vocab_size": 100352, "mamba_n_heads": 128,
        "mamba_d_head": 40, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_d_conv": 4,
    },
    "allenai/OLMo-2-0425-1B-Instruct": {
        "model_type": "olmo2", "attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu",
        "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 4096, "num_attention_heads": 16,
        "num_hidden_layers": 16, "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "rope_scaling": None,
        "rope_theta": 500000, "tie_word_embeddings": False, "vocab_size": 100352,
    },
    "Granite SWA, made up": {
        "model_type": "granite_swa", "attention_bias": False, "attention_dropout": 0.0,
        "attention_multiplier": 0.0078125, "embedding_multiplier": 12.0, "hidden_act": "silu", "hidden_size": 2560,
        "intermediate_size": 8192, "layer_rope_theta": [0, *[10000.0] * 3] * 6,
        "layer_types": ["full_attention", *["sliding_attention"] * 3] * 6, "logits_scaling": 8.0,
        "max_position_embeddings": 8192, "mlp_bias": False, "num_attention_heads": 20, "num_hidden_layers": 24,
        "num_key_value_heads": 4, "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
        "sliding_window": 128, "tie_word_embeddings": True, "vocab_size": 100352,
    },
    "allenai/Olmo-3-7B-Instruct": {
        "model_type": "olmo3", "attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu",
        "hidden_size": 4096, "intermediate_size": 11008,
        "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 8, "max_position_embeddings": 65536,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
        "rope_scaling": {
            "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
            "original_max_position_embeddings": 8192, "rope_type": "yarn",
        },
        "rope_theta": 500000, "sliding_window": 4096, "tie_word_embeddings": False, "vocab_size": 100278,
    },
    "zai-org/glm-4-9b-chat-hf": {
        "model_type": "glm", "attention_bias": True, "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 4096, "intermediate_size": 13696, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2, "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1.5625e-07, "rope_theta": 5000000.0, "tie_word_embeddings": False, "vocab_size": 151552,
    },
    "zai-org/GLM-4-9B-0414": {
        "model_type": "glm4", "attention_bias": True, "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 4096, "intermediate_size": 13696, "max_position_embeddings": 32768,
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2, "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False, "vocab_size": 151552,
    },
    "swiss-ai/Apertus-8B-Instruct-2509": {
        "model_type": "apertus", "attention_bias": False, "attention_dropout": 0.0, "hidden_act": "xielu",
        "hidden_dropout": 0.0, "hidden_size": 4096, "intermediate_size": 21504, "max_position_embeddings": 65536,
        "mlp_bias": False, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "post_norm": False, "qk_norm": True, "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 12000000, "tie_word_embeddings": False, "vocab_size": 131072,
    },
    "mistralai/Ministral-3-3B, text": {
        "model_type": "ministral3", "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 3072, "intermediate_size": 9216, "max_position_embeddings": 262144, "num_attention_heads": 32,
        "num_hidden_layers": 26, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_parameters": {
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "rope_theta": 1000000.0,
            "rope_type": "yarn", "type": "yarn",
        },
        "sliding_window": None, "tie_word_embeddings": True, "vocab_size": 131072,
    },
}  # fmt: skip
"""Families that came later; Ministral 3's language model alone."""

PUBLISHED = {
    **CONFIGS, "LiquidAI/LFM2-350M": LFM2, "LiquidAI/LFM2.5-350M": LFM2_5, "HuggingFaceTB/SmolLM2-135M": SMOLLM2,
    "microsoft/phi-4": PHI_4, "google/gemma-3-4b-it, text": GEMMA_3_4B_TEXT, **NEWER,
    **QWEN3_5, **KIN, **GEMMA4,
}  # fmt: skip
_LAYERS = {"gemma3_text": 7, "smollm3": 5, "lfm2": 6, "lfm2_moe": 4, "olmo3": 4, "granite_swa": 4, "qwen3_5_text": 4,
           "qwen3_5_moe_text": 4}  # fmt: skip


def few_layers(config):
    """So many layers that each kind is there; all of EXAONE 4's 32B, which llama.cpp knows by their number."""
    whole = config["model_type"] == "exaone4" and config["sliding_window"]
    return config["num_hidden_layers"] if whole else _LAYERS.get(config["model_type"], 2)


def shrink(config):
    """A published configuration in small: few layers, few heads of their real size, a small vocabulary."""
    family = config["model_type"]
    heads, keys = config["num_attention_heads"], config["num_key_value_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    groups = heads // keys
    keys = 1 if groups > 2 else 2
    heads = keys * groups if groups <= 4 else keys * 4
    hidden = heads * head if family in {"exaone4", "glm", "helium", "phi3", "lfm2"} or "head_dim" not in config else 128
    layers = few_layers(config)
    small = {
        **config, "num_attention_heads": heads, "num_key_value_heads": keys, "hidden_size": hidden,
        "num_hidden_layers": layers, "intermediate_size": 384, "initializer_range": 0.8 * hidden**-0.5,
    }  # fmt: skip
    if "layer_types" in config:
        small["layer_types"] = config["layer_types"][:layers]
    for key in ("no_rope_layers", "layer_rope_theta"):
        if key in config:
            small[key] = config[key][:layers]
    small |= _small_gemma4(config)
    if "full_attn_idxs" in config:
        small["full_attn_idxs"] = [index for index in config["full_attn_idxs"] if index < layers]
    small |= fewer_delta_heads(config)
    if "block_ff_dim" in config:
        small["block_ff_dim"] = 384
    if config.get("sliding_window") is not None and config["sliding_window"] < config["max_position_embeddings"]:
        small["sliding_window"] = WINDOW
    if "original_max_position_embeddings" in config and config["rope_scaling"]:
        small["original_max_position_embeddings"] = ORIGINAL_CONTEXT
        small["max_position_embeddings"] = 4 * ORIGINAL_CONTEXT
        pairs = int(head * config.get("partial_rotary_factor", 1.0)) // 2
        scaling = config["rope_scaling"]
        small["rope_scaling"] = {
            **scaling,
            **{f"{kind}_factor": scaling[f"{kind}_factor"][:pairs] for kind in ("long", "short")},
        }
    if (config.get("rope_parameters") or {}).get("original_max_position_embeddings"):
        small["rope_parameters"] = {**config["rope_parameters"], "original_max_position_embeddings": ORIGINAL_CONTEXT}
        small["max_position_embeddings"] = 4 * ORIGINAL_CONTEXT
    if "logits_scaling" in config:
        small |= {  # small models have small logits, and their few layers add little to their embeddings
            name: config[name] / 16 for name in ("logits_scaling", "embedding_multiplier")
        }
    if "shared_intermediate_size" in config:
        small |= {"shared_intermediate_size": 384, "mamba_n_heads": 1, "mamba_d_head": "auto"}
    if (config.get("rope_scaling") or {}).get("original_max_position_embeddings"):
        small["rope_scaling"] = {**config["rope_scaling"], "original_max_position_embeddings": ORIGINAL_CONTEXT}
        small["max_position_embeddings"] = 4 * ORIGINAL_CONTEXT
    return small


def _small_gemma4(config):
    """Settings of a small Gemma 4: a turn of layers that lend keys, and one that borrows, where there are such."""
    if not config["model_type"].startswith("gemma4"):
        return {}
    turn, borrows = config["layer_types"].index("full_attention") + 1, bool(config.get("num_kv_shared_layers"))
    layers = turn * (1 + borrows)
    small = {"num_hidden_layers": layers, "layer_types": config["layer_types"][:layers]}
    small["num_kv_shared_layers"] = turn if borrows else 0
    if config.get("hidden_size_per_layer_input"):
        small["hidden_size_per_layer_input"] = 32
    return small | ({"num_global_key_value_heads": 1} if "num_global_key_value_heads" in config else {})


def fewer_delta_heads(config):
    """Two key heads for the gated delta nets of a published configuration, as many value heads for each as there."""
    if "linear_num_key_heads" not in config:
        return {}
    each = config["linear_num_value_heads"] // config["linear_num_key_heads"]
    sizes = dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 64)
    return {"linear_num_key_heads": 2, "linear_num_value_heads": 2 * each, **sizes}


def make_small(name, folder, *, tokenizer=make_tokenizer, **changes):
    """A model of a published configuration in small: random bf16 weights, norms and biases that matter.

    Args:
        name: Of `PUBLISHED`.
        folder: Where.
        tokenizer: Makes and saves a tokenizer in a folder.
        changes: More keys of the configuration.

    Returns:
        The opened source.
    """
    import json

    from transformers import AutoConfig, AutoModelForCausalLM

    made = tokenizer(folder)
    config = {**shrink(PUBLISHED[name]), "vocab_size": len(made) + 5, **changes}
    if "vocab_size_per_layer_input" in config:
        config["vocab_size_per_layer_input"] = config["vocab_size"]
    config |= {"bos_token_id": made.bos_token_id, "eos_token_id": made.eos_token_id, "pad_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    one_plus = config["model_type"] in ONE_PLUS
    with torch.no_grad():
        for key, value in model.named_parameters():
            if value.ndim == 1 and not key.endswith("A_log"):
                plain = "norm" in key and (not one_plus or key.endswith("linear_attn.norm.weight"))
                value.normal_(1.0 if plain else 0.0, 0.2 if "norm" in key else 0.1)
            if "gemma4" in config["model_type"] and key.endswith("q_norm.weight"):
                value.mul_(value.numel() ** -0.5)  # scores are not scaled
        for key, value in model.named_buffers():
            if key.endswith("layer_scalar"):
                value.uniform_(0.5, 1.5)
    model.to(torch.bfloat16).save_pretrained(folder)
    return open_model(str(folder))
