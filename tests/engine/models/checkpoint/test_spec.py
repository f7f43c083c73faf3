"""Specifications read from real configurations."""

import pytest
from transformers import (
    CONFIG_MAPPING,
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

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.checkpoint.spec import decoder_spec, rough_spec
from burnish_engine.models.families import FAMILIES

from support.models.published import CONFIGS
from support.models.small_families import NEWER

SIZES = {
    "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LlamaConfig(**SIZES, tie_word_embeddings=True), {"head_dim": 16, "tied_embeddings": True, "qk_norm": False}),
        (MistralConfig(**SIZES, sliding_window=128), {"sliding_window": 128}),
        (
            LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
            {
                "attention_bias": True,
                "attention_output_bias": True,
                "mlp_bias": True,
            },
        ),
        (MistralConfig(**SIZES, sliding_window=None), {"sliding_window": None}),
        (Qwen2Config(**SIZES), {"attention_bias": True, "attention_output_bias": False, "sliding_window": None}),
        (Qwen3Config(**SIZES, head_dim=32), {"head_dim": 32, "qk_norm": True, "attention_bias": False}),
        (Qwen3Config(**SIZES, attention_bias=True), {"attention_bias": True, "attention_output_bias": True}),
        (Phi3Config(**SIZES, pad_token_id=0), {"num_kv_heads": 2, "fused_projections": True}),
        (
            Gemma3TextConfig(**SIZES, head_dim=32, query_pre_attn_scalar=64, final_logit_softcapping=30.0),
            {
                "qk_norm": True,
                "tied_embeddings": True,
                "norm_one_plus": True,
                "sandwich_norms": True,
                "embedding_scale": 8.0,
                "attention_scale": 0.125,
                "logit_softcap": 30.0,
                "attention_softcap": None,
                "activation": "gelu_pytorch_tanh",
                "causal": True,
            },
        ),
        (Gemma3TextConfig(**SIZES, use_bidirectional_attention=True), {"causal": False}),
        (SmolLM3Config(**SIZES, pad_token_id=0), {"num_heads": 4, "tied_embeddings": True}),
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


def test_which_layers_have_a_window():
    def kinds(config, **changes):
        spec = decoder_spec({**config.to_dict(), "layer_types": None, **changes})
        letters = {"attention": "a", "sliding_attention": "s"}
        return "".join(letters[layer.kind] for layer in spec.layers), spec.sliding_window

    assert kinds(Qwen2Config(**SIZES), use_sliding_window=True, sliding_window=9, max_window_layers=3) == ("aaas", 9)
    assert kinds(Qwen3Config(**SIZES), use_sliding_window=True, sliding_window=9, max_window_layers=0) == ("ssss", 9)
    assert kinds(Qwen3Config(**SIZES), use_sliding_window=False, sliding_window=9, max_window_layers=0) == (
        "aaaa",
        None,
    )
    assert kinds(Phi3Config(**SIZES, pad_token_id=0), sliding_window=9) == ("ssss", 9)
    assert kinds(LlamaConfig(**SIZES), sliding_window=9) == ("aaaa", None)
    smollm3 = SmolLM3Config(**SIZES, pad_token_id=0)
    assert kinds(smollm3, use_sliding_window=True, sliding_window=9) == ("aaas", 9)
    gemma3 = Gemma3TextConfig(**SIZES, sliding_window=9)
    assert kinds(gemma3, sliding_window_pattern=2) == ("sasa", 9)
    assert kinds(gemma3) == ("ssss", 9)
    assert kinds(gemma3, layer_types=["full_attention", "sliding_attention"] * 2) == ("asas", 9)


def test_layers_without_rope_where_the_config_does_not_list_them():
    config = {**SmolLM3Config(**SIZES, pad_token_id=0).to_dict(), "no_rope_layers": None}
    assert [layer.rope for layer in decoder_spec(config).layers] == [True, True, True, False]
    assert [layer.rope for layer in decoder_spec({**config, "no_rope_layer_interval": 2}).layers] == [True, False] * 2
    # Only SmolLM3 leaves rope out.
    llama = {**LlamaConfig(**SIZES).to_dict(), "no_rope_layers": [0, 0, 0, 0]}
    assert all(layer.rope for layer in decoder_spec(llama).layers)


@pytest.mark.parametrize("name", FAMILIES)
def test_absent_keys_have_transformers_defaults(name):
    bare = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"} | {"model_type": name}
    if name == "granitemoehybrid":  # without these a mixture with Mamba layers, which has no specification
        bare |= {"num_local_experts": 0, "num_experts_per_tok": 8, "layer_types": ["full_attention"] * 4}
    spec = decoder_spec(bare)
    assert spec is not None
    assert spec == decoder_spec(CONFIG_MAPPING[name](**{**bare, "pad_token_id": 0}).to_dict())


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
        {"rope_parameters": "llama3"},
        {"rope_parameters": {"full_attention": 3}},
        {"rope_parameters": {"rope_type": "yarn", "factor": "big"}},
        {"sliding_window": "wide"},
        {"max_position_embeddings": None},
        {"rms_norm_eps": []},
        {"num_key_value_heads": "two"},
        {"partial_rotary_factor": 0.5},
    ],
)
def test_odd_values_are_no_specification(changes):
    assert decoder_spec({**LlamaConfig(**SIZES).to_dict(), **changes}) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["full_attention"]},
        {"layer_types": 3},
        {"layer_types": ["full_attention", "chunked_attention"] * 2},
        {"layer_types": ["full_attention", "sliding_attention"] * 2},  # but no window
        {"layer_types": ["full_attention", ["conv"]] * 2},
        {"no_rope_layers": [1]},
        {"no_rope_layers": []},
        {"no_rope_layers": None, "no_rope_layer_interval": 0},
    ],
)
def test_odd_layers_are_no_specification(changes):
    assert decoder_spec({**SmolLM3Config(**SIZES, pad_token_id=0).to_dict(), **changes}) is None


