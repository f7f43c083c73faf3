"""Tiny random checkpoints of every family the fast decoder knows, and adapters for them.

They have what their families have in full size: grouped heads, windows shorter than a test's documents, layers without
rope, local and global rope, long and short rope, partly rotated heads, biases, norms around attention, tied heads.
"""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from burnish_engine.models.transformers_path import plain

from support.models.tiny import make_tokenizer

WINDOW = 16
ONE_PLUS = {"gemma", "gemma2", "gemma3_text", "qwen3_5_text", "qwen3_5_moe_text"}
"""Families whose norms multiply by 1 + weight."""
WITHOUT_ADAPTER = (
    "shared_expert_gate", "per_layer_input_gate", "per_layer_projection", "per_layer_model_projection", "proj",
)  # fmt: skip
"""Linear layers that get no adapter: of one output, around inputs of the layers' own, and a router."""
ORIGINAL_CONTEXT = 32

_COMMON = {
    "vocab_size": 384, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "initializer_range": 0.1,  # the usual 0.02 makes attention so even that mistakes in it hardly show
}  # fmt: skip
_LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": ORIGINAL_CONTEXT,
}  # fmt: skip


def _longrope(pairs, **more):
    return {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0 + 0.02 * i for i in range(pairs)],
        "long_factor": [1.0 + 0.5 * i for i in range(pairs)],
        "original_max_position_embeddings": ORIGINAL_CONTEXT,
        **more,
    }


