"""The catalog is right: shapes give the published sizes, and what is said about a model can be relied on."""

import re

import pytest

from burnish_engine.advise.facts.catalog import EMBEDDED, catalog, find_model, read_catalog, search
from burnish_engine.advise.facts.gguf_rules import EXPORTED_FAMILIES
from burnish_engine.advise.facts.gguf_size import predicted_file_bytes
from burnish_engine.advise.facts.shape import kv_cache_bytes, parameters
from burnish_engine.contract.paths import assets_dir, is_model_name

MODELS = [pytest.param(model, id=model.name) for model in catalog()]


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_found_by_the_title_that_lists_show(model):
    assert find_model(model.title.upper()) is model


@pytest.mark.parametrize("model", MODELS)
def test_the_shape_gives_the_published_number_of_parameters(model):
    assert parameters(model.spec) == pytest.approx(model.parameters, rel=0.005)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_says_what_a_person_must_know(model):
    assert is_model_name(model.name)
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", model.released)
    assert model.good_for.endswith(".")
    assert model.languages
    assert 0 < model.merit <= 1.5
    if model.license not in {"Apache-2.0", "MIT"}:
        assert model.license_note.endswith(".")
    assert 0.5 * model.parameters < model.download_bytes < 3 * model.parameters


def test_names_are_unique_and_no_address_is_in_the_file():
    names = [model.name.casefold() for model in catalog()]
    assert len(set(names)) == len(names) >= 45
    text = (assets_dir() / "models.toml").read_text(encoding="utf-8")
    assert not re.search(r"https?:|www\.|\.(co|com|org|ai)\b", text)


@pytest.mark.full
def test_what_is_said_to_export_does():
    for model in catalog():
        assert model.exports == (model.spec.family in EXPORTED_FAMILIES)
        if model.exports and not model.spec.has_mxfp4_experts:
            expected = 1.0625 * model.parameters + 40 * model.spec.vocab_size  # and the tokens' texts
            counted = model.spec.model_copy(update={"mtp_layers": 0})  # as by the number of parameters
            assert predicted_file_bytes(counted, "Q8_0") == pytest.approx(expected, rel=0.03)


# Sizes of files that llama.cpp wrote, GB. Qwen3-8B, Llama-3.2-3B and Mistral-7B: the published GGUF files.
@pytest.mark.parametrize(
    ("name", "quant", "gigabytes"),
    [
        ("Qwen/Qwen3-8B", "Q4_K_M", 5.03),
        ("meta-llama/Llama-3.2-3B-Instruct", "Q4_K_M", 2.02),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Q8_0", 7.70),
        ("Qwen/Qwen3-30B-A3B", "Q4_K_M", 18.56),
        ("openai/gpt-oss-20b", "Q8_0", 12.11),  # its experts stay MXFP4
    ],
)
def test_file_sizes_are_those_of_published_files(name, quant, gigabytes):
    assert predicted_file_bytes(find_model(name).spec, quant) / 1e9 == pytest.approx(gigabytes, rel=0.02)


def test_layer_kinds_are_written_out():
    gemma = find_model("google/gemma-3-1b-it").spec
    assert [layer.kind for layer in gemma.layers[:7]] == [*["sliding_attention"] * 5, "attention", "sliding_attention"]
    assert gemma.sliding_window == 512
    lfm2 = find_model("LiquidAI/LFM2-1.2B").spec
    attention = [index for index, layer in enumerate(lfm2.layers) if layer.kind == "attention"]
    assert attention == [2, 5, 8, 10, 12, 14]
    smollm3 = find_model("HuggingFaceTB/SmolLM3-3B").spec
    assert [layer.rope for layer in smollm3.layers] == [True, True, True, False] * 9
    granite = find_model("ibm-granite/granite-4.0-1b").spec
    assert {(layer.kind, layer.rope, layer.feed_forward) for layer in granite.layers} == {("attention", True, "dense")}
    assert (granite.residual_scale, granite.attention_scale, granite.logit_divisor) == (0.22, 0.0078125, 8.0)
    # 36 layers, 8 heads of 128, keys and values, 2 bytes, at 4,096 tokens: 604 MB.
    assert kv_cache_bytes(find_model("Qwen/Qwen3-8B").spec, 4096) == 36 * 2 * 8 * 128 * 2 * 4096


def test_long_context_variants_differ_from_their_older_twins():
    assert find_model("Qwen/Qwen3-4B-Instruct-2507").spec.max_context == 262_144
    assert find_model("Qwen/Qwen3-4B").spec.max_context == 40_960


def test_restrictive_licenses_and_gates_are_marked():
    assert "not for commercial use" in find_model("Qwen/Qwen2.5-3B-Instruct").license_note
    assert find_model("meta-llama/Llama-3.1-8B-Instruct").gated
    assert find_model("google/gemma-3-4b-it").gated
    assert not find_model("Qwen/Qwen3-8B").gated
    assert find_model(EMBEDDED).license == "Apache-2.0"


def test_what_no_source_confirmed_is_marked():
    unsure = {model.name: model.unchecked for model in catalog() if model.unchecked}
    assert "config.json" in unsure["LiquidAI/LFM2.5-2.6B"]
    assert all(text.endswith(".") for text in unsure.values())
    assert not find_model("Qwen/Qwen3-8B").unchecked


def test_models_are_found_by_name_in_any_case_and_without_owner():
    assert find_model("qwen/qwen3-0.6b").name == "Qwen/Qwen3-0.6B"
    assert find_model("SmolLM3-3B").name == "HuggingFaceTB/SmolLM3-3B"
    assert find_model("Qwen/Qwen9") is None


def test_every_word_of_a_query_must_be_found():
    assert all(model.kind == "code" for model in search("coder 7b", catalog()))
    assert [model.title for model in search("coder 7b", catalog())] == ["Qwen2.5 Coder 7B"]
    assert {model.family for model in search("french phone", catalog())} >= {"SmolLM3", "LFM2"}
    assert search("", catalog()) == list(catalog())
    assert search("no such thing", catalog()) == []


def test_a_damaged_catalog_is_refused():
    with pytest.raises(ValueError, match="not understood"):
        read_catalog('[shape.x]\nmodel_type = "new"\nnum_hidden_layers = 1\n[[model]]\nname = "a/b"\nshape = "x"\n')
    with pytest.raises(LookupError):
        read_catalog('[shape.x]\nmodel_type = "llama"\n[[model]]\nname = "a/b"\nshape = "y"\n')