def test_a_bare_config_is_no_specification():
    assert decoder_spec({}) is None
    assert decoder_spec({"model_type": "llama"}) is None
    assert decoder_spec({"model_type": ["llama"]}) is None


def test_other_families_have_no_specification():
    assert decoder_spec(GPT2Config().to_dict()) is None


def longrope(**changes):
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    config = {
        **Phi3Config(**SIZES, pad_token_id=0).to_dict(),
        "rope_parameters": None,
        "max_position_embeddings": 16384,
    }
    return {**config, "rope_scaling": {"type": "longrope", **factors, **changes}}


def test_longrope():
    rope = decoder_spec(longrope()).rope
    assert (rope.scaling, rope.original_context, rope.factor) == ("longrope", 4096, 4.0)
    assert rope.attention_factor == pytest.approx((1 + 2 / 12) ** 0.5)  # sqrt(1 + log 4 / log 4096)
    assert (rope.short_factor, rope.long_factor) == ([1.0] * 8, [4.0] * 8)
    assert decoder_spec(longrope(attention_factor=1.5)).rope.attention_factor == 1.5
    assert decoder_spec(longrope(factor=1.0)).rope.attention_factor == 1.0
    assert decoder_spec(longrope(type="su")).rope.scaling == "longrope"
    partly = {**longrope(short_factor=[1.0] * 6, long_factor=[2.0] * 6), "partial_rotary_factor": 0.75}
    assert decoder_spec(partly).rope.partial == 0.75
    for wrong in ({"short_factor": [1.0] * 7}, {"long_factor": [1.0] * 9}, {"type": "linear"}, {"long_factor": 3}):
        assert decoder_spec(longrope(**wrong)) is None


@pytest.mark.parametrize("style", ["new", "old"])
def test_gemma_has_two_ropes(style):
    if style == "new":
        full, local = (
            {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
            {"rope_type": "default", "rope_theta": 3e4},
        )
        changes = {"rope_parameters": {"full_attention": full, "sliding_attention": local}}
    else:
        changes = {
            "rope_parameters": None, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_theta": 2e6,
            "rope_local_base_freq": 3e4,
        }  # fmt: skip
    spec = decoder_spec({**Gemma3TextConfig(**SIZES).to_dict(), **changes})
    assert (spec.rope.theta, spec.rope.scaling, spec.rope.factor) == (2e6, "linear", 8.0)
    assert (spec.local_rope.theta, spec.local_rope.scaling) == (3e4, "none")


def test_a_rope_for_each_kind_of_layer_is_for_families_that_have_one():
    nested = {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e4}}
    assert decoder_spec({**Qwen3Config(**SIZES).to_dict(), "rope_parameters": nested}) is None


