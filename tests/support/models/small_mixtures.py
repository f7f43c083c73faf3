"""Published mixtures of experts shrunk to a fraction of a second of computing, and adapters on their experts."""

import json

import torch

from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.transformers_path.plain import attach_adapter, load_base

from support.models.catalog_models import pack_mxfp4
from support.models.small_families import GEMMA4, ORIGINAL_CONTEXT, WINDOW, fewer_delta_heads
from support.models.tiny import make_tokenizer

CPU = torch.device("cpu")
PUBLISHED = {
    "Qwen/Qwen3-30B-A3B": {
        "model_type": "qwen3_moe", "attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960,
        "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": True,
        "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000.0,
        "sliding_window": None, "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936,
    },
    "Qwen/Qwen1.5-MoE-A2.7B": {
        "model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_act": "silu", "hidden_size": 2048,
        "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
        "moe_intermediate_size": 1408, "norm_topk_prob": False, "num_attention_heads": 16, "num_experts": 60,
        "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
        "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936,
    },
    "allenai/OLMoE-1B-7B-0924": {
        "model_type": "olmoe", "attention_bias": False, "clip_qkv": None, "hidden_act": "silu", "hidden_size": 2048,
        "intermediate_size": 1024, "max_position_embeddings": 4096, "norm_topk_prob": False, "num_attention_heads": 16,
        "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16, "num_key_value_heads": 16,
        "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "vocab_size": 50304,
    },
    "mistralai/Mixtral-8x7B-v0.1": {
        "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "num_local_experts": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
        "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 32000,
    },
    "LiquidAI/LFM2-8B-A1B": {
        "model_type": "lfm2_moe", "conv_L_cache": 3, "conv_bias": False, "hidden_size": 2048, "intermediate_size": 7168,
        "layer_types": ["conv", "conv", "full_attention", "conv"] * 6, "max_position_embeddings": 128000,
        "moe_intermediate_size": 1792, "norm_eps": 1e-05, "norm_topk_prob": True, "num_attention_heads": 32,
        "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4, "num_hidden_layers": 24,
        "num_key_value_heads": 8, "rope_theta": 1000000.0, "routed_scaling_factor": 1.0, "use_expert_bias": True,
        "vocab_size": 65536,
    },
    "openai/gpt-oss-20b": {
        "model_type": "gpt_oss", "attention_bias": True, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
        "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention"] * 12,
        "max_position_embeddings": 131072, "num_attention_heads": 64, "num_experts_per_tok": 4,
        "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32, "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
            "rope_type": "yarn", "truncate": False,
        },
        "rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": False,
        "vocab_size": 201088,
    },
    "Qwen/Qwen3.5-35B-A3B, text": {
        "model_type": "qwen3_5_moe_text", "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True,
        "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144, "moe_intermediate_size": 512, "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False, "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8,
        "num_hidden_layers": 40, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_parameters": {
            "mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
            "rope_theta": 10000000, "rope_type": "default",
        },
        "shared_expert_intermediate_size": 512, "tie_word_embeddings": False, "vocab_size": 248320,
    },
    "JetBrains/Mellum2-12B-A2.5B-Base": {
        "model_type": "mellum", "attention_bias": False, "attention_dropout": 0.0, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 2304, "intermediate_size": 7168,
        "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 7, "max_position_embeddings": 131072,
        "mlp_layer_types": ["sparse"] * 28, "moe_intermediate_size": 896, "norm_topk_prob": True,
        "num_attention_heads": 32, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 28,
        "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
        "rope_parameters": {
            "full_attention": {
                "attention_factor": 1.2772588722239782, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0,
                "original_max_position_embeddings": 8192, "rope_theta": 500000.0, "rope_type": "yarn",
            },
            "sliding_attention": {"rope_theta": 500000.0, "rope_type": "default"},
        },
        "sliding_window": 1024, "tie_word_embeddings": False, "vocab_size": 98304,
    },
    "MiniMaxAI/MiniMax-M2": {
        "model_type": "minimax_m2", "head_dim": 128, "hidden_act": "silu", "hidden_size": 3072,
        "intermediate_size": 1536, "max_position_embeddings": 196608, "num_attention_heads": 48,
        "num_experts_per_tok": 8, "num_hidden_layers": 62, "num_key_value_heads": 8, "num_local_experts": 256,
        "rms_norm_eps": 1e-06, "rope_theta": 5000000, "rotary_dim": 64, "scoring_func": "sigmoid",
        "tie_word_embeddings": False, "use_qk_norm": True, "use_routing_bias": True, "vocab_size": 200064,
    },
    "ibm-granite/granite-3.1-1b-a400m-instruct": {
        "model_type": "granitemoe", "attention_bias": False, "attention_multiplier": 0.015625,
        "embedding_multiplier": 12.0, "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 512,
        "logits_scaling": 6.0, "max_position_embeddings": 131072, "num_attention_heads": 16,
        "num_experts_per_tok": 8, "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
        "residual_multiplier": 0.22, "rms_norm_eps": 1e-06, "rope_theta": 1500000.0, "tie_word_embeddings": True,
        "vocab_size": 49155,
    },
    "google/gemma-4-26B-A4B-it, text": {
        **GEMMA4["google/gemma-4-31B-it, text"], "hidden_size": 2816, "intermediate_size": 2112,
        "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2,
        "enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 5,
    },
}  # fmt: skip
"""config.json of mixtures by name, without the keys that say nothing of the shape."""
_EXPERTS = {
    "qwen3_moe": (8, 3), "qwen2_moe": (6, 2), "olmoe": (8, 2), "mixtral": (8, 2), "lfm2_moe": (6, 2), "gpt_oss": (4, 2),
    "qwen3_5_moe_text": (8, 3), "mellum": (8, 3), "minimax_m2": (6, 2), "granitemoe": (8, 2), "gemma4_text": (8, 3),
}  # fmt: skip
"""Number of a layer's experts, and of those of a token, by the type of model."""
GPT_OSS = "openai/gpt-oss-20b"


