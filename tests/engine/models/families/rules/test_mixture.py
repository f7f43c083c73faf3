"""Experts read from config.json, against the modules that transformers builds from the same config."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GptOssConfig,
    Lfm2MoeConfig,
    MixtralConfig,
    OlmoeConfig,
    Qwen2MoeConfig,
    Qwen3MoeConfig,
)

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.checkpoint.spec import decoder_spec, rough_spec
from burnish_engine.models.families import why_not_fast

SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
KINDS = ["conv", "full_attention"] * 2
MORE = {**SIZES, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
CONFIGS = {
    "qwen3_moe": Qwen3MoeConfig(**SIZES, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=64),
    "qwen3_moe-normalized": Qwen3MoeConfig(**MORE, norm_topk_prob=True, decoder_sparse_step=2),
    "qwen2_moe": Qwen2MoeConfig(**MORE, shared_expert_intermediate_size=96, mlp_only_layers=[2]),
    "olmoe": OlmoeConfig(**SIZES, num_experts=6, num_experts_per_tok=3, clip_qkv=2.0),
    "mixtral": MixtralConfig(**SIZES, num_local_experts=6, sliding_window=8),
    "lfm2_moe": Lfm2MoeConfig(**SIZES, num_experts=6, layer_types=KINDS, routed_scaling_factor=2.5, num_dense_layers=1),
    "lfm2_moe-plain": Lfm2MoeConfig(**SIZES, num_experts=6, layer_types=KINDS, use_expert_bias=False),
    "gpt_oss": GptOssConfig(**SIZES, num_local_experts=6, head_dim=16, swiglu_limit=5.0),
}


def built(config):
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def feed_forward(layer):
    return getattr(layer, "feed_forward", None) or layer.mlp


@pytest.mark.parametrize("name", CONFIGS)
def test_layers_and_sizes_are_those_that_transformers_builds(name):
    config = CONFIGS[name]
    spec = decoder_spec(config.to_dict())
    halves = [feed_forward(layer) for layer in built(config).model.layers]
    assert [layer.is_mixture for layer in spec.layers] == [hasattr(half, "experts") for half in halves]
    experts = spec.experts
    for half in (half for half in halves if hasattr(half, "experts")):
        router = half.router if name == "gpt_oss" else half.gate
        assert (experts.count, experts.slots) == (router.weight.shape[0], router.top_k)
        assert experts.size == half.experts.intermediate_dim if name != "gpt_oss" else half.experts.intermediate_size
        assert experts.router_bias == (getattr(router, "bias", None) is not None)
        assert experts.bias == hasattr(half.experts, "down_proj_bias")
        assert experts.selection_bias == hasattr(half, "expert_bias")
        if hasattr(router, "norm_topk_prob"):
            assert experts.normalize == router.norm_topk_prob
        assert experts.scale == getattr(router, "routed_scaling_factor", 1.0)
        shared = getattr(half, "shared_expert", None)
        assert experts.shared_size == (shared.gate_proj.out_features if shared is not None else 0)
        if experts.activation == "clamped":
            assert (experts.alpha, experts.limit) == (half.experts.alpha, half.experts.limit)
    assert (spec.num_experts, spec.experts_per_token) == (experts.count, experts.slots)
    assert DecoderSpec.model_validate_json(spec.model_dump_json()) == spec


def test_what_differs_between_the_families():
    specs = {name: decoder_spec(config.to_dict()) for name, config in CONFIGS.items()}
    kinds = {name: spec.experts.router for name, spec in specs.items()}
    assert {kinds["qwen3_moe"], kinds["olmoe"], kinds["mixtral"]} == {"softmax_topk"}
    assert (kinds["gpt_oss"], kinds["lfm2_moe"]) == ("topk_softmax", "sigmoid")
    assert [name for name, spec in specs.items() if not spec.experts.rounded] == ["mixtral"]
    assert [name for name, spec in specs.items() if spec.attention_sinks] == ["gpt_oss"]
    assert specs["olmoe"].attention_clip == 2.0
    assert specs["olmoe"].qk_norm_whole
    assert (specs["mixtral"].sliding_window, specs["mixtral"].layers[0].kind) == (8, "sliding_attention")
    assert [layer.kind for layer in specs["gpt_oss"].layers] == ["sliding_attention", "attention"] * 2


def test_published_gpt_oss_keeps_its_experts_in_four_bits():
    config = CONFIGS["gpt_oss"].to_dict() | {"quantization_config": {"quant_method": "mxfp4"}}
    spec = decoder_spec(config)
    assert spec.experts.storage == "mxfp4"
    assert why_not_fast(config, spec) == why_not_fast(config, spec, nf4=True) == ""
    other = config | {"quantization_config": {"quant_method": "gptq"}}
    assert why_not_fast(other, decoder_spec(other)) == "is stored quantized"


def test_bitsandbytes_mixtures_are_left_to_the_plain_engine():
    stored = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    config = CONFIGS["qwen3_moe"].to_dict() | {"quantization_config": stored}
    assert why_not_fast(config, decoder_spec(config), nf4=True) == "is stored quantized"


@pytest.mark.parametrize(
    "change",
    [
        {"num_experts_per_tok": 7},
        {"num_experts_per_tok": 0},
        {"router_jitter_noise": 0.1},
        {"num_local_experts": 10**9},
    ],
)
def test_what_is_not_computed_has_no_specification(change):
    assert decoder_spec(CONFIGS["mixtral"].to_dict() | change) is None


def test_experts_whose_sizes_nf4_does_not_divide_are_left_to_the_plain_engine():
    config = CONFIGS["qwen3_moe"].to_dict() | {"moe_intermediate_size": 72}
    assert "multiples of 64" in why_not_fast(config, decoder_spec(config))


def test_other_mixtures_have_a_rough_specification():
    spec = rough_spec({**SIZES, "model_type": "newer_moe", "num_experts": 4, "num_experts_per_tok": 2})
    assert spec.num_experts == 4
    assert spec.experts is None
