"""Impossible values of config.json, and weight files that do not fit it, are refused before a weight is read."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish_engine.advise.facts.catalog import find_model
from burnish_engine.cli.main import main
from burnish_engine.contract.errors import SetupError
from burnish_engine.models.checkpoint.config_checks import ACTIVATIONS, DTYPES, ROPE_TYPES
from burnish_engine.models.checkpoint.source import open_model, opens_without_torch
from burnish_engine.radar.small_model import small_model

from support.models.catalog_models import save_plain, small_checkpoint
from support.models.export import edit_json
from support.models.tiny import conversations, make_llama, make_tokenizer, write_jsonl


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_llama(tmp_path_factory.mktemp("whole") / "base")


@pytest.fixture
def folder(whole, tmp_path):
    """A model to damage."""
    return shutil.copytree(whole, tmp_path / "model")


def refused(folder):
    """The paragraph that opening the model ends with."""
    with pytest.raises(SetupError) as caught:
        open_model(str(folder))
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("vocab_size", None, "null"), ("vocab_size", "many", '"many"'), ("hidden_size", 64.0, "64.0"),
        ("hidden_size", 0, "0"), ("intermediate_size", -3, "-3"), ("num_hidden_layers", 10**9, "1000000000"),
        ("num_hidden_layers", True, "true"), ("num_attention_heads", 0, "0"), ("num_attention_heads", 7, "7"),
        ("num_attention_heads", [4], "[4]"), ("num_key_value_heads", 0, "0"), ("head_dim", 0, "0"),
        ("rms_norm_eps", "1e-5", '"1e-5"'), ("rms_norm_eps", None, "null"), ("rms_norm_eps", float("nan"), "NaN"),
        ("rms_norm_eps", 0, "0"), ("rms_norm_eps", 10**400, f"1{'0' * 56}..."),
        ("max_position_embeddings", 15, "15"), ("rope_theta", "x", '"x"'),
        ("hidden_act", "foo", '"foo"'), ("hidden_act", None, "null"), ("hidden_act", ["silu"], '["silu"]'),
        ("sliding_window", "x", '"x"'), ("attention_bias", "yes", '"yes"'), ("eos_token_id", "x", '"x"'),
        ("pad_token_id", [1, True], "[1, true]"), ("num_experts_per_tok", 99, "99"),
        ("num_experts", 10**9, "1000000000"), ("num_local_experts", "8", '"8"'), ("num_experts", -4, "-4"),
        ("dtype", "float99", '"float99"'), ("dtype", 7, "7"), ("torch_dtype", "int8", '"int8"'),
    ],
)  # fmt: skip
def test_a_value_that_no_model_has_is_named(folder, key, value, shown):
    edit_json(folder / "config.json", **{"num_experts": 4, key: value})
    assert f"{key} = {shown}," in refused(folder)
    assert opens_without_torch(str(folder))  # the refusal needs no torch either


def test_the_activations_are_those_of_transformers():
    from transformers.activations import ACT2FN

    assert set(ACT2FN) == ACTIVATIONS


def test_the_ropes_are_those_of_transformers():
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    assert {*ROPE_INIT_FUNCTIONS, "default", "su"} == ROPE_TYPES


@pytest.mark.parametrize(
    ("rope", "shown"),
    [({"rope_scaling": {"type": "nope"}}, "rope_scaling.type ="),
     ({"rope_parameters": {"full_attention": {"rope_type": 3}}}, "rope_parameters.full_attention.rope_type =")],
)  # fmt: skip
def test_a_rope_that_transformers_has_not_is_named(folder, rope, shown):
    edit_json(folder / "config.json", **rope)
    assert shown in refused(folder)


PLAIN = {
    "LiquidAI/LFM2-350M": [
        {"intermediate_size": 96}, {"hidden_size": 64}, {"conv_L_cache": 4}, {"num_hidden_layers": 5},
        {"num_attention_heads": 2},
    ],
    "openai/gpt-oss-20b": [
        {"intermediate_size": 96}, {"num_local_experts": 3}, {"num_attention_heads": 7}, {"head_dim": 24},
        {"hidden_size": 64}, {"num_hidden_layers": 3},
    ],
    "Qwen/Qwen3-30B-A3B": [
        {"moe_intermediate_size": 96}, {"num_experts": 5}, {"num_attention_heads": 6}, {"hidden_size": 64},
        {"num_hidden_layers": 3},
    ],
}  # fmt: skip
OTHERS = {
    "olmo2": [
        {"intermediate_size": 100}, {"hidden_size": 96}, {"num_attention_heads": 0}, {"num_hidden_layers": 5},
        {"hidden_act": "nope"}, {"max_position_embeddings": "x"}, {"vocab_size": 700}, {"eos_token_id": "x"},
    ],
    "mixtral": [
        {"intermediate_size": 100}, {"num_local_experts": 3}, {"head_dim": 24}, {"num_hidden_layers": 5},
    ],
}  # fmt: skip


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_families_that_transformers_computes_are_compared_too(name, tmp_path):
    if name in PLAIN:
        folder = small_checkpoint(find_model(name), tmp_path)
    else:
        make_tokenizer(tmp_path)
        small_model(name).config.save_pretrained(tmp_path)
        edit_json(tmp_path / "config.json", vocab_size=640)
        folder = save_plain(tmp_path, json.loads((tmp_path / "config.json").read_text()))
    open_model(str(folder))
    whole = (folder / "config.json").read_text()
    for changes in {**PLAIN, **OTHERS}[name]:
        edit_json(folder / "config.json", **changes)
        assert refused(folder)
        (folder / "config.json").write_text(whole)


def test_the_dtypes_are_those_of_torch():
    dtypes = {name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)}
    assert {name for name in dtypes if getattr(torch, name).is_floating_point} == DTYPES


@pytest.mark.parametrize("dtype", [None, "torch.bfloat16", "half"])
def test_dtypes_that_transformers_takes_are_accepted(folder, dtype):
    edit_json(folder / "config.json", dtype=dtype)
    open_model(str(folder))


@pytest.mark.parametrize("changes", [{"num_attention_heads": 7, "head_dim": None}, {"num_key_value_heads": 3}])
def test_heads_that_do_not_share_out(folder, changes):
    edit_json(folder / "config.json", **changes)
    assert "num_attention_heads = " in refused(folder)


def test_a_number_of_too_many_digits(folder):
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"num_hidden_layers": 2', f'"num_hidden_layers": {"9" * 5000}'))
    assert "not valid JSON" in refused(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 5000}, "embed_tokens.weight"), ({"hidden_size": 32}, "(vocab_size, hidden_size)"),
        ({"intermediate_size": 100}, "(intermediate_size, hidden_size)"),
        ({"num_attention_heads": 8, "head_dim": 16}, "(num_attention_heads x head_dim, hidden_size)"),
        ({"num_hidden_layers": 3}, "num_hidden_layers = 3"), ({"num_hidden_layers": 1}, "hold 2 layers"),
        ({"tie_word_embeddings": False}, "lm_head.weight"), ({"attention_bias": True}, "q_proj.bias"),
    ],
)  # fmt: skip
def test_a_config_of_another_model(folder, changes, words):
    edit_json(folder / "config.json", **changes)
    assert words in refused(folder)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def garbage(path):
    raw = path.read_bytes()
    path.write_bytes(raw[:8] + b"x" * 100 + raw[108:])


def one_missing(path):
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path, metadata={"format": "pt"})


def others(path):
    save_file({"a": load_file(path)["model.norm.weight"]}, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "words"),
    [(cut, "is damaged"), (garbage, "is damaged"), (one_missing, "lack 1 of 20 tensors"), (others, "hold none of")],
)
def test_weight_files_that_are_not_whole(folder, damage, words):
    damage(folder / "model.safetensors")
    assert words in refused(folder)


def test_a_shard_without_what_the_index_places_there(folder):
    file = "model-00001-of-00001.safetensors"
    names = [*load_file(folder / "model.safetensors"), "model.more.weight"]
    (folder / "model.safetensors").rename(folder / file)
    index = {"weight_map": dict.fromkeys(names, file)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "do not have them" in refused(folder)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("command", ["plan", "train"])
@pytest.mark.parametrize("damage", ["value", "dtype", "layers", "weights", "tokenizer"])
def test_plan_and_train_end_alike(folder, tmp_path, capsys, command, damage):
    if damage == "value":
        edit_json(folder / "config.json", vocab_size=None)
    elif damage == "dtype":
        edit_json(folder / "config.json", torch_dtype="float99")
    elif damage == "layers":
        edit_json(folder / "config.json", model_type="qwen3", layer_types=["full_attention"])
    elif damage == "weights":
        cut(folder / "model.safetensors")
    else:
        raw = json.loads((folder / "tokenizer.json").read_text())
        raw["added_tokens"].append({**raw["added_tokens"][0], "id": 365, "content": "<more>", "special": False})
        (folder / "tokenizer.json").write_text(json.dumps(raw))
    data = write_jsonl(tmp_path / "data.jsonl", conversations(10))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"[model]\npath = '{folder}'\n[data]\nfiles = ['{data}']\n[devices]\nkind = 'cpu'\n")
    assert main([command, str(recipe), *(["--skip-data"] if command == "plan" else [])]) == 12
    said = {
        "value": "vocab_size = null",
        "dtype": 'torch_dtype = "float99"',
        "layers": "cannot build the model",
        "weights": "is damaged",
        "tokenizer": "ids up to 365",
    }[damage]
    assert said in capsys.readouterr().err