def shrink(config, hidden=128, size=64):
    """A small configuration of the same kind.

    Args:
        config: published configuration.
        hidden: hidden size.
        size: intermediate size of an expert.
    """
    family, separate = config["model_type"], "moe_intermediate_size" in config
    experts, slots = _EXPERTS[family]
    small = {
        **config, "hidden_size": hidden,
        "num_hidden_layers": 4 if family in {"lfm2_moe", "mellum", "qwen3_5_moe_text"} else 2,
        "num_attention_heads": 4, "num_key_value_heads": 4 if family == "olmoe" else 2, "num_experts_per_tok": slots,
        "initializer_range": 0.8 * hidden**-0.5, "max_position_embeddings": 4 * ORIGINAL_CONTEXT,
        "intermediate_size": 2 * size if separate else size,
        "num_experts" if "num_experts" in config else "num_local_experts": experts,
    }  # fmt: skip
    if separate:
        small["moe_intermediate_size"] = size
    if "shared_expert_intermediate_size" in config:
        small["shared_expert_intermediate_size"] = 2 * size
    if family == "gemma4_text":
        small |= {"top_k_experts": slots, "layer_types": ["sliding_attention", "full_attention"]}
        small |= {"sliding_window": WINDOW, "num_global_key_value_heads": 1}
        del small["num_experts_per_tok"]
        return small
    if "linear_num_key_heads" in config:
        small |= fewer_delta_heads(config)
    if "layer_types" in config:
        small["layer_types"] = config["layer_types"][: small["num_hidden_layers"]]
    if "mlp_layer_types" in config:
        small["mlp_layer_types"] = config["mlp_layer_types"][: small["num_hidden_layers"]]
        full = {**config["rope_parameters"]["full_attention"], "original_max_position_embeddings": ORIGINAL_CONTEXT}
        small["rope_parameters"] = {**config["rope_parameters"], "full_attention": full}
        small["sliding_window"] = WINDOW
    if "logits_scaling" in config:
        small |= {name: config[name] / 16 for name in ("logits_scaling", "embedding_multiplier")}
    if family == "gpt_oss":
        small["sliding_window"] = WINDOW
        small["rope_scaling"] = {**config["rope_scaling"], "original_max_position_embeddings": ORIGINAL_CONTEXT}
    return small


def whole_pairs(name):
    """gpt-oss with bounds of its rope rounded as llama.cpp rounds them, so that the two compute the same."""
    rope = PUBLISHED[name].get("rope_scaling")
    if rope is None:
        return {}
    return {"rope_scaling": {**rope, "truncate": True, "original_max_position_embeddings": ORIGINAL_CONTEXT}}


def make_mixture(name, folder, *, hidden=128, size=64, mxfp4=False, tokenizer=make_tokenizer, **changes):
    """A small mixture with a tokenizer, random bf16 weights, and norms, biases and sinks that matter.

    Args:
        name: name in `PUBLISHED`.
        folder: folder to make it in.
        hidden: hidden size.
        size: intermediate size of an expert.
        mxfp4: whether the experts are stored in MXFP4, as gpt-oss's are.
        tokenizer: function that makes a tokenizer and saves it in a folder.
        changes: more keys of the configuration.

    Returns:
        The opened source.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    made = tokenizer(folder)
    config = {**shrink(PUBLISHED[name], hidden, size), "vocab_size": len(made) + 5, **changes}
    config |= {"bos_token_id": made.bos_token_id, "eos_token_id": made.eos_token_id, "pad_token_id": None}
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    with torch.no_grad():
        for key, value in model.named_parameters():
            if (value.ndim == 1 or key.endswith("_bias")) and not key.endswith("A_log"):
                one_plus = "qwen3_5" in config["model_type"] and not key.endswith("linear_attn.norm.weight")
                scales = "norm" in key or ("router." in key and not key.endswith(".bias"))
                value.normal_(1.0 if scales and not one_plus else 0.0, 0.2 if scales else 0.1)
                if config["model_type"] == "gemma4_text" and key.endswith("q_norm.weight"):
                    value.mul_(value.numel() ** -0.5)  # scores are not scaled
        if (
            "qwen3_5" in config["model_type"]
        ):  # else layers of noise drown the token, and roundings grow from one to next
            model.get_input_embeddings().weight.mul_(10)
        for key, value in model.named_buffers():
            if key.endswith(("expert_bias", "e_score_correction_bias")):
                value.normal_(0.0, 0.2)
    model.to(torch.bfloat16).save_pretrained(folder)
    if mxfp4:
        pack_mxfp4(folder)
    return open_model(str(folder))


def adapt_experts(source, folder, *, rank=2, alpha=8, seed=1, targets=("auto",), **section):
    """An adapter on attention and on all experts, as the plain engine makes it, with B not zero; returns its folder.

    The rank of the experts is another than attention's and not 1, where layouts of A and B would be the same.
    """
    section = AdapterSection(rank=rank, alpha=alpha, targets=list(targets), **{"expert_rank": rank + 1, **section})
    tuned = attach_adapter(load_base(source, "fp32", CPU), section, seed)
    torch.manual_seed(seed)
    with torch.no_grad():
        for key, value in tuned.named_parameters():
            if "lora_B" in key:
                value.normal_(0.0, 0.05)
    tuned.save_pretrained(folder)
    return folder
