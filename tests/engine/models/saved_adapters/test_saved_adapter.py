"""A saved adapter is judged alike by all that read it: what is refused, and in which words."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.recipe.checks import patterns
from burnish_engine.export.weights.adapter import read_adapter
from burnish_engine.models.decoder.lora_adapter import read_plan
from burnish_engine.models.families import family
from burnish_engine.models.generation.load_fast import load_for_generation
from burnish_engine.models.saved_adapters.saved_adapter import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    is_promised,
    read_config,
    refuse_other_ranks,
)
from burnish_engine.models.transformers_path import plain

from support.models import parity, tiny_models

REPEATS = "((a{1000}){1000}){1000}"
SLOW = r"(?:.*?.*?)+?[!?]"
SLOW_FOR_PEFT = r"(.*.*)*x!"
"""Takes for ever in Python's `re`, which PEFT uses, and no time in `regex`."""
Q = "base_model.model.model.layers.0.self_attn.q_proj"


def changed(**config):
    def change(folder):
        file = folder / CONFIG_FILE
        file.write_text(json.dumps(json.loads(file.read_text()) | config))

    return change


def tensors(change):
    def damage(folder):
        save_file(change(load_file(folder / WEIGHTS_FILE)), folder / WEIGHTS_FILE)

    return damage


def without(*names):
    return tensors(lambda found: {name: value for name, value in found.items() if name not in names})


def broken(value):
    def change(found):
        found[f"{Q}.lora_B.weight"][3, 1] = value
        return found

    return tensors(change)


DAMAGE = {
    "a rank that its config does not name": (changed(r=6), "rank 4"),
    "a rank that only a pattern names": (changed(rank_pattern={"q_proj": 2}), r"q_proj.*says 2"),
    "patterns that are a list": (changed(rank_pattern=[3]), "rank_pattern"),
    "a pattern without end": (changed(rank_pattern={SLOW: 2}), "rank_pattern .*too long"),
    "a pattern that repeats too much": (changed(rank_pattern={REPEATS: 2}), "rank_pattern .*repeats so much"),
    "a pattern that is none": (changed(rank_pattern={"(": 2}), "rank_pattern .*no regular expression"),
    "a layer that the model does not have": (
        tensors(lambda found: found | {"base_model.model.model.layers.7.mlp.up_proj.lora_A.weight": torch.ones(4, 64)}),
        r"layers\.7\.mlp\.up_proj.*no place",
    ),
    "magnitudes that its config does not name": (
        tensors(lambda found: found | {f"{Q}.lora_magnitude_vector": torch.ones(64)}),
        "lora_magnitude_vector.*no place",
    ),
    "a module without its tensors": (without(f"{Q}.lora_A.weight", f"{Q}.lora_B.weight"), "lacks 2 .*q_proj.lora_A"),
    "half a module": (without(f"{Q}.lora_B.weight"), "lacks 1 .*q_proj.lora_B"),
    "magnitudes that are not there": (changed(use_dora=True), "lacks 14 "),
    "a value that is no number": (broken(float("nan")), "1 of its tensors.*q_proj.lora_B"),
    "an infinite value": (broken(float("-inf")), "1 of its tensors.*q_proj.lora_B"),
}


@pytest.mark.full
@pytest.mark.parametrize("name", DAMAGE)
def test_both_engines_refuse_it_in_the_same_words(bases, tmp_path, monkeypatch, name):
    monkeypatch.setattr(patterns, "SECONDS", 0.05)
    base, folder = bases("llama"), tiny_models.lora(bases("llama"), tmp_path / "adapter", rank=4)
    damage, message = DAMAGE[name]
    damage(folder)
    source = parity.model_source(base)
    with pytest.raises(SetupError, match=message) as by_plain:
        plain.load_adapter(plain.load_base(source, "fp32", parity.CPU), folder)
    with pytest.raises(SetupError) as by_fast:
        read_plan(folder, family("llama").modules(source.spec))
        parity.fast(base, folder)
    assert str(by_fast.value) == str(by_plain.value)
    assert by_fast.value.remedy


def test_a_reply_does_not_come_from_a_damaged_adapter(bases, tmp_path):
    folder = tiny_models.lora(bases("llama"), tmp_path / "adapter", rank=4)
    broken(float("nan"))(folder)
    with pytest.raises(SetupError, match="no numbers"):
        load_for_generation(parity.model_source(bases("llama")), folder, "fp32", parity.CPU)
    with pytest.raises(SetupError, match="no numbers"):
        read_adapter(folder)


SETTINGS = {
    "ranks by pattern": {
        "target_modules": "all-linear",
        "rank_pattern": {"q_proj": 3, r"layers\.1\.mlp\.down_proj": 9},
    },
    "some layers": {"target_modules": ["q_proj"], "layers_to_transform": [1]},
    "layer 0 alone": {"target_modules": ["q_proj"], "layers_to_transform": 0},
    "modules by pattern": {"target_modules": r".*\.1\.mlp\.(up|down)_proj"},
    "all but some": {"target_modules": "all-linear", "exclude_modules": ["v_proj"]},
    "magnitudes": {"target_modules": ["o_proj", "gate_proj"], "use_dora": True},
}


