"""Small models of any causal architecture that the installed transformers knows, with random weights."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY, MOST_WEIGHTS = 97, 60_000_000
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "n_routed_experts": 4, "shared_expert_intermediate_size": 32, "sliding_window": 12,
    "use_sliding_window": True, "max_window_layers": 1, "attention_chunk_size": 12,
}  # fmt: skip


def small_config(name: str) -> Any:
    """Return the config of a model_type, as small as it can be made."""
    try:
        return AutoConfig.for_model(name, **SMALL)
    except Exception:  # noqa: BLE001  it refuses one of them: change what it has
        config = AutoConfig.for_model(name)
        for part in {id(one): one for one in (config, config.get_text_config())}.values():
            for key, value in SMALL.items():
                if hasattr(part, key):
                    setattr(part, key, value)
        return config


def small_model(name: str) -> Any:
    """Return a model with weights large enough for attention to matter; None where it stays large."""
    config = small_config(name)
    with torch.device("meta"):
        if sum(value.numel() for value in AutoModelForCausalLM.from_config(config).parameters()) > MOST_WEIGHTS:
            return None
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim > 1:
                value.mul_(3)
    return model
