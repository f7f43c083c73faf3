"""config.json of families that are near to Llama or Gemma 3, without the keys that say nothing of the shape."""

_LLAMA3_ROPE = {
    "factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip
KIN = {
    "google/gemma-2b-it": {
        "model_type": "gemma", "attention_bias": False, "attention_dropout": 0.0, "head_dim": 256,
        "hidden_act": "gelu", "hidden_size": 2048, "intermediate_size": 16384, "max_position_embeddings": 8192,
        "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 10000.0, "tie_word_embeddings": True, "vocab_size": 256000,
    },
    "google/gemma-2-2b-it": {
        "model_type": "gemma2", "attention_bias": False, "attention_dropout": 0.0, "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 2304, "intermediate_size": 9216, "max_position_embeddings": 8192, "num_attention_heads": 8,
        "num_hidden_layers": 26, "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": True, "vocab_size": 256000,
    },
    "AFM-4.5B, plain rope": {
        "model_type": "arcee", "attention_bias": False, "attention_dropout": 0.0, "head_dim": 128,
        "hidden_act": "relu2", "hidden_size": 2560, "intermediate_size": 18432, "max_position_embeddings": 65536,
        "mlp_bias": False, "num_attention_heads": 20, "num_hidden_layers": 36, "num_key_value_heads": 4,
        "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False, "vocab_size": 128005,
    },
    "baidu/ERNIE-4.5-0.3B-PT": {
        "model_type": "ernie4_5", "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
        "intermediate_size": 3072, "max_position_embeddings": 131072, "num_attention_heads": 16,
        "num_hidden_layers": 18, "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
        "tie_word_embeddings": True, "use_bias": False, "vocab_size": 103424,
    },
    "internlm/internlm3-8b-instruct": {
        "model_type": "internlm3", "bias": False, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
        "intermediate_size": 10240, "max_position_embeddings": 32768, "num_attention_heads": 32,
        "num_hidden_layers": 48, "num_key_value_heads": 2, "qkv_bias": False, "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 6.0, "rope_type": "dynamic"}, "rope_theta": 50000000,
        "tie_word_embeddings": False, "vocab_size": 128512,
    },
    "IQuestLab/IQuest-Coder-V1-40B-Instruct": {
        "model_type": "iquestcoder", "attention_bias": False, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 5120, "intermediate_size": 27648, "max_position_embeddings": 131072, "mlp_bias": False,
        "num_attention_heads": 40, "num_hidden_layers": 80, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 500000.0, "tie_word_embeddings": False, "vocab_size": 76800,
    },
    "ByteDance-Seed/Seed-OSS-36B-Instruct": {
        "model_type": "seed_oss", "attention_bias": True, "attention_dropout": 0.1, "attention_out_bias": False,
        "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 27648,
        "max_position_embeddings": 524288, "mlp_bias": False, "num_attention_heads": 80, "num_hidden_layers": 64,
        "num_key_value_heads": 8, "residual_dropout": 0.1, "rms_norm_eps": 1e-06,
        "rope_scaling": {"rope_type": "default"}, "rope_theta": 10000000.0, "tie_word_embeddings": False,
        "vocab_size": 155136,
    },
    "LGAI-EXAONE/EXAONE-4.0-1.2B": {
        "model_type": "exaone4", "attention_dropout": 0.0, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
        "intermediate_size": 4096, "layer_types": ["full_attention"] * 30, "max_position_embeddings": 65536,
        "num_attention_heads": 32, "num_hidden_layers": 30, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_scaling": _LLAMA3_ROPE, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
        "vocab_size": 102400,
    },
    "LGAI-EXAONE/EXAONE-4.0-32B": {
        "model_type": "exaone4", "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
        "intermediate_size": 27392, "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 16,
        "max_position_embeddings": 131072, "num_attention_heads": 40, "num_hidden_layers": 64,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": _LLAMA3_ROPE, "rope_theta": 1000000,
        "sliding_window": 4096, "sliding_window_pattern": "LLLG", "tie_word_embeddings": False, "vocab_size": 102400,
    },
    "tencent/Hunyuan-7B-Instruct": {
        "model_type": "hunyuan_v1_dense", "attention_bias": False, "attention_dropout": 0.0, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"}, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "use_qk_norm": True, "vocab_size": 128167,
    },
    "facebook/cwm": {
        "model_type": "cwm", "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 6144,
        "intermediate_size": 21504, "layer_types": ["full_attention", *["sliding_attention"] * 3] * 16,
        "max_position_embeddings": 131072, "mlp_bias": False, "num_attention_heads": 48, "num_hidden_layers": 64,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": _LLAMA3_ROPE, "rope_theta": 1000000.0,
        "sliding_window": 8192, "tie_word_embeddings": False, "vocab_size": 128256,
    },
    "kyutai/helium-1-preview-2b": {
        "model_type": "helium", "attention_bias": False, "attention_dropout": 0.0, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 2560, "intermediate_size": 7040, "max_position_embeddings": 4096,
        "mlp_bias": False, "num_attention_heads": 20, "num_hidden_layers": 24, "num_key_value_heads": 20,
        "rms_norm_eps": 1e-08, "rope_theta": 100000.0, "tie_word_embeddings": False, "vocab_size": 48000,
    },
    "Ministral 8B, a window in each layer": {
        "model_type": "ministral", "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 131072,
        "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 100000000.0, "sliding_window": 32768, "tie_word_embeddings": False, "vocab_size": 131072,
    },
}  # fmt: skip
"""Name to configuration. The rope of AFM-4.5B is stretched (yarn), and Ministral 8B is published as a Mistral."""
