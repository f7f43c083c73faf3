"""Specifications read from real configurations."""

import pytest
from transformers import (
    Gemma3TextConfig,
    GPT2Config,
    Lfm2Config,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)

from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.models.spec import decoder_spec

SIZES = {
    "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LlamaConfig(**SIZES, tie_word_embeddings=True), {"head_dim": 16, "tied_embeddings": True, "qk_norm": False}),
        (MistralConfig(**SIZES, sliding_window=128), {"sliding_window": 128}),
        (Qwen2Config(**SIZES), {"attention_bias": True}),
        (Qwen3Config(**SIZES, head_dim=32), {"head_dim": 32, "qk_norm": True, "attention_bias": False}),
        (Phi3Config(**SIZES, pad_token_id=0), {"num_kv_heads": 2}),
        (Gemma3TextConfig(**SIZES, head_dim=32), {"qk_norm": True, "tied_embeddings": True}),
        (SmolLM3Config(**SIZES, pad_token_id=0), {"num_heads": 4}),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_shapes_and_switches(config, expected):
    spec = decoder_spec(config.to_dict())
    assert isinstance(spec, DecoderSpec)
    assert (spec.vocab_size, spec.hidden_size, spec.num_layers) == (1000, 64, 4)
    for name, value in expected.items():
        assert getattr(spec, name) == value, name
    assert DecoderSpec.model_validate_json(spec.model_dump_json()) == spec


def test_layer_kinds():
    sliding = decoder_spec(MistralConfig(**SIZES, sliding_window=128).to_dict())
    assert {layer.kind for layer in sliding.layers} == {"sliding_attention"}
    lfm2 = decoder_spec(Lfm2Config(**SIZES, layer_types=["conv", "full_attention", "conv", "full_attention"]).to_dict())
    assert [layer.kind for layer in lfm2.layers] == ["short_convolution", "attention"] * 2
    assert lfm2.conv_width == 3
    moe = decoder_spec(Qwen3MoeConfig(**SIZES, num_experts=8, num_experts_per_tok=2).to_dict())
    assert {layer.feed_forward for layer in moe.layers} == {"mixture_of_experts"}
    assert (moe.num_experts, moe.experts_per_token) == (8, 2)
    nope = decoder_spec(SmolLM3Config(**SIZES, pad_token_id=0, no_rope_layers=[1, 1, 1, 0]).to_dict())
    assert [layer.rope for layer in nope.layers] == [True, True, True, False]


def test_the_width_of_a_feed_forward_is_the_one_in_effect():
    from transformers import Lfm2ForCausalLM

    config = Lfm2Config(**{**SIZES, "intermediate_size": 640}, layer_types=["conv", "full_attention"] * 2)
    real = Lfm2ForCausalLM(config).model.layers[0].feed_forward.w1.out_features
    assert decoder_spec(config.to_dict()).intermediate_size == real == 512
    older = {key: value for key, value in config.to_dict().items() if key != "intermediate_size"}
    assert decoder_spec({**older, "block_ff_dim": 640}).intermediate_size == 512
    as_given = Lfm2Config(**SIZES, layer_types=["conv"] * 4, block_auto_adjust_ff_dim=False)
    assert decoder_spec(as_given.to_dict()).intermediate_size == 128
    moe = Qwen3MoeConfig(**SIZES, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=48)
    assert decoder_spec(moe.to_dict()).intermediate_size == 48


@pytest.mark.parametrize("style", ["rope_parameters", "rope_scaling"])
def test_llama3_rope_in_both_spellings(style):
    scaling = {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    config = {**LlamaConfig(**SIZES).to_dict(), "rope_parameters": None}
    if style == "rope_parameters":
        config["rope_parameters"] = {**scaling, "rope_theta": 500000.0}
    else:
        config.update(rope_scaling=scaling, rope_theta=500000.0)
    rope = decoder_spec(config).rope
    assert (rope.theta, rope.scaling, rope.factor, rope.original_context) == (500000.0, "llama3", 32.0, 8192)


@pytest.mark.parametrize("kind", ["su", "mrope", "proportional", "", 7, None, ["yarn"]])
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_an_unknown_rope_is_no_specification(kind, key):
    config = {**LlamaConfig(**SIZES).to_dict(), "rope_parameters": None, key: {"rope_type": kind, "factor": 2.0}}
    spec = decoder_spec(config)
    assert spec is None if kind else spec.rope.scaling == "none"


NEEDED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
WRONG = (None, "many", [1], {}, 0, -4, float("inf"), float("nan"), 10**30)


@pytest.mark.parametrize("key", NEEDED)
def test_missing_and_wrong_sizes_are_no_specification(key):
    config = LlamaConfig(**SIZES).to_dict()
    assert decoder_spec({name: value for name, value in config.items() if name != key}) is None
    for wrong in WRONG:
        assert decoder_spec({**config, key: wrong}) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["full_attention"]},
        {"layer_types": 3},
        {"no_rope_layers": [1]},
        {"rope_parameters": "llama3"},
        {"rope_parameters": {"full_attention": 3}},
        {"rope_parameters": {"rope_type": "yarn", "factor": "big"}},
        {"sliding_window": "wide"},
        {"max_position_embeddings": None},
        {"rms_norm_eps": []},
        {"num_key_value_heads": "two"},
    ],
)
def test_odd_values_are_no_specification(changes):
    assert decoder_spec({**LlamaConfig(**SIZES).to_dict(), **changes}) is None


def test_a_bare_config_is_no_specification():
    assert decoder_spec({}) is None
    assert decoder_spec({"model_type": "llama"}) is None
    assert decoder_spec({"model_type": ["llama"]}) is None


def test_other_families_have_no_specification():
    assert decoder_spec(GPT2Config().to_dict()) is None