PUBLISHED = {
    "meta-llama/Llama-3.2-1B": {"tied_embeddings": True, "head_dim": 64, "num_layers": 16, "max_context": 131072},
    "mistralai/Mistral-7B-v0.1": {"sliding_window": 4096, "head_dim": 128, "num_kv_heads": 8},
    "mistralai/Mistral-7B-Instruct-v0.3": {"sliding_window": None, "tied_embeddings": False},
    "Qwen/Qwen2.5-0.5B": {"attention_bias": True, "sliding_window": None, "tied_embeddings": True},
    "Qwen/Qwen3-0.6B": {"qk_norm": True, "head_dim": 128, "attention_bias": False},
    "HuggingFaceTB/SmolLM3-3B": {"tied_embeddings": True, "num_kv_heads": 4},
    "google/gemma-3-1b-it": {"sliding_window": 512, "attention_scale": 1 / 16, "tied_embeddings": True},
    "google/gemma-3-270m": {"sliding_window": 512, "embedding_scale": 640**0.5, "num_layers": 18},
    "microsoft/Phi-4-mini-instruct": {"fused_projections": True, "tied_embeddings": True, "head_dim": 128},
    "microsoft/Phi-3.5-mini-instruct": {"fused_projections": True, "tied_embeddings": False, "head_dim": 96},
    "microsoft/Phi-3-mini-4k-instruct": {"sliding_window": 2047, "max_context": 4096},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs(name):
    spec = decoder_spec(CONFIGS[name])
    for key, value in PUBLISHED[name].items():
        assert getattr(spec, key) == value, key
    sliding = [layer.kind == "sliding_attention" for layer in spec.layers]
    if "gemma" in name:
        assert sliding == [(i + 1) % 6 != 0 for i in range(spec.num_layers)]
        assert (spec.rope.theta, spec.local_rope.theta) == (1e6, 1e4)
    else:
        assert set(sliding) == {spec.sliding_window is not None}
        assert spec.local_rope is None
    assert [layer.rope for layer in spec.layers] == [
        "SmolLM3" not in name or (i + 1) % 4 != 0 for i in range(spec.num_layers)
    ]
    if "Phi-4" in name or "Phi-3.5" in name:
        assert (spec.rope.scaling, spec.rope.original_context, spec.rope.factor) == ("longrope", 4096, 32.0)
        assert spec.rope.attention_factor == pytest.approx(1.1902380714238083)
        assert spec.rope.partial == (0.75 if "Phi-4" in name else 1.0)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("zai-org/glm-4-9b-chat-hf", {"sandwich_norms": False, "rms_norm_eps": 1.5625e-7, "max_context": 131_072}),
        ("zai-org/GLM-4-9B-0414", {"sandwich_norms": True, "rms_norm_eps": 1e-5, "max_context": 32_768}),
    ],
)
def test_glm_turns_neighboring_numbers_in_half_of_each_head(name, facts):
    spec = decoder_spec(NEWER[name])
    assert (spec.rope.interleaved, spec.rope.partial, spec.rope.scaling) == (True, 0.5, "none")
    assert spec.rope.theta == NEWER[name]["rope_theta"]
    assert (spec.attention_bias, spec.attention_output_bias, spec.fused_projections) == (True, False, False)
    assert {key: getattr(spec, key) for key in facts} == facts


def test_published_configs_are_read_as_transformers_rewrites_them():
    from transformers import AutoConfig

    for name, config in (CONFIGS | NEWER).items():
        rewritten = AutoConfig.for_model(**config).to_dict()
        assert decoder_spec(rewritten) == decoder_spec(config), name


def test_a_rough_spec_of_a_wrapper_and_of_an_unknown_family():
    wrapper = {
        "model_type": "gemma3",
        "text_config": {**CONFIGS["google/gemma-3-1b-it"], "rope_scaling": {"type": "?"}},
    }
    assert decoder_spec(wrapper) is None
    assert rough_spec(wrapper).num_layers == 26
    unknown = {**CONFIGS["Qwen/Qwen3-0.6B"], "model_type": "new", "layer_types": None, "rope_scaling": {"type": "?"}}
    assert rough_spec(unknown).head_dim == 128
