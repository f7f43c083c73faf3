"""The section that a saved adapter stands for."""

import json

import pytest
import torch
from safetensors.torch import save_file

from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.saved_adapters.adapter_files import read_files
from burnish_engine.models.saved_adapters.start_adapter import open_start

STACK = "model.layers.0.mlp.experts.down_proj"


@pytest.mark.parametrize(
    ("modules", "parameters", "targets"),
    [
        (["model.layers.0.self_attn.q_proj"], [STACK], ["mlp.experts.down_proj", "q_proj"]),
        ([], ["experts.down_proj"], ["experts.down_proj"]),
        (["q_proj"], ["gate.weight"], ["q_proj"]),
        ("all-linear", [], ["all-linear"]),
        ("all-linear", [STACK], ["auto"]),
        (r".*\.q_proj", [STACK], ["auto"]),
    ],
)
def test_its_targets_are_names_that_a_recipe_may_have(tmp_path, modules, parameters, targets):
    _save(tmp_path, target_modules=modules, target_parameters=parameters)
    section = open_start(AdapterSection(start=str(tmp_path))).section
    assert section.targets == targets
    assert section.expert_rank == (4 if "gate.weight" not in parameters and parameters else 0)


@pytest.mark.parametrize(
    ("pattern", "rank"), [({}, 4), ({"experts.down_proj": 2}, 2), ({r".*\.down_proj": 3}, 3), ({"q_proj": 9}, 4)]
)
def test_its_experts_have_the_rank_of_the_pattern_that_peft_finds(tmp_path, pattern, rank):
    _save(tmp_path, target_modules=["q_proj"], target_parameters=["mlp.experts.down_proj"], rank_pattern=pattern)
    assert open_start(AdapterSection(start=str(tmp_path))).section.expert_rank == rank


def test_the_fast_engine_leaves_adapters_on_routers_to_the_plain_one(tmp_path):
    """PEFT's "all-linear" reaches the routers of a mixture, which are parameters, as `target_parameters`."""
    _save(tmp_path, target_modules=["q_proj"], target_parameters=[STACK, "gate.weight"])
    assert "gate.weight" in read_files(tmp_path).obstacle
    _save(tmp_path, target_modules=["q_proj"], target_parameters=[STACK])
    assert read_files(tmp_path).obstacle == ""


def test_the_fast_engine_leaves_adapters_on_the_scale_of_a_shared_expert_to_the_plain_one(tmp_path):
    """It is a linear layer of one output, which "all-linear" reaches as well."""
    _save(tmp_path, module="mlp.shared_expert_gate", target_modules="all-linear")
    assert "mlp.shared_expert_gate" in read_files(tmp_path).obstacle


def _save(folder, module="x", **config):
    (folder / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 8, "peft_type": "LORA", **config}))
    tensors = {f"base_model.model.layers.0.{module}.lora_{part}.weight": torch.zeros(4, 4) for part in "AB"}
    save_file(tensors, folder / "adapter_model.safetensors")
