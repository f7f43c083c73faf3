"""The plain engine's memory against what autograd really keeps, counted with saved-tensor hooks on built models."""

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM

from burnish_engine.advise.plain_memory import head_bytes, layer_kept_bytes, plain_memory
from burnish_engine.advise.workload import Pass
from burnish_engine.contract.recipe import AdapterSection, Recipe, TrainSection
from burnish_engine.models.plain import attach_adapter
from burnish_engine.models.spec import decoder_spec

TOKENS = 160
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1200,
    "tie_word_embeddings": True,
}
FAMILIES = {"llama": {}, "qwen2": {}, "qwen3": {"head_dim": 96}}


def kept_bytes(family, layers, dtype, section):
    """Bytes of distinct storages that autograd holds after the forward pass, parameters left out."""
    config = AutoConfig.for_model(family, **SHAPE, **FAMILIES[family], num_hidden_layers=layers)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).requires_grad_(False)
    tuned = attach_adapter(model, section, seed=0).train()
    parameters = {value.data_ptr() for value in tuned.parameters()}
    storages = {}

    def pack(tensor):
        if tensor.data_ptr() not in parameters:
            storages[tensor.untyped_storage().data_ptr()] = (tensor.untyped_storage().nbytes(), tensor)
        return tensor

    ids = torch.randint(0, 1200, (1, TOKENS))
    positions = torch.from_numpy(np.concatenate([np.arange(90), np.arange(TOKENS - 90)]))[None]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = tuned(input_ids=ids, position_ids=positions, use_cache=False).logits[0]
        loss = functional.cross_entropy(logits.float(), ids[0])
    assert loss.requires_grad
    return sum(size for size, _ in storages.values()), decoder_spec(config.to_dict())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize(
    "section",
    [AdapterSection(rank=8), AdapterSection(rank=8, targets=["q_proj", "v_proj"])],
    ids=["all", "query-value"],
)
def test_kept_activations_of_a_layer(family, precision, section):
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    two, _ = kept_bytes(family, 2, dtype, section)
    three, spec = kept_bytes(family, 3, dtype, section)
    recipe = Recipe(adapter=section)
    predicted = layer_kept_bytes(recipe, spec, spec.layers[0], TOKENS, 2 if precision == "bf16" else 4)
    assert predicted == pytest.approx(three - two, rel=0.005)


def spec_of(family="llama"):
    config = AutoConfig.for_model(family, **SHAPE, **FAMILIES[family], num_hidden_layers=4)
    return decoder_spec(config.to_dict())


def parts(recipe, largest=None, **options):
    options = {"cuda": True, "precision": "bf16"} | options
    return {part.name: part.bytes for part in plain_memory(recipe, spec_of(), largest or Pass(1024, 600), **options)}


def test_recompute_keeps_layer_inputs_and_one_layer():
    kept = parts(Recipe())
    recomputed = parts(Recipe(train=TrainSection(recompute=True)))
    assert recomputed["activations"] < kept["activations"] / 5
    assert recomputed["base weights"] == kept["base weights"]


def test_head_grows_with_learned_tokens_only():
    few, many = parts(Recipe(), Pass(4096, 100)), parts(Recipe(), Pass(4096, 4096))
    assert few["activations"] == many["activations"]
    assert many["head and loss"] == head_bytes(spec_of(), 4096) == 4096 * 1200 * 12


def test_adapter_optimizer_and_gradients_are_fp32():
    found = parts(Recipe(adapter=AdapterSection(rank=16)))
    assert found["optimizer"] == 2 * found["adapter"] == 2 * found["gradients"]


def test_caches_grow_with_the_passes_of_a_processor_up_to_a_limit():
    held = [
        parts(Recipe(), cuda=False, precision="fp32", passes=passes)["libraries"] for passes in (5, 50, 100, 1000, None)
    ]
    assert held[0] < held[1] < held[2] == held[3] == held[4]
    on_gpu = [parts(Recipe(), passes=passes) for passes in (5, None)]
    assert on_gpu[0] == on_gpu[1]
