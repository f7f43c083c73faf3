"""4-bit weights on the plain path: the numbers that the fast engine's stand for, through PEFT, forward and backward."""

import pytest
import torch

from burnish_engine.advise.facts.shape import frozen_bytes, parameters_in_4_bits
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.export.weights.nf4_merge import round_model, rounded_names
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.transformers_path import plain
from burnish_engine.models.transformers_path.model_shape import (
    measured_coverage,
    measured_spec,
    placed_matrices,
    quantize_base,
)
from burnish_engine.models.transformers_path.nf4_linear import Nf4Linear

from support.models.tiny import make_tokenizer, randomize

CPU = torch.device("cpu")
IDS = torch.arange(40).reshape(2, 20) * 7 % 90 + 3
FAMILIES = ["llama", "qwen2", "olmo", "qwen3_moe"]
"""One with biases, one that only transformers trains, one with experts in one parameter and a router."""


@pytest.fixture(scope="module", params=FAMILIES)
def source(request, tmp_path_factory):
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    folder = tmp_path_factory.mktemp(request.param)
    tokenizer = make_tokenizer(folder)
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
    config = CONFIG_MAPPING[request.param](
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False,
        **(experts if request.param == "qwen3_moe" else {}),
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    randomize(model)
    model.save_pretrained(folder)
    return open_model(str(folder))


def tuned(model, method):
    model = plain.attach_adapter(model, AdapterSection(rank=3, method=method, targets=["all-linear"]), 5)
    with torch.no_grad():
        torch.manual_seed(1)
        for name, value in plain.trainable_parameters(model):
            if "lora_B" in name:
                value.normal_(0.0, 0.05)
    return model


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("method", ["lora", "dora"])
def test_logits_and_gradients_are_those_of_the_rounded_weights(source, method):
    if method == "dora" and source.config["model_type"] == "qwen3_moe":
        pytest.skip("PEFT does no DoRA on experts in one parameter")
    found = []
    for quantize in (False, True):
        model = plain.load_base(source, "fp32", CPU)
        if quantize:
            model = quantize_base(model, CPU)
        else:
            round_model(model, rounded_names(source))
        model = tuned(model, method)
        logits = model(IDS).logits
        logits.square().mean().backward()
        found.append((logits.detach(), {name: value.grad for name, value in plain.trainable_parameters(model)}))
    (wanted, wanted_gradients), (logits, gradients) = found
    torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=1e-6)
    assert gradients.keys() == wanted_gradients.keys()
    for name, gradient in gradients.items():
        assert (gradient - wanted_gradients[name]).norm() <= 1e-5 * wanted_gradients[name].norm() + 1e-9, name


@pytest.mark.quick_cases(1)
def test_weights_take_what_the_plan_counts_and_adapters_reach_them(source):
    whole = plain.load_base(source, "fp32", CPU)
    before = placed_matrices(whole)
    model = quantize_base(plain.load_base(source, "fp32", CPU), CPU)
    placed, spec = placed_matrices(model), measured_spec(source.config)
    assert [(one.path, one.layer, one.matrix) for one in placed] == [
        (one.path, one.layer, one.matrix) for one in before
    ]
    layers = [module for module in model.modules() if isinstance(module, Nf4Linear)]
    assert len(layers) == len(parameters_in_4_bits(spec)) > 0
    stored = sum(value.nbytes for value in model.parameters())
    assert stored - 1028 * len(layers) == pytest.approx(frozen_bytes(spec, "fp32", nf4=True), rel=0.002)
    assert measured_coverage(placed, tuned(model, "lora")) == measured_coverage(before, tuned(whole, "lora"))


def test_a_layer_of_16_bits_computes_in_16_bits():
    linear = torch.nn.Linear(64, 32, dtype=torch.bfloat16)
    kept = Nf4Linear(linear, CPU)
    assert kept.weight.dtype == torch.bfloat16
    x = torch.randn(3, 64, dtype=torch.bfloat16, requires_grad=True)
    y = kept(x)
    y.sum().backward()
    assert (y.dtype, x.grad.dtype) == (torch.bfloat16, torch.bfloat16)
    assert torch.equal(y, torch.nn.functional.linear(x, kept.weight) + linear.bias)
