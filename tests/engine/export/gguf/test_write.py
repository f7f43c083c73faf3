"""16-bit GGUF files compute what transformers computes, for every family and every trap known."""

import json
from dataclasses import replace

import pytest
import torch

from burnish_engine.advise.facts.gguf_rules import EXPORTED_FAMILIES, gguf_rules
from burnish_engine.contract.errors import FidelityError, SetupError, StoppedError, UsageError
from burnish_engine.export.gguf.write import clean_name, plan_gguf, write_gguf
from burnish_engine.export.weights.folders import BeyondRangeError
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.gguf_file.rope_factors import llama3_factors
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.gguf.gguf_runtime import GgufModel

from support.models.export import edit_json, gguf_kl, make_adapter, make_model, rows, tuned_model, write_16_bit

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
CASES = {
    "tied": ("llama", {"tie_word_embeddings": True}),
    "untied": ("llama", {"tie_word_embeddings": False}),
    "llama3 rope": ("llama", {"rope_parameters": LLAMA3}),
    "linear rope": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "all heads alike": ("llama", {"num_key_value_heads": 4}),
    "wide heads": ("llama", {"head_dim": 64}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("mistral", {"sliding_window": None}),
    "smollm3": ("smollm3", {"num_hidden_layers": 4}),
    "qwen2": ("qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "qwen2 yarn": (
        "qwen2",
        {
            "max_position_embeddings": 256,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64
            },
        },
    ),
    "qwen3": ("qwen3", {"head_dim": 64, "tie_word_embeddings": True}),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_f16_computes_what_the_model_computes(name, tmp_path):
    family, changes = CASES[name]
    source = make_model(tmp_path / "base", family, **changes)
    adapter = make_adapter(source, tmp_path / "adapter")
    path = write_16_bit(source, adapter, tmp_path)
    model = tuned_model(source, adapter)
    for row in rows(source, 2):
        assert gguf_kl(path, model, row) < 2e-6
    assert gguf_kl(path, tuned_model(source, None), row) > 1e-3  # without its adapter it is another model


@pytest.mark.full
def test_bf16_is_rounded_once_from_fp32(wide, wide_adapter, tmp_path):
    path = write_16_bit(wide, wide_adapter, tmp_path, kind="BF16")
    assert read_header(path).type_counts() == {"BF16": 15, "F32": 5}
    assert gguf_kl(path, tuned_model(wide, wide_adapter), rows(wide, 1)[0]) < 1e-3


def test_types_of_tensors(wide_f16):
    header = read_header(wide_f16)
    types = {tensor.name: tensor.type for tensor in header.tensors}
    assert all((types[name] == "F32") == name.endswith("norm.weight") for name in types)
    assert "output.weight" not in types  # tied
    assert header.architecture == "llama"
    assert header.metadata["llama.rope.freq_base"] == 10000.0
    assert header.metadata["llama.attention.head_count_kv"] == 2


def test_metadata_says_where_the_file_comes_from(wide, wide_adapter, wide_f16):
    keys = read_header(wide_f16).metadata
    assert keys["general.name"] == "tiny"
    assert keys["general.base_model.0.name"] == "base"
    assert len(keys["burnish.adapter_sha256"]) == 64
    assert keys["tokenizer.ggml.add_bos_token"] is False


def test_the_license_of_the_base_goes_along(tmp_path):
    source = make_model(tmp_path / "base", "llama")
    (source.folder / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# Model\nlicense: mine\n")
    assert read_header(write_16_bit(source, None, tmp_path)).metadata["general.license"] == "apache-2.0"
    (source.folder / "README.md").write_text("license: mine\n")
    assert "general.license" not in read_header(write_16_bit(source, None, tmp_path)).metadata


@pytest.mark.full
def test_vocabulary_is_padded_to_the_rows_of_the_embedding(tmp_path):
    source = make_model(tmp_path / "base", "llama", vocab_size=640)
    path = write_16_bit(source, None, tmp_path)
    with GgufModel(path, exact=True) as model:
        assert model.vocab_size == 640
        assert model.token_text(639) == "[PAD639]"
    assert gguf_kl(path, tuned_model(source, None), rows(source, 1)[0]) < 2e-6


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path):
    source = make_model(tmp_path / "base", "llama", vocab_size=300)
    with pytest.raises(SetupError, match=r"ids up to \d+ .* has 300 rows"):
        write_16_bit(source, None, tmp_path)


@pytest.mark.parametrize("name", ["my phi-3 tune", "Phi3", "../phi_3/x", "modern-bert", "con", "a/b\\c:\n"])
def test_names_that_switch_on_rules_in_libllama_are_defused(wide, tmp_path, name):
    clean = clean_name(name)
    assert not any(trap in clean.lower() for trap in ("phi-3", "phi3", "modern-bert", "/", "\\", "\n"))
    plan = plan_gguf(
        wide, MergedWeights(wide, None), load_tokenizer(wide), name, expected=[("a", [64])][:0], scratch=tmp_path
    )
    write_gguf(plan, tmp_path / "x.gguf")
    with GgufModel(tmp_path / "x.gguf", vocab_only=True) as model:
        assert model.metadata["general.name"] == clean


@pytest.mark.full
def test_weights_beyond_f16_are_refused_and_fit_bf16(tmp_path):
    source = make_model(tmp_path / "base", "llama")
    model = tuned_model(source, None)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight[3, 5] = 70000.0
    model.save_pretrained(source.folder)
    with pytest.raises(BeyondRangeError, match=r"ffn_down\.weight reaches 70000, which F16 cannot hold"):
        write_16_bit(source, None, tmp_path)
    write_16_bit(source, None, tmp_path, kind="BF16")


@pytest.mark.full
def test_weights_that_are_no_numbers_are_refused(tmp_path):
    source = make_model(tmp_path / "base", "llama")
    model = tuned_model(source, None)
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[0, 0] = float("nan")
    model.save_pretrained(source.folder)
    for kind in ("F16", "BF16"):
        with pytest.raises(FidelityError, match="cannot hold"):
            write_16_bit(source, None, tmp_path, kind=kind)


def test_unknown_families_are_told_which_are_known(wide, tmp_path):
    with pytest.raises(
        UsageError, match=f"'flex_olmo' cannot be exported to GGUF yet; {', '.join(sorted(EXPORTED_FAMILIES))} can"
    ):
        gguf_rules("flex_olmo")
    assert all(gguf_rules(name).pre_tokenizers for name in EXPORTED_FAMILIES)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("llama", {"hidden_act": "gelu"}, "activation 'gelu'"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "dynamic rope"),
        ("smollm3", {"no_rope_layers": [1, 1, 0, 1], "num_hidden_layers": 4}, "every fourth"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}, "sliding-window"),
    ],
)
def test_what_llama_cpp_does_not_compute_is_refused(tmp_path, family, changes, words):
    source = make_model(tmp_path / "base", family, **changes)
    with pytest.raises(UsageError, match=words):
        write_16_bit(source, None, tmp_path)


