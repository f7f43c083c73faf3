"""Merging: equal to what PEFT computes, for every method; wrong or unfit parts are refused."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.export.weights.adapter import read_adapter
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.transformers_path.plain import load_base

from support.models import tiny_models
from support.models.export import CPU, edit_json, make_adapter, make_model, tuned_model

IDS = torch.arange(40).reshape(1, 40)


def merged_logits(source, adapter):
    weights = MergedWeights(source, adapter)
    model = load_base(source, "fp32", CPU)
    state = {name: weights.load(name) for name in weights.names}
    weights.check_all_used()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    with torch.no_grad():
        return model(IDS).logits


def check_equal(source, adapter):
    base, tuned = tuned_model(source, None), tuned_model(source, adapter)
    with torch.no_grad():
        wanted, plain = tuned(IDS).logits, base(IDS).logits
    assert (wanted - plain).abs().max() > 0.05  # the adapter does something
    torch.testing.assert_close(merged_logits(source, adapter), wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize("method", ["lora", "rslora", "dora"])
def test_every_method_is_merged_as_peft_computes_it(wide, tmp_path, method):
    check_equal(wide, make_adapter(wide, tmp_path / "adapter", method=method))


@pytest.mark.full
@pytest.mark.parametrize("method", ["lora", "rslora", "dora"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "phi4-mini", "lfm2", "granite4", "olmo2", "ministral3", "apertus"])
def test_merged_weights_are_those_of_pefts_own_merge(tmp_path, name, method):
    from peft import PeftModel

    folder = tiny_models.make(name, tmp_path / "base", tokenizer=True)
    how = {"rslora": method == "rslora", "dora": method == "dora"}
    adapter = tiny_models.lora(folder, tmp_path / "adapter", rank=5, **how)
    theirs = PeftModel.from_pretrained(tiny_models.load(folder), str(adapter)).merge_and_unload().state_dict()
    plain = tiny_models.load(folder).state_dict()
    weights = MergedWeights(open_model(str(folder)), adapter)
    changed = 0
    for weight in weights.names:
        torch.testing.assert_close(weights.load(weight), theirs[weight], rtol=1e-5, atol=1e-6)
        changed += not torch.equal(theirs[weight], plain[weight])
    weights.check_all_used()
    assert changed >= 4 * open_model(str(folder)).spec.num_layers


@pytest.mark.full
def test_names_that_transformers_changes_when_it_loads_are_merged_too(tmp_path):
    """LFM3's gates have another name in the files."""
    folder = tiny_models.make("lfm3", tmp_path / "base", tokenizer=True)
    source = open_model(str(folder))
    adapter = tiny_models.lora(folder, tmp_path / "adapter")
    assert any("self_attn.gate_proj" in source_name for source_name in load_file(folder / "model.safetensors"))
    check_equal(source, adapter)


@pytest.mark.full
def test_rank_and_alpha_patterns(wide, tmp_path):
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], use_rslora=True, task_type="CAUSAL_LM",
        rank_pattern={"layers.1.self_attn.q_proj": 2, "down_proj": 8}, alpha_pattern={"v_proj": 32},
    )  # fmt: skip
    check_equal(wide, make_adapter(wide, tmp_path / "adapter", config=config))


@pytest.mark.full
def test_modules_to_save_and_trained_biases_take_the_place_of_the_base(tmp_path):
    source = make_model(tmp_path / "base", "llama", attention_bias=True, tie_word_embeddings=False)
    config = LoraConfig(
        r=4, target_modules=["q_proj"], modules_to_save=["lm_head"], bias="lora_only", task_type="CAUSAL_LM"
    )
    check_equal(source, make_adapter(source, tmp_path / "adapter", config=config))


@pytest.mark.full
def test_an_adapter_on_the_embedding(tmp_path):
    source = make_model(tmp_path / "base", "llama", tie_word_embeddings=False)
    config = LoraConfig(r=4, target_modules=["embed_tokens", "o_proj"], task_type="CAUSAL_LM")
    check_equal(source, make_adapter(source, tmp_path / "adapter", config=config))