_GEMMA4 = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_attention_heads": 4,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": WINDOW,
    "final_logit_softcapping": 3.0,
    "hidden_size_per_layer_input": 0,
    "rms_norm_eps": 1e-3,
}
_QWEN3_5 = {
    "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 32, "rms_norm_eps": 1e-3,
}  # fmt: skip
SHAPES = {
    "llama": ("llama", {}),
    "llama3": ("llama", {"tie_word_embeddings": True, "rope_parameters": _LLAMA3_ROPE}),
    "mistral": ("mistral", {"sliding_window": WINDOW, "head_dim": 32}),
    "mistral-full": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}),
    "qwen2-window": (
        "qwen2",
        {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "smollm3": ("smollm3", {"num_hidden_layers": 4, "tie_word_embeddings": True}),
    "gemma3": (
        "gemma3_text",
        {
            "num_hidden_layers": 6,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "query_pre_attn_scalar": 24,
            "sliding_window": WINDOW,
            "layer_types": [*["sliding_attention"] * 2, "full_attention"] * 2,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "gemma4": ("gemma4_text", {**_GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1}),
    "gemma4-lent": (
        "gemma4_text",
        {
            **_GEMMA4,
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "num_kv_shared_layers": 3,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": 384,
        },
    ),
    "gemma4-unified": (
        "gemma4_unified_text",
        {key: value for key, value in _GEMMA4.items() if key != "hidden_size_per_layer_input"},
    ),
    "phi3": (
        "phi3",
        {
            "hidden_size": 192,
            "num_attention_heads": 2,
            "original_max_position_embeddings": ORIGINAL_CONTEXT,
            "rope_parameters": _longrope(48),
        },
    ),
    "phi4-mini": (
        "phi3",
        {
            "hidden_size": 96,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
            "original_max_position_embeddings": ORIGINAL_CONTEXT,
            "rope_parameters": _longrope(12, partial_rotary_factor=0.75),
        },
    ),
    "lfm2": (
        "lfm2",
        {
            "num_hidden_layers": 4,
            "layer_types": ["conv", "conv", "full_attention", "conv"],
            "block_auto_adjust_ff_dim": False,
            "tie_word_embeddings": True,
        },
    ),
    "lfm2-bias": (
        "lfm2",
        {
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "conv", "full_attention"],
            "block_multiple_of": 16,
            "conv_L_cache": 7,
            "conv_bias": True,
            "tie_word_embeddings": False,
        },
    ),
    "granite": (
        "granite",
        {
            "attention_multiplier": 0.1,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "logits_scaling": 1.3,
            "attention_bias": True,
            "rms_norm_eps": 1e-3,  # so that what becomes of it shows
            "tie_word_embeddings": True,
        },
    ),
    "granite-swa": (
        "granite_swa",
        {
            "num_hidden_layers": 4,
            "attention_multiplier": 0.1,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "logits_scaling": 1.3,
            "sliding_window": WINDOW,
            "layer_rope_theta": [1e4, 1e4, 0, 1e4],
            "tie_word_embeddings": True,
        },
    ),
    "granite4": (
        "granitemoehybrid",
        {
            "attention_multiplier": 0.1,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.246,
            "logits_scaling": 0.6,
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 96,
            "layer_types": ["attention", "attention"],
            "position_embedding_type": "rope",
            "mamba_n_heads": 4,
            "mamba_d_state": 16,
        },
    ),
    "granite4-nope": (
        "granitemoehybrid",
        {
            "attention_multiplier": 0.1,
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 96,
            "layer_types": ["attention", "attention"],
            "mamba_n_heads": 4,
            "mamba_d_state": 16,
        },
    ),
    "olmo2": ("olmo2", {"num_hidden_layers": 3, "rms_norm_eps": 1e-3}),
    "olmo3": (
        "olmo3",
        {
            "num_hidden_layers": 4,
            "sliding_window": WINDOW,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn",
                    "rope_theta": 5e5,
                    "factor": 8.0,
                    "original_max_position_embeddings": ORIGINAL_CONTEXT,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
            },
        },
    ),
    "glm": ("glm", {"head_dim": 16}),
    "glm4": ("glm4", {"head_dim": 32}),
    "ministral3": (
        "ministral3",
        {
            "head_dim": 32,
            "sliding_window": None,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "beta_fast": 4.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 0.5,
                "llama_4_scaling_beta": 0.3,
                "original_max_position_embeddings": ORIGINAL_CONTEXT,
            },
        },
    ),
    "apertus": ("apertus", {"rms_norm_eps": 1e-3, "rope_parameters": _LLAMA3_ROPE}),
    "qwen3-5": (
        "qwen3_5_text",
        {
            **_QWEN3_5,
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
            "tie_word_embeddings": True,
        },
    ),
    "gemma": ("gemma", {"head_dim": 32, "num_key_value_heads": 1, "hidden_act": "gelu"}),
    "gemma2": (
        "gemma2",
        {
            "num_hidden_layers": 3,
            "head_dim": 32,
            "query_pre_attn_scalar": 24,
            "sliding_window": WINDOW,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 4.0,
        },
    ),
    "arcee": ("arcee", {"rms_norm_eps": 1e-3}),
    "cwm": ("cwm", {"num_hidden_layers": 4, "sliding_window": WINDOW, "rope_parameters": _LLAMA3_ROPE}),
    "ernie4-5": ("ernie4_5", {"head_dim": 32}),
    "helium": ("helium", {"head_dim": 16}),
    "internlm3": (
        "internlm3",
        {"head_dim": 16, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 5e5, "factor": 6.0}},
    ),
    "iquestcoder": ("iquestcoder", {"head_dim": 16}),
    "ministral": (
        "ministral",
        {"head_dim": 32, "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "seed-oss": ("seed_oss", {"head_dim": 32, "rope_parameters": {"rope_theta": 1e7, "rope_type": "default"}}),
    "exaone4": (
        "exaone4",
        {
            "sliding_window": None,
            "layer_types": ["full_attention"] * 2,
            "tie_word_embeddings": True,
            "rope_parameters": _LLAMA3_ROPE,
        },
    ),
    "exaone4-window": ("exaone4", {"num_hidden_layers": 4, "sliding_window": WINDOW}),
    "hunyuan": (
        "hunyuan_v1_dense",
        {
            "head_dim": 32,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 1000.0, "factor": 1.0},
        },
    ),
    "lfm3": (
        "lfm3",
        {
            "num_hidden_layers": 5,
            "num_attention_heads": 8,
            "head_dim": 16,
            "sliding_window": WINDOW,
            "conv_L_cache": 7,
            "attention_bias": True,
            "layer_types": ["conv", "conv", "full_attention", "conv", "sliding_attention"],
            "tie_word_embeddings": True,
        },
    ),
}
"""Name to model_type and what differs from the common sizes."""
_GPT_OSS = {
    "intermediate_size": 64,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "head_dim": 16,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "beta_fast": 4.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": ORIGINAL_CONTEXT,
    },
}
MIXTURES = {
    "qwen3-moe": (
        "qwen3_moe",
        {
            "num_hidden_layers": 3,
            "head_dim": 32,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 64,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
        },
    ),
    "qwen2-moe": (
        "qwen2_moe",
        {
            "num_hidden_layers": 3,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 96,
            "mlp_only_layers": [1],
        },
    ),
    "olmoe": ("olmoe", {"intermediate_size": 64, "num_experts": 8, "num_experts_per_tok": 2, "clip_qkv": 1.5}),
    "mixtral": ("mixtral", {"intermediate_size": 128, "num_local_experts": 4, "sliding_window": WINDOW}),
    "lfm2-moe": (
        "lfm2_moe",
        {
            "num_hidden_layers": 4,
            "layer_types": ["conv", "full_attention", "conv", "full_attention"],
            "num_dense_layers": 1,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "routed_scaling_factor": 1.5,
            "tie_word_embeddings": True,
        },
    ),
    "qwen3-5-moe": (
        "qwen3_5_moe_text",
        {
            **_QWEN3_5,
            "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"],
            "num_experts": 12,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 72,
        },
    ),
    "gpt-oss": ("gpt_oss", _GPT_OSS),
    "mellum": (
        "mellum",
        {
            "num_hidden_layers": 3,
            "head_dim": 32,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 64,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn",
                    "rope_theta": 5e5,
                    "factor": 4.0,
                    "original_max_position_embeddings": ORIGINAL_CONTEXT,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "minimax-m2": (
        "minimax_m2",
        {
            "intermediate_size": 64,
            "head_dim": 32,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "rotary_dim": 16,
        },
    ),
    "granite-moe": (
        "granitemoe",
        {
            "intermediate_size": 64,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "attention_multiplier": 0.1,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "logits_scaling": 1.3,
            "tie_word_embeddings": True,
        },
    ),
    "gemma4-moe": (
        "gemma4_text",
        {
            **_GEMMA4,
            "num_hidden_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"],
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "enable_moe_block": True,
            "num_experts": 8,
            "top_k_experts": 3,
            "moe_intermediate_size": 64,
        },
    ),
}
"""Mixtures of experts, in the form of `SHAPES`. All sizes of experts are multiples of 64, as NF4 needs."""


