"""Adapters that reach beyond the layers' matrices, made with PEFT itself on tiny models."""

from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model

from burnish_engine.models.checkpoint.source import open_model

from support.models import tiny_models

Q = ["q_proj"]
KINDS = {
    "head copied": {"target_modules": Q, "modules_to_save": ["lm_head"]},
    "embedding copied": {"target_modules": Q, "modules_to_save": ["embed_tokens"]},
    "both copied": {"target_modules": Q, "modules_to_save": ["embed_tokens", "lm_head"]},
    "both copied as one": {
        "target_modules": Q, "modules_to_save": ["embed_tokens", "lm_head"], "ensure_weight_tying": True
    },
    "norms copied": {"target_modules": Q, "modules_to_save": ["norm"]},
    "matrices copied": {"target_modules": ["gate_proj"], "modules_to_save": Q},
    "head adapted": {"target_modules": [*Q, "lm_head"]},
    "embedding adapted": {"target_modules": [*Q, "embed_tokens"]},
    "embedding by DoRA": {"target_modules": [*Q, "embed_tokens"], "use_dora": True},
    "both adapted": {"target_modules": [*Q, "embed_tokens", "lm_head"]},
    "both adapted as one": {"target_modules": [*Q, "embed_tokens", "lm_head"], "ensure_weight_tying": True},
    "rows of tokens": {"target_modules": Q, "trainable_token_indices": [1, 5, 7]},
    "other rows of the head": {
        "target_modules": Q, "trainable_token_indices": {"embed_tokens": [1, 5, 7], "lm_head": [2, 3]}
    },
    "biases of B": {"target_modules": Q, "lora_bias": True},
    "biases": {"target_modules": Q, "bias": "all"},
    "a parameter": {"target_modules": ["v_proj"], "target_parameters": ["self_attn.q_proj.weight"]},
}  # fmt: skip
"""Arguments of PEFT's LoraConfig."""


def base(folder, *, tied, dtype=torch.float32):
    """A tiny Llama with biases; returns its source."""
    folder = tiny_models.make(
        "llama", folder, tokenizer=True, dtype=dtype, tie_word_embeddings=tied, attention_bias=True
    )
    return open_model(str(folder))


def adapter(source, folder, kind):
    """An adapter of a kind, all of whose tensors differ from where they begin; returns its folder."""
    torch.manual_seed(1)
    tuned = get_peft_model(
        tiny_models.load(source.folder), LoraConfig(r=3, lora_alpha=6, task_type="CAUSAL_LM", **KINDS[kind])
    )
    with torch.no_grad():
        for value in tuned.parameters():
            if value.requires_grad:
                value.add_(0.1 * torch.randn_like(value))
    tuned.save_pretrained(folder)
    return Path(folder)