def test_a_sharded_base_is_read_tensor_by_tensor(wide, wide_adapter, tmp_path):
    base = tmp_path / "sharded"
    load_base(wide, "fp32", CPU).save_pretrained(base, max_shard_size="400KB")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(wide.folder / name, base / name)
    assert len(list(base.glob("*.safetensors"))) > 2
    check_equal(open_model(str(base)), wide_adapter)


def test_one_file_counts_before_an_index_as_for_training(wide, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(wide.folder, base)
    stored = load_file(base / "model.safetensors")
    save_file({name: 2 * value for name, value in stored.items()}, base / "other.safetensors", {"format": "pt"})
    places = {"weight_map": dict.fromkeys(stored, "other.safetensors")}
    (base / "model.safetensors.index.json").write_text(json.dumps(places))
    assert torch.equal(
        MergedWeights(open_model(str(base)), None).load("model.norm.weight"), stored["model.norm.weight"]
    )


def test_a_base_whose_tensors_transformers_names_anew_is_merged_under_its_own_names(tmp_path):
    """As of a checkpoint that was saved without the part around it, of a family that Burnish has no table of."""
    source = make_model(tmp_path / "base", "olmo", tie_word_embeddings=True)
    tensors = load_file(source.folder / "model.safetensors")
    short = {name.removeprefix("model."): value for name, value in tensors.items()}
    save_file(short, source.folder / "model.safetensors", metadata={"format": "pt"})
    adapter = make_adapter(source, tmp_path / "adapter")
    weights = MergedWeights(source, adapter)
    merged = {name: weights.load(name) for name in weights.names}
    assert merged.keys() == short.keys()
    with torch.no_grad():
        model = load_base(source, "fp32", CPU)
        model.load_state_dict({f"model.{name}": value for name, value in merged.items()}, strict=False)
        torch.testing.assert_close(model(IDS).logits, tuned_model(source, adapter)(IDS).logits, rtol=1e-4, atol=2e-5)


def test_without_an_adapter_nothing_changes(wide):
    weights = MergedWeights(wide, None)
    stored = load_file(wide.folder / "model.safetensors")
    for name in weights.names:
        assert torch.equal(weights.load(name), stored[name].float())


@pytest.mark.full
def test_bf16_bases_are_summed_in_fp32(wide, wide_adapter, tmp_path):
    base = tmp_path / "bf16"
    shutil.copytree(wide.folder, base)
    load_base(wide, "bf16", CPU).save_pretrained(base)
    source = open_model(str(base))
    name = "model.layers.0.self_attn.q_proj.weight"
    weights = MergedWeights(source, wide_adapter)
    assert weights.base_dtype(name) == "BF16"
    update = read_adapter(wide_adapter).updates[name]
    delta = update.scale * (update.b.double() @ update.a.double())
    exact = load_file(base / "model.safetensors")[name].double() + delta
    assert (weights.load(name).double() - exact).abs().max() < 1e-6


def test_an_unused_adapter_tensor_is_an_error(wide, wide_adapter):
    weights = MergedWeights(wide, wide_adapter)
    weights.load("model.layers.0.self_attn.q_proj.weight")
    with pytest.raises(SetupError, match="13 tensors of the adapter were not used"):
        weights.check_all_used()


def test_the_adapter_of_another_model_is_refused(wide, tmp_path):
    other = make_model(tmp_path / "other", "llama", num_hidden_layers=3)
    adapter = make_adapter(other, tmp_path / "adapter")
    with pytest.raises(SetupError, match=r"changes 7 tensors that base does not have.*layers\.2"):
        MergedWeights(wide, adapter)
    narrow = make_model(tmp_path / "narrow", "llama")
    with pytest.raises(SetupError, match=r"has the shape \[256, 128\]"):
        MergedWeights(wide, make_adapter(narrow, tmp_path / "narrow-adapter", targets=["gate_proj"]))


def test_parts_that_are_missing_or_of_the_wrong_rank_are_refused(wide, wide_adapter, tmp_path):
    folder = tmp_path / "adapter"
    shutil.copytree(wide_adapter, folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    first = next(name for name in tensors if name.endswith("lora_B.weight"))
    save_file({name: value for name, value in tensors.items() if name != first}, folder / "adapter_model.safetensors")
    with pytest.raises(SetupError, match="A and B are expected"):
        read_adapter(folder)
    save_file(tensors, folder / "adapter_model.safetensors")
    edit_json(folder / "adapter_config.json", r=8)
    with pytest.raises(SetupError, match="has the rank 4 for"):
        read_adapter(folder)
    edit_json(folder / "adapter_config.json", r=4)
    save_file(tensors | {first: torch.ones(len(tensors[first]), 3)}, folder / "adapter_model.safetensors")
    with pytest.raises(SetupError, match="4 in A and 3 in B"):
        read_adapter(folder)
    save_file(tensors | {first: torch.tensor(1.0)}, folder / "adapter_model.safetensors")
    with pytest.raises(SetupError, match="matrices A and B"):
        read_adapter(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"r": 0}, "rank 0"), ({"r": "x"}, "rank 'x'"), ({"r": None}, "rank None"), ({"r": True}, "rank True"),
        ({"lora_alpha": "x"}, "alpha 'x'"), ({"lora_alpha": float("nan")}, "alpha nan"),
        ({"rank_pattern": {".*_proj": 0}}, "rank 0"), ({"rank_pattern": [1]}, "rank_pattern"),
        ({"alpha_pattern": {"(": 2}}, "regular expression"),
    ],
)  # fmt: skip
def test_settings_that_no_adapter_has_are_named(wide_adapter, tmp_path, change, words):
    folder = shutil.copytree(wide_adapter, tmp_path / "adapter")
    edit_json(folder / "adapter_config.json", **change)
    with pytest.raises(SetupError, match=words):
        read_adapter(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"init_lora_weights": "pissa"}, "pissa"),
        ({"layer_replication": [[0, 1]]}, "repeats layers"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
    ],
)
def test_adapters_that_cannot_be_merged_exactly_are_refused(wide_adapter, tmp_path, change, words):
    folder = tmp_path / "adapter"
    shutil.copytree(wide_adapter, folder)
    edit_json(folder / "adapter_config.json", **change)
    with pytest.raises(UsageError, match=words):
        read_adapter(folder)


