"""Adapters of experts in PEFT's files: PEFT reads ours, we read PEFT's, and what does not fit is refused by name."""

import json
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.decoder.decoder_load import DecoderOptions, load_decoder
from burnish_engine.models.decoder.lora_adapter import CONFIG_FILE, WEIGHTS_FILE, plan_adapter, read_plan
from burnish_engine.models.families import family
from burnish_engine.models.families.adapter_targets import expert_rank
from burnish_engine.models.saved_adapters.peft_form import by_modules
from burnish_engine.models.transformers_path import plain
from burnish_engine.models.transformers_path.peft_probe import why_peft_reads_less
from burnish_engine.train.fast.fast_model import make_trainable

from support.models import parity, tiny_models

BATCH = parity.micro_batch()


def parts_of(base):
    spec = parity.model_source(base).spec
    return family(spec.family).modules(spec), family(spec.family).all_expert_stacks(spec)


def new(base, section):
    """Our decoder with a new adapter."""
    source = parity.model_source(base)
    plan = plan_adapter(section, *parts_of(base), expert_rank(section, source.spec.experts_per_token))
    return make_trainable(load_decoder(source, DecoderOptions(torch.float32, parity.CPU, 256, plan)))


def saved(model, folder, base):
    folder.mkdir()
    model.adapter.save(folder, str(base))
    return folder


@pytest.mark.parametrize(
    ("rank", "asked", "slots", "found"), [(16, 0, 8, 2), (4, 0, 8, 1), (16, 5, 8, 5), (16, 0, 0, 16)]
)
def test_the_rank_of_an_expert(rank, asked, slots, found):
    assert expert_rank(AdapterSection(rank=rank, expert_rank=asked), slots) == found


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("shape", tiny_models.MIXTURES)
@pytest.mark.parametrize("method", ["lora", "rslora"])
def test_a_new_adapter_starts_with_pefts_numbers(bases, tmp_path, shape, method):
    section = AdapterSection(rank=6, method=method)
    model = new(bases(shape), section)
    model.initialize(123)
    tuned = plain.attach_adapter(tiny_models.load(bases(shape)), section, 123)
    plain.save_adapter(tuned, tmp_path / "theirs")
    theirs, ours = (load_file(at / WEIGHTS_FILE) for at in (tmp_path / "theirs", saved(model, tmp_path / "ours", "b")))
    assert ours.keys() == theirs.keys()
    assert any(".experts." in name for name in ours)
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    configs = [json.loads((tmp_path / name / CONFIG_FILE).read_text()) for name in ("theirs", "ours")]
    for key in ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora"):
        assert configs[1][key] == configs[0][key], key
    for key in ("target_modules", "target_parameters"):
        assert sorted(configs[1][key]) == sorted(configs[0][key])


STEPPED = {"qwen3-moe": {"mlp_only_layers": [], "decoder_sparse_step": 2}}
"""Changes of a shape, so that both ways to have dense layers are tried."""


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("shape", tiny_models.MIXTURES)
@pytest.mark.parametrize(
    ("targets", "method"),
    [
        (["auto"], "lora"),
        (["all-linear"], "rslora"),
        (["q_proj", "down_proj"], "lora"),
        (["experts.gate_up_proj"], "lora"),
    ],
)
def test_plain_peft_reads_what_we_write(tmp_path, shape, targets, method):
    """All experts of a stack have ΔW = s B[:, e::E] A[e r:(e + 1) r]: each other order gives other logits."""
    base = tiny_models.make(shape, tmp_path / "base", **STEPPED.get(shape, {}))
    model = new(base, AdapterSection(rank=6, alpha=7.0, targets=targets, method=method))
    model.initialize(0)
    with torch.no_grad():
        for name, tensor in model.adapter.named().items():
            if ".lora_B." in name:
                tensor.normal_(0.0, 0.05)
    model.write_compute_copies()
    folder = saved(model, tmp_path / "adapter", base)
    theirs = parity.peft_logits(PeftModel.from_pretrained(tiny_models.load(base), str(folder)).eval(), BATCH)
    assert parity.same_logits(parity.Fast(model.loaded, model).logits(BATCH), theirs, 1e-5)
    assert parity.distance(theirs, parity.peft_logits(parity.peft(base), BATCH)) > 1e-3
    assert parity.same_logits(parity.fast(base, folder).logits(BATCH), theirs, 1e-5)
    assert parity.same_logits(
        parity.peft_logits(plain.load_adapter(tiny_models.load(base), folder), BATCH), theirs, 1e-5
    )
    again = saved(parity.fast(base, folder).model, tmp_path / "again", base)
    assert (again / CONFIG_FILE).read_text() == (folder / CONFIG_FILE).read_text()
    assert why_peft_reads_less(parity.model_source(base).config, folder) == ""