@pytest.mark.full
def test_mistrals_window_bounds_the_context(tmp_path):
    source = make_model(tmp_path / "base", "mistral", sliding_window=128)
    assert read_header(write_16_bit(source, None, tmp_path)).metadata["llama.context_length"] == 128


def test_missing_and_unknown_tensors_are_named(wide, tmp_path):
    untied = replace(wide, spec=wide.spec.model_copy(update={"tied_embeddings": False}))
    with pytest.raises(SetupError, match=r"lacks 1 tensors.*output\.weight"):
        write_16_bit(untied, None, tmp_path)
    source = make_model(tmp_path / "qwen", "qwen3")
    edit_json(source.folder / "config.json", model_type="llama")
    with pytest.raises(UsageError, match=r"has the tensor model\.layers\.0\.self_attn\.k_norm\.weight"):
        write_16_bit(open_model(str(source.folder)), None, tmp_path)


def test_cancelling_stops_between_tensors(wide, tmp_path):
    calls = []

    def canceled():
        calls.append(1)
        return len(calls) > 5

    plan = plan_gguf(wide, MergedWeights(wide, None), load_tokenizer(wide), "x", expected=[], scratch=tmp_path)
    with pytest.raises(StoppedError):
        write_gguf(plan, tmp_path / "x.gguf", canceled=canceled)
    assert len(calls) == 6


def test_a_shape_that_changes_on_the_way_is_caught(wide, tmp_path):
    plan = plan_gguf(wide, MergedWeights(wide, None), load_tokenizer(wide), "x", expected=[], scratch=tmp_path)
    tensors = [replace(plan.tensors[0], make=lambda: torch.zeros(3, 3)), *plan.tensors[1:]]
    with pytest.raises(UsageError, match="where"):
        write_gguf(replace(plan, tensors=tensors), tmp_path / "x.gguf")


def test_llama3_factors_equal_transformers(tmp_path):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    source = make_model(tmp_path / "base", "llama", rope_parameters=LLAMA3, head_dim=64)
    config = tuned_model(source, None).config
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 1.0 / (500000.0 ** (torch.arange(0, 64, 2).float() / 64))
    torch.testing.assert_close(torch.tensor(llama3_factors(source.spec.rope, 64)), plain / scaled, rtol=1e-5, atol=1e-6)
    assert json.loads((source.folder / "config.json").read_text())["model_type"] == "llama"