def test_damaged_and_missing_adapters_are_named(wide_adapter, tmp_path):
    with pytest.raises(SetupError, match="holds no adapter"):
        read_adapter(tmp_path)
    folder = tmp_path / "adapter"
    shutil.copytree(wide_adapter, folder)
    (folder / "adapter_model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(SetupError, match="is damaged"):
        read_adapter(folder)


def test_quantized_bases_are_refused(wide, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(wide.folder, base)
    edit_json(base / "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    with pytest.raises(UsageError, match=r"is quantized \(bitsandbytes\)"):
        MergedWeights(open_model(str(base)), None)
    shutil.copy(wide.folder / "config.json", base / "config.json")
    tensors = load_file(base / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"] = torch.zeros(4, 4, dtype=torch.uint8)
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"up_proj\.weight is U8"):
        MergedWeights(open_model(str(base)), None)


def test_tables_of_whole_numbers_are_not_quantized_weights(wide, tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(wide.folder, folder)
    held = load_file(folder / "model.safetensors")
    held["model.layers.0.mlp.ids"] = torch.arange(6)
    save_file(held, folder / "model.safetensors", {"format": "pt"})
    weights = MergedWeights(open_model(str(folder)), None)
    assert weights.others == ["model.layers.0.mlp.ids"]
    assert weights.load_other("model.layers.0.mlp.ids").equal(torch.arange(6))
    assert "model.layers.0.mlp.ids" not in weights.names


def test_a_base_file_that_is_cut_off_is_named(wide, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(wide.folder, base)
    whole = (base / "model.safetensors").read_bytes()
    (base / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SetupError, match=r"model\.safetensors is damaged"):
        MergedWeights(replace(wide, folder=base), None)