@pytest.mark.full
@pytest.mark.parametrize("name", SETTINGS)
def test_whatever_peft_saves_is_whole_for_both_engines(bases, tmp_path, name):
    from peft import LoraConfig, get_peft_model

    base = bases("llama")
    config = LoraConfig(r=5, lora_alpha=10, task_type="CAUSAL_LM", **SETTINGS[name])
    get_peft_model(tiny_models.load(base), config).save_pretrained(tmp_path)
    source = parity.model_source(base)
    read = plain.load_adapter(plain.load_base(source, "fp32", parity.CPU), tmp_path)
    plan = read_plan(tmp_path, family("llama").modules(source.spec))
    adapted = {key.removeprefix("base_model.model.") for key, layer in read.named_modules() if hasattr(layer, "lora_A")}
    assert {one.module.path for one in plan.modules} == adapted


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("said", "modules"),
    [
        ({"rank_pattern": {SLOW_FOR_PEFT: 9}, "alpha_pattern": {SLOW_FOR_PEFT: 9}}, 14),
        ({"target_modules": rf"{SLOW_FOR_PEFT}|.*_proj", "exclude_modules": SLOW_FOR_PEFT}, 14),
        ({"rank_pattern": {r"layers\.[01].*_proj": 4}, "r": 2}, 14),
    ],
)
def test_peft_searches_no_pattern_of_a_file(bases, tmp_path, said, modules):
    folder = tiny_models.lora(bases("llama"), tmp_path / "adapter", rank=4)
    source = parity.model_source(bases("llama"))
    changed(**said)(folder)
    read = plain.load_adapter(plain.load_base(source, "fp32", parity.CPU), folder)
    assert len([key for key, layer in read.named_modules() if hasattr(layer, "lora_A")]) == modules


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"modules_to_save": [SLOW_FOR_PEFT]}, "modules_to_save"),
        ({"layers_to_transform": [0], "layers_pattern": SLOW_FOR_PEFT}, "layers_pattern"),
        ({"target_modules": SLOW}, "target_modules .*too long"),
        ({"target_modules": "("}, "target_modules .*no regular expression"),
        ({"exclude_modules": "("}, "exclude_modules .*no regular expression"),
        ({"rank_pattern": {f"m{number}": 4 for number in range(20_001)}}, "20,001 entries"),
    ],
)
def test_patterns_that_cannot_be_searched_are_refused(bases, tmp_path, monkeypatch, said, words):
    monkeypatch.setattr(patterns, "SECONDS", 0.05)
    folder = tiny_models.lora(bases("llama"), tmp_path / "adapter", rank=4)
    changed(**said)(folder)
    with pytest.raises(SetupError, match=words):
        plain.load_adapter(plain.load_base(parity.model_source(bases("llama")), "fp32", parity.CPU), folder)


@pytest.mark.full
def test_adapters_of_fused_experts_and_of_an_embedding_have_the_rank_of_their_config(tmp_path):
    config = {"r": 4, "target_parameters": ["mlp.experts.gate_up_proj"]}
    experts = "base_model.model.model.layers.0.mlp.experts"
    shapes = {f"{experts}.lora_A.weight": (16, 8), f"{experts}.base_layer.lora_A.weight": (16, 8)}
    refuse_other_ranks(tmp_path, config, shapes | {f"{Q}.lora_A.weight": (4, 8), "embed.lora_embedding_A": (9, 4)})
    refuse_other_ranks(tmp_path, {**config, "target_parameters": ["gate_up_proj", "down_proj"]}, shapes)
    with pytest.raises(SetupError, match="the rank 16"):
        refuse_other_ranks(tmp_path, {"r": 4}, shapes)
    refuse_other_ranks(tmp_path, {}, {f"{Q}.lora_A.weight": (8, 64)})  # PEFT's own rank where the config says none


@pytest.mark.parametrize("content", ["{", "[1]", "[" * 50_000, "", '{"target_modules": 3}'])
def test_a_config_that_is_none_is_refused(tmp_path, content):
    (tmp_path / CONFIG_FILE).write_text(content)
    with pytest.raises(SetupError, match=re.escape(CONFIG_FILE)):
        read_config(tmp_path)
    shutil.rmtree(tmp_path)
    with pytest.raises(SetupError, match=re.escape(CONFIG_FILE)):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("config", "promised"),
    [
        ({"target_modules": ["q_proj"]}, True),
        ({"target_modules": ["proj"]}, False),
        ({"target_modules": ["self_attn.q_proj"]}, True),
        ({"target_modules": "all-linear"}, True),
        ({"target_modules": r".*\.0\..*q_proj"}, True),
        ({"target_modules": "q_proj"}, False),
        ({"target_modules": ["q_proj"], "layers_to_transform": 0}, False),
        ({"target_modules": ["q_proj"], "exclude_modules": ["v_proj"]}, False),
        ({"target_modules": ["q_proj"], "layers_to_transform": None, "exclude_modules": []}, True),
        ({}, False),
    ],
)
def test_a_config_promises_the_modules_that_it_names(config, promised):
    assert is_promised(Path(), config, "model.layers.0.self_attn.q_proj") is promised
