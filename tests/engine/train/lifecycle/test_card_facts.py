"""What a card says of model folders, memory plans and versions."""

from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest
import torch

from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.hardware.probe import probe
from burnish_engine.train.lifecycle import card_facts
from burnish_engine.train.lifecycle.card_facts import base_files, plan_text, versions


def test_only_files_that_the_model_depends_on_are_listed_weights_first(tmp_path):
    for name in (
        "b-00002.safetensors", "a-00001.safetensors", "model.safetensors.index.json", "tiny.gguf", "config.json",
        "tokenizer.json", "merges.txt", "README.md", "training_args.bin", "burnish-model.json", ".gitattributes",
    ):  # fmt: skip
        (tmp_path / name).touch()
    assert [path.name for path in base_files(tmp_path)] == [
        "a-00001.safetensors", "b-00002.safetensors", "model.safetensors.index.json", "tiny.gguf", "config.json",
        "tokenizer.json", "merges.txt",
    ]  # fmt: skip


def test_a_memory_plan_is_written_as_the_recipe_would_pin_it():
    plan = MemoryPlan(layers=("narrow", "narrow", "products"), head_rows=512, embedding_on_host=True)
    words = plan_text(plan.model_dump_json())
    assert words.startswith("layers = narrow:2,products:1, mlp_rows = 0, head_rows = 512")
    assert "embedding_on_host = true" in words


@pytest.mark.parametrize("plan", ["", "recompute", "smallest"])
def test_other_plans_are_words_already(plan):
    assert plan_text(plan) == plan


def test_versions_are_of_what_is_installed(monkeypatch):
    installed = {"torch": "2.13.0", "triton-windows": "3.7"}

    def version(name):
        if name in installed:
            return installed[name]
        raise PackageNotFoundError(name)

    monkeypatch.setattr(card_facts, "version", version)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    found = versions()
    assert found.pop("burnish")
    assert found.pop("python")
    assert found == {"torch": "2.13.0", "triton": "3.7", "cuda": "12.8"}


@pytest.mark.parametrize(
    ("kind", "facts", "driver"),
    [("cuda", ("Lamp 9000", "9.0", 80 * 2**30), "580.1"), ("cpu", ("Kettle 2", None, 2**34), None)],
)
def test_a_gpu_is_described_with_its_driver_and_a_processor_with_the_systems_memory(monkeypatch, kind, facts, driver):
    machine = probe().model_copy(update={"driver": "580.1", "cpu": "Kettle 2", "ram_total_bytes": 2**34})
    gpu = SimpleNamespace(major=9, minor=0, total_memory=80 * 2**30)
    monkeypatch.setattr(card_facts, "probe", lambda: machine)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: gpu)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "Lamp 9000")
    found = card_facts._machine(torch.device(kind))
    assert (found["device"], found.get("compute_capability"), found["memory_bytes"]) == facts
    assert found["versions"].get("driver") == driver