def make(shape, folder, seed=0, *, tokenizer=False, dtype=torch.float32, **changes):
    """Save a tiny checkpoint.

    Args:
        shape: name in `SHAPES` or `MIXTURES`.
        folder: folder to make it in.
        seed: seed of the weights.
        tokenizer: whether a tokenizer is trained and saved too, so that the folder is a whole model.
        dtype: dtype of the saved weights.
        changes: more keys of the configuration.

    Returns:
        The folder.
    """
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

    folder = Path(folder)
    model_type, own = (SHAPES | MIXTURES)[shape]
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {model_type}")
    settings = {**_COMMON, **own, **changes}
    if tokenizer:
        made = make_tokenizer(folder, vocab_size=512)
        settings |= {"vocab_size": len(made), "bos_token_id": made.bos_token_id, "eos_token_id": made.eos_token_id}
        settings["pad_token_id"] = made.pad_token_id
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **settings), dtype=torch.float32)
    _randomize(model, center=0.0 if model_type in ONE_PLUS else 1.0)
    model.to(dtype).save_pretrained(folder)
    return folder


def _randomize(model, center):
    """Norms and biases that matter: their usual start at 1 (Gemma: 0) and 0 hides mistakes. States that remember."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("A_log"):
                value.normal_(-2.0, 1.0)
            elif name.endswith(("linear_attn.norm.weight", "router.scale", "router.per_expert_scale")):
                value.normal_(1.0, 0.2)
            elif value.ndim == 1 or name.endswith("_bias"):
                value.normal_(center if "norm" in name else 0.0, 0.2 if "norm" in name else 0.1)
                if "gemma4" in model.config.model_type and name.endswith("q_norm.weight"):
                    value.mul_(value.numel() ** -0.5)  # scores are not scaled: as they are, a token would see one other
        for name, value in model.named_buffers():
            if name.endswith(("expert_bias", "e_score_correction_bias")):
                value.normal_(0.0, 0.2)
            if name.endswith("act_fn.beta"):
                value.normal_(0.5, 0.1)
            if name.endswith("layer_scalar"):
                value.uniform_(0.5, 1.5)


def load(folder, dtype=torch.float32):
    """The checkpoint as transformers loads it, in evaluation mode; weights in MXFP4 unpacked."""
    from transformers import AutoModelForCausalLM, Mxfp4Config

    is_packed = '"mxfp4"' in (Path(folder) / "config.json").read_text()
    how = {"quantization_config": Mxfp4Config(dequantize=True)} if is_packed else {}
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True, **how).eval()


def lora(
    base,
    folder,
    rank=8,
    seed=0,
    targets="all-linear",
    *,
    alpha=16,
    rslora=False,
    dora=False,
    experts=None,
    stacks=("gate_up_proj", "down_proj"),
):
    """Save a PEFT adapter whose B is not zero, as after training.

    Args:
        base: folder of the model.
        folder: folder for the adapter.
        rank: rank of the adapter.
        seed: seed of its weights.
        targets: names of modules, as PEFT takes them.
        alpha: alpha of LoRA.
        rslora: whether to scale by alpha / sqrt(rank).
        dora: whether it has magnitudes, moved a little from where they start.
        experts: rank of the adapters of every expert; None: experts have none.
        stacks: stacks of experts that have adapters.

    Returns:
        The adapter's folder.
    """
    from peft import LoraConfig, get_peft_model

    model, more = load(base), {}
    if experts is not None:
        names = [f"experts.{stack}" for stack in stacks]
        more = {"target_parameters": names, "rank_pattern": dict.fromkeys(names, experts)}
    excluded = {name.rpartition(".")[2] for name, _ in model.named_modules()} & set(WITHOUT_ADAPTER)
    if targets == "all-linear" and excluded:
        more["exclude_modules"] = sorted(excluded)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=targets,
        use_rslora=rslora,
        use_dora=dora,
        task_type="CAUSAL_LM",
        **more,
    )
    torch.manual_seed(seed)
    with nullcontext() if experts is None else plain._names_as_they_are():
        tuned = get_peft_model(model, config)
    with torch.no_grad():
        for name, value in tuned.named_parameters():
            if "lora_B" in name:
                value.normal_(0.0, 0.05)
            if "lora_magnitude" in name:
                value.mul_(1.0 + 0.1 * torch.randn_like(value))
    tuned.save_pretrained(folder)
    return Path(folder)