def test_dense_layers_that_peft_takes_for_experts_are_noticed(bases, tmp_path):
    config = parity.model_source(bases("qwen3-moe")).config
    for method, told in (("dora", "does not load"), ("lora", "leaves out 6 of")):
        folder = saved(
            new(bases("qwen3-moe"), AdapterSection(method=method, targets=["all-linear"])), tmp_path / method, ""
        )
        said = json.loads((folder / CONFIG_FILE).read_text())
        (folder / CONFIG_FILE).write_text(json.dumps(by_modules(said)))  # as versions before wrote it
        assert told in why_peft_reads_less(config, folder)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("stacks", [["gate_up_proj", "down_proj"], ["gate_up_proj"], ["down_proj"]])
def test_an_adapter_of_pefts_survives_reading_and_writing(bases, tmp_path, stacks):
    base = bases("qwen3-moe")
    theirs = tiny_models.lora(base, tmp_path / "theirs", rank=5, experts=3, stacks=stacks)
    ours = saved(parity.fast(base, theirs).model, tmp_path / "ours", "somewhere")
    before, after = (load_file(folder / WEIGHTS_FILE) for folder in (theirs, ours))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert len(read_plan(theirs, *parts_of(base)).experts) == 2 * len(stacks)  # of three layers one is dense


def test_targets_are_chosen_by_name(bases):
    modules, stacks = parts_of(bases("qwen3-moe"))
    everything = plan_adapter(AdapterSection(rank=6), modules, stacks, 2)
    assert [(one.path, one.rank) for one in everything.experts] == [(stack.path, 2) for stack in stacks]
    assert [one.is_inner for one in everything.experts] == [True, False] * 2
    assert {one.scale for one in everything.experts} == {32 / 2}
    assert not plan_adapter(AdapterSection(targets=["all-linear"]), modules, stacks).experts
    (first, second) = plan_adapter(AdapterSection(targets=["experts.down_proj"]), modules, stacks).experts
    assert not first.is_inner
    assert not second.is_inner
    with pytest.raises(UsageError, match="q_proj"):
        plan_adapter(AdapterSection(targets=["nothing"]), modules, stacks)


@pytest.fixture
def damaged(bases, tmp_path):
    """Copy a good adapter with changes: (config changes, function of its tensors) -> folder."""
    good = tiny_models.lora(bases("mixtral"), tmp_path / "good", rank=4, experts=2, targets=["q_proj"])
    count = iter(range(99))

    def make(config=None, tensors=None):
        folder = shutil.copytree(good, tmp_path / f"damaged {next(count)}")
        before = json.loads((folder / CONFIG_FILE).read_text())
        (folder / CONFIG_FILE).write_text(json.dumps(before | (config or {})))
        if tensors:
            save_file(tensors(load_file(folder / WEIGHTS_FILE)), folder / WEIGHTS_FILE)
        return folder

    return make


A = "base_model.model.model.layers.0.mlp.experts.base_layer.lora_A.weight"
B = "base_model.model.model.layers.0.mlp.experts.lora_B.weight"
DAMAGES = {
    "parameters that are no list": ({"target_parameters": {"a": 1}}, None, "no list"),
    "other parameters": ({"target_parameters": ["mlp.experts.w9"]}, None, "w9"),
    "parameters that the config leaves out": ({"target_parameters": ["experts.down_proj"]}, None, "base_layer"),
    "dropout": ({"lora_dropout": 0.1}, None, "dropout 0.1"),
    "no A": ({}, lambda found: {name: value for name, value in found.items() if name != A}, "gate_up_proj"),
    "a rank of no whole experts": ({}, lambda found: found | {A: torch.zeros(9, 64)}, "gate_up_proj"),
    "B of another rank": ({}, lambda found: found | {B: torch.zeros(64, 4)}, "down_proj"),
    "a rank that the config does not say": (
        {"rank_pattern": {"experts.gate_up_proj": 2, "experts.down_proj": 3}},
        None,
        "rank 2 for .*down_proj.* says 3",
    ),
    "a number for A": ({}, lambda found: found | {A: torch.tensor(1.0)}, "gate_up_proj"),
    "rank 0": ({}, lambda found: found | {A: torch.zeros(0, 64)}, "gate_up_proj"),
}


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("name", DAMAGES)
def test_what_does_not_fit_is_refused_by_name(bases, damaged, name):
    config, tensors, message = DAMAGES[name]
    with pytest.raises(SetupError, match=message) as told:
        read_plan(damaged(config, tensors), *parts_of(bases("mixtral")))
    assert told.value.remedy


def test_a_dense_model_has_no_place_for_experts(bases, damaged):
    with pytest.raises(SetupError, match="experts"):
        read_plan(damaged(), *parts_of(bases("llama")))
