"""Adapter files: PEFT reads ours, we read PEFT's, both begin with the same numbers, and odd files are told apart."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.decoder.decoder_load import DecoderOptions, load_decoder
from burnish_engine.models.decoder.lora_adapter import CONFIG_FILE, WEIGHTS_FILE, plan_adapter, read_plan
from burnish_engine.models.families import FAMILIES, family
from burnish_engine.models.saved_adapters.adapter_files import why_not_plain_lora
from burnish_engine.models.transformers_path import plain
from burnish_engine.train.fast.fast_model import make_trainable

from support.models import parity, tiny_models

BATCH = parity.micro_batch()


def modules_of(base):
    spec = parity.model_source(base).spec
    return family(spec.family).modules(spec)


def new(base, section):
    """Our decoder with a new adapter."""
    plan = plan_adapter(section, modules_of(base))
    source = parity.model_source(base)
    return make_trainable(load_decoder(source, DecoderOptions(torch.float32, parity.CPU, 256, plan)))


@pytest.mark.full
@pytest.mark.parametrize("name", ["llama", "qwen3", "phi3", "gemma3", "smollm3"])
@pytest.mark.parametrize(
    ("targets", "method"), [(["all-linear"], "lora"), (["v_proj", "o_proj", "down_proj", "qkv_proj"], "dora")]
)
def test_a_new_adapter_starts_with_pefts_numbers(bases, name, targets, method):
    section = AdapterSection(rank=5, targets=targets, method=method)
    model = new(bases(name), section)
    state = torch.get_rng_state()
    model.initialize(123)
    assert torch.equal(torch.get_rng_state(), state)
    tuned = plain.attach_adapter(tiny_models.load(bases(name)), section, 123)
    theirs = {parity.file_name(key): value for key, value in plain.trainable_parameters(tuned)}
    ours = model.adapter.named()
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        torch.testing.assert_close(ours[key], value, rtol=2e-7 if "magnitude" in key else 0.0, atol=0.0)


OF_EACH_FAMILY = {tiny_models.SHAPES[name][0]: name for name in tiny_models.SHAPES}
"""model_type to the last shape of it."""


def test_every_family_of_the_fast_decoder_is_here():
    mixtures = {model_type for model_type, _ in tiny_models.MIXTURES.values()}  # in experts/test_adapted_experts.py
    assert FAMILIES.keys() == OF_EACH_FAMILY.keys() | mixtures


@pytest.mark.full
@pytest.mark.parametrize("method", ["lora", "rslora", "dora"])
@pytest.mark.parametrize("name", OF_EACH_FAMILY.values())
def test_plain_peft_reads_what_we_write(bases, tmp_path, name, method):
    from peft import LoraConfig, PeftModel

    base = bases(name)
    section = AdapterSection(rank=3, alpha=7.0, dropout=0.25, method=method, targets=["all-linear"])
    model = new(base, section)
    model.initialize(0)
    with torch.no_grad():
        for key, tensor in model.adapter.named().items():
            if ".lora_B." in key:
                tensor.normal_(0.0, 0.05)
            if "magnitude" in key:
                tensor.mul_(1.0 + 0.1 * torch.randn_like(tensor))
    model.write_compute_copies()
    folder = tmp_path / "adapter"
    folder.mkdir()
    model.adapter.save(folder, str(base))
    config = json.loads((folder / CONFIG_FILE).read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (3, 7, 0.25)
    assert config["base_model_name_or_path"] == str(base)
    assert (config["task_type"], config["peft_type"], config["use_rslora"]) == ("CAUSAL_LM", "LORA", method == "rslora")
    assert config["use_dora"] == (method == "dora")
    theirs = parity.peft_logits(PeftModel.from_pretrained(tiny_models.load(base), str(folder)).eval(), BATCH)
    assert parity.same_logits(parity.Fast(model.loaded, model).logits(BATCH), theirs, 1e-5)
    assert parity.distance(theirs, parity.peft_logits(parity.peft(base), BATCH)) > 0.01
    assert parity.same_logits(parity.fast(base, folder).logits(BATCH), theirs, 1e-5)
    written_by_peft = tmp_path / "written by peft"
    LoraConfig.from_pretrained(folder).save_pretrained(str(written_by_peft))
    reference = json.loads((written_by_peft / CONFIG_FILE).read_text())
    assert config.keys() <= reference.keys()
    assert {key: reference[key] for key in config} | {"target_modules": 0} == config | {"target_modules": 0}
    assert sorted(reference["target_modules"]) == sorted(config["target_modules"])


PATTERNS = {
    "target_modules": "all-linear",
    "rank_pattern": {"q_proj": 3, r"layers\.1\.mlp\.down_proj": 9},
    "alpha_pattern": {"layers.0.self_attn.q_proj": 1, "q_proj": 40, r".*\.mlp\.(gate|up)_proj": 3},
}


@pytest.mark.full
@pytest.mark.parametrize("settings", [PATTERNS, {"target_modules": ["q_proj"], "layers_to_transform": [1]}])
def test_patterns_survive_reading_and_writing(bases, tmp_path, settings):
    from peft import LoraConfig, get_peft_model

    base = bases("llama")
    tuned = get_peft_model(tiny_models.load(base), LoraConfig(r=5, lora_alpha=10, task_type="CAUSAL_LM", **settings))
    with torch.no_grad():
        for key, value in tuned.named_parameters():
            if "lora_B" in key:
                value.normal_(0.0, 0.05)
    tuned.save_pretrained(tmp_path / "theirs")
    plan = read_plan(tmp_path / "theirs", modules_of(base))
    layers = {key.removeprefix("base_model.model."): layer for key, layer in tuned.named_modules()}
    for adapted in plan.modules:
        layer = layers[adapted.module.path]
        assert (adapted.rank, adapted.scale) == (layer.r["default"], layer.scaling["default"]), adapted.module.path

    ours = tmp_path / "ours"
    ours.mkdir()
    parity.fast(base, tmp_path / "theirs").model.adapter.save(ours, "somewhere")
    configs = [json.loads((folder / CONFIG_FILE).read_text()) for folder in (tmp_path / "theirs", ours)]
    for key in ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "layers_to_transform", "peft_version"):
        assert configs[1][key] == configs[0][key], key
    assert sorted(configs[1]["target_modules"]) == sorted(configs[0]["target_modules"])
    again = parity.peft_logits(parity.peft(base, ours), BATCH)
    assert torch.equal(again, parity.peft_logits(parity.peft(base, tmp_path / "theirs"), BATCH))
    files = [load_file(folder / WEIGHTS_FILE) for folder in (tmp_path / "theirs", ours)]
    assert files[0].keys() == files[1].keys()
    assert all(torch.equal(files[0][key], files[1][key]) for key in files[0])


def test_targets_are_chosen_by_name(bases):
    modules = modules_of(bases("llama"))
    plan = plan_adapter(AdapterSection(rank=4, alpha=6.0, targets=["q_proj", "nothing", "down_proj"]), modules)
    assert {adapted.module.path.rpartition(".")[2] for adapted in plan.modules} == {"q_proj", "down_proj"}
    assert {(adapted.rank, adapted.scale) for adapted in plan.modules} == {(4, 1.5)}
    assert len(plan_adapter(AdapterSection(targets=["all-linear"]), modules).modules) == len(modules) == 14
    with pytest.raises(UsageError, match="q_proj"):
        plan_adapter(AdapterSection(targets=["nothing"]), modules)


@pytest.fixture
def damaged(bases, tmp_path):
    """Copy a good adapter with changes: (config changes, function of its tensors) -> folder."""
    good = tiny_models.lora(bases("llama"), tmp_path / "good", rank=4)
    count = iter(range(99))

    def make(config=None, tensors=None):
        folder = shutil.copytree(good, tmp_path / f"damaged {next(count)}")
        if isinstance(config, dict):
            before = json.loads((folder / CONFIG_FILE).read_text())
            (folder / CONFIG_FILE).write_text(json.dumps(before | config))
        elif config is not None:
            (folder / CONFIG_FILE).write_text(config)
        if tensors:
            save_file(tensors(load_file(folder / WEIGHTS_FILE)), folder / WEIGHTS_FILE)
        return folder

    return make


Q = "base_model.model.model.layers.0.self_attn.q_proj"
CONFIGS = {
    "not JSON": ("{", "cannot be read"),
    "no object": ("[1]", "holds no object"),
    "another method": ({"peft_type": "IA3"}, "of the type IA3"),
    "biases": ({"bias": "all"}, "holds biases"),
    "biases of B": ({"lora_bias": True}, "holds biases"),
    "whole modules": ({"modules_to_save": ["lm_head"]}, "holds whole modules"),
    "PiSSA": ({"init_lora_weights": "pissa_niter_4"}, "changes its base's own weights"),
    "repeated layers": ({"layer_replication": [[0, 2], [1, 2]]}, "repeats layers"),
    "aLoRA": ({"alora_invocation_tokens": [5]}, "aLoRA"),
    "alpha is a word": ({"lora_alpha": "many"}, "alpha 'many'"),
    "alpha is a list": ({"alpha_pattern": {"q_proj": [1]}}, "no finite number"),
    "patterns are a list": ({"alpha_pattern": [1]}, "no object"),
    "a pattern that is none": ({"alpha_pattern": {"q_proj(": 3}}, "no regular expression"),
    "dropout is a word": ({"lora_dropout": "x"}, "the dropout 'x'"),
    "everything dropped": ({"lora_dropout": 1.0}, "the dropout 1.0"),
}


@pytest.mark.full
@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_is_not_plain_lora_is_refused(bases, damaged, name):
    change, message = CONFIGS[name]
    with pytest.raises(SetupError, match=message) as told:
        read_plan(damaged(change), modules_of(bases("llama")))
    assert told.value.remedy
    assert "\n" not in str(told.value)


def without(*names):
    return lambda tensors: {key: value for key, value in tensors.items() if key not in names}


def changed(name, value):
    return lambda tensors: tensors | {name: value}


TENSORS = {
    "no B": (without(f"{Q}.lora_B.weight"), "lacks 1 of the tensors"),
    "A of another width": (changed(f"{Q}.lora_A.weight", torch.zeros(4, 32)), r"A \(4, 32\)"),
    "B of another height": (changed(f"{Q}.lora_B.weight", torch.zeros(32, 4)), r"B \(32, 4\)"),
    "ranks that differ": (changed(f"{Q}.lora_B.weight", torch.zeros(64, 5)), r"B \(64, 5\)"),
    "A is a vector": (changed(f"{Q}.lora_A.weight", torch.zeros(64)), r"A \(64,\)"),
    "rank 0": (
        lambda tensors: tensors | {f"{Q}.lora_A.weight": torch.zeros(0, 64), f"{Q}.lora_B.weight": torch.zeros(64, 0)},
        "the rank 0",
    ),
    "a layer too many": (
        changed("base_model.model.model.layers.7.mlp.up_proj.lora_A.weight", torch.zeros(4, 64)),
        "layers.7.mlp.up_proj",
    ),
    "the embedding": (changed("base_model.model.model.embed_tokens.lora_embedding_A", torch.zeros(4, 9)), "embed_tok"),
    "a magnitude": (changed(f"{Q}.lora_magnitude_vector", torch.zeros(64)), "magnitude"),
    "nothing": (lambda tensors: {}, "no tensors"),
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_do_not_fit_are_refused_by_name(bases, damaged, name):
    change, message = TENSORS[name]
    with pytest.raises(SetupError, match=message):
        read_plan(damaged(tensors=change), modules_of(bases("llama")))


def test_files_that_are_missing_or_cut(bases, damaged):
    modules = modules_of(bases("llama"))
    folder = damaged()
    (folder / WEIGHTS_FILE).write_bytes((folder / WEIGHTS_FILE).read_bytes()[:-100])
    with pytest.raises(SetupError, match="is damaged"):
        read_plan(folder, modules)
    (folder / WEIGHTS_FILE).unlink()
    with pytest.raises(SetupError, match="holds no adapter"):
        read_plan(folder, modules)
    folder = damaged()
    (folder / CONFIG_FILE).unlink()
    with pytest.raises(SetupError, match="cannot be read"):
        read_plan(folder, modules)


@pytest.mark.full
@pytest.mark.parametrize(("missing", "scale"), [("lora_alpha", 2.0), ("lora_dropout", 4.0), ("bias", 4.0)])
def test_keys_that_are_absent_mean_what_they_mean_to_peft(bases, damaged, missing, scale):
    folder = damaged()
    config = json.loads((folder / CONFIG_FILE).read_text())
    del config[missing]
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    plan = read_plan(folder, modules_of(bases("llama")))
    assert {adapted.scale for adapted in plan.modules} == {scale}
    assert plan.dropout == 0.0


@pytest.mark.parametrize("init", [True, False, "gaussian", "orthogonal", "eva"])
def test_starts_that_leave_the_base_alone_are_plain_lora(init):
    assert (
        why_not_plain_lora({"peft_type": "LORA", "init_lora_weights": init, "bias": None, "modules_to_save": []}) == ""
    )
