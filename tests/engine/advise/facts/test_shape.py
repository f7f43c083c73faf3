"""Counts from a spec equal what torch counts on the built model."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from burnish_engine.advise.facts.shape import adapter_parameters, kv_cache_bytes, parameters, projection_parameters
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.transformers_path.plain import attach_adapter, trainable_parameters

COMMON = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}
CONFIGS = {
    "llama-tied": {"model_type": "llama", "tie_word_embeddings": True},
    "llama-untied": {"model_type": "llama", "tie_word_embeddings": False},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": False},
    "apertus": {"model_type": "apertus", "tie_word_embeddings": False},
    "qwen3-wide-heads": {"model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": True},
}


def build(name):
    values = COMMON | CONFIGS[name]
    config = AutoConfig.for_model(**values)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32), decoder_spec(config.to_dict())


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_equal_the_built_model(name):
    model, spec = build(name)
    assert parameters(spec) == sum(value.numel() for value in model.parameters())


@pytest.mark.full
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("method", ["lora", "dora"])
@pytest.mark.parametrize("targets", [["all-linear"], ["q_proj", "down_proj"]])
def test_adapter_parameters_equal_the_attached_adapter(name, method, targets):
    model, spec = build(name)
    section = AdapterSection(rank=5, method=method, targets=targets)
    tuned = attach_adapter(model, section, seed=0)
    assert adapter_parameters(spec, section) == sum(value.numel() for _, value in trainable_parameters(tuned))


def test_projections_leave_embeddings_and_norms_out():
    model, spec = build("llama-untied")
    linear = [m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"]
    assert projection_parameters(spec) == sum(module.weight.numel() for module in linear)


def test_mixture_visits_only_its_chosen_experts():
    _, dense = build("llama-tied")
    sparse = dense.model_copy(
        update={
            "num_experts": 8,
            "experts_per_token": 2,
            "layers": [layer.model_copy(update={"feed_forward": "mixture_of_experts"}) for layer in dense.layers],
        }
    )
    feed_forward = 3 * 3 * 64 * 160
    assert projection_parameters(sparse) == projection_parameters(dense) + feed_forward
    assert parameters(sparse) == parameters(dense) + 7 * feed_forward + 3 * 64 * 8


def test_sliding_layers_keep_their_window_only():
    _, spec = build("llama-tied")
    sliding = spec.model_copy(
        update={
            "sliding_window": 100,
            "layers": [
                spec.layers[0],
                *(one.model_copy(update={"kind": "sliding_attention"}) for one in spec.layers[1:]),
            ],
        }
    )
    per_token = 2 * 2 * 16 * 2
    assert kv_cache_bytes(spec, 1000) == 3 * 1000 * per_token
    assert kv_cache_bytes(sliding, 1000) == (1000 + 2 * 100) * per_token
