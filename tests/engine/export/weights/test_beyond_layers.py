"""Adapters beyond the layers' matrices: merged, the files are the model that PEFT computes, tied or not."""

import json

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import FidelityError, SetupError
from burnish_engine.export import proven_folder
from burnish_engine.export.checks.trained_weights import Origin, TrainedWeights
from burnish_engine.export.gguf.adapter_file import why_merged
from burnish_engine.export.proven_folder import export_proven_safetensors
from burnish_engine.export.weights.folders import export_safetensors
from burnish_engine.export.weights.merge import MergedWeights

from support.models import beyond_layers, tiny_models
from support.models.export import gguf_kl, write_16_bit

IDS = torch.arange(40).reshape(1, 40)
UNTIED = {"both copied", "embedding by DoRA", "both adapted", "rows of tokens", "other rows of the head"}
CASES = [(True, kind) for kind in beyond_layers.KINDS] + [(False, kind) for kind in sorted(UNTIED)]


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """The tied and the untied base."""
    return {tied: beyond_layers.base(tmp_path_factory.mktemp("base"), tied=tied) for tied in (True, False)}


def trained_logits(source, adapter):
    with torch.no_grad():
        return PeftModel.from_pretrained(tiny_models.load(source.folder), str(adapter)).eval()(IDS).logits


@pytest.mark.parametrize(("tied", "kind"), CASES)
def test_merged_files_are_the_model_that_peft_computes(bases, tmp_path, tied, kind):
    source = bases[tied]
    adapter = beyond_layers.adapter(source, tmp_path / "adapter", kind)
    merged = export_safetensors(source, adapter, tmp_path / "merged")
    with torch.no_grad():
        found = tiny_models.load(merged)(IDS).logits
    torch.testing.assert_close(found, trained_logits(source, adapter), rtol=1e-4, atol=5e-5)
    ours, theirs = MergedWeights(source, adapter), TrainedWeights(Origin(source, adapter))
    assert ours.names == theirs.names
    for name in ours.names:
        torch.testing.assert_close(ours.load(name), theirs.load(name), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "unties"),
    [("head copied", True), ("embedding adapted", True), ("other rows of the head", True), ("rows of tokens", False),
     ("both copied as one", False), ("both adapted as one", False), ("norms copied", False)],
)  # fmt: skip
def test_embedding_and_head_part_only_where_training_parted_them(bases, tmp_path, kind, unties):
    source = bases[True]
    adapter = beyond_layers.adapter(source, tmp_path / "adapter", kind)
    merged = export_safetensors(source, adapter, tmp_path / "merged")
    assert json.loads((merged / "config.json").read_text())["tie_word_embeddings"] is not unties
    assert ("lm_head.weight" in load_file(merged / "model.safetensors")) is unties


@pytest.mark.parametrize("kind", ["embedding copied", "rows of tokens"])
def test_a_gguf_holds_both_where_they_differ(bases, tmp_path, kind):
    source = bases[True]
    adapter = beyond_layers.adapter(source, tmp_path / "adapter", kind)
    path = write_16_bit(source, adapter, tmp_path)
    tuned = PeftModel.from_pretrained(tiny_models.load(source.folder), str(adapter)).eval()
    assert gguf_kl(path, tuned, IDS[0].tolist()) < 1e-5


@pytest.mark.parametrize("kind", ["head copied", "rows of tokens", "biases of B", "embedding adapted"])
def test_llama_cpp_cannot_add_them_to_a_base(bases, tmp_path, kind):
    assert "llama.cpp" in why_merged(beyond_layers.adapter(bases[True], tmp_path / "adapter", kind))


def test_a_bias_for_a_layer_without_one_is_refused(tmp_path):
    source = beyond_layers.base(tmp_path / "base", tied=True)
    adapter = beyond_layers.adapter(source, tmp_path / "adapter", "biases of B")
    name = "base_model.model.model.layers.0.mlp.up_proj.lora_B.bias"
    tensors = load_file(adapter / "adapter_model.safetensors") | {
        name: torch.ones(96),
        name.replace("bias", "weight"): torch.ones(96, 3),
        name.replace("B.bias", "A.weight"): torch.ones(3, 64),
    }
    save_file(tensors, adapter / "adapter_model.safetensors")
    with pytest.raises(SetupError, match=r"up_proj\.bias.*lora_bias"):
        MergedWeights(source, adapter)


def test_a_folder_is_done_only_when_transformers_computes_the_trained_model_from_it(bases, tmp_path, monkeypatch):
    source = bases[True]
    adapter = beyond_layers.adapter(source, tmp_path / "adapter", "embedding copied")
    held_out = [list(range(3, 40))]
    found = export_proven_safetensors(source, adapter, tmp_path / "good", held_out=held_out)
    assert abs(found.mean_kl) < 1e-6
    assert found.positions == 37

    def overwritten(source, _adapter, out, **options):
        return export_safetensors(source, None, out, **options)

    monkeypatch.setattr(proven_folder, "export_safetensors", overwritten)
    with pytest.raises(FidelityError, match="not the trained model"):
        export_proven_safetensors(source, adapter, tmp_path / "bad", held_out=held_out)
    assert not (tmp_path / "bad").exists()
