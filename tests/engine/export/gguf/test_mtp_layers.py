"""Layers for multi-token prediction reach a GGUF unchanged, behind the model's own, and are checked as these are."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from safetensors.torch import load_file, save_file

from burnish_engine.advise.facts.catalog import find_model
from burnish_engine.advise.facts.gguf_size import file_shapes
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES
from burnish_engine.export.checks.contents import check_contents
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.quantize.importance_file import Importance, read_importance, with_unknown, write_importance
from burnish_engine.export.verify.reference import ExportedModel
from burnish_engine.export.verify.verify import verify_file
from burnish_engine.export.weights.folders import export_safetensors
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.mtp_layers import mtp_names
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.gguf.gguf_library import quantize_file
from burnish_engine.models.gguf.gguf_runtime import GgufModel

from support.models.catalog_models import save_wrapped, small_checkpoint
from support.models.export import gguf_kl, rows, tuned_model, write_16_bit

MODELS = ("Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-35B-A3B")


@pytest.fixture(scope="module", params=MODELS)
def source(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mtp") / "base"
    return open_model(str(small_checkpoint(find_model(request.param), folder)))


def faults(source, path):
    return " ".join(check_contents(path, Origin(source, None), load_tokenizer(source)))


@pytest.mark.quick_cases(1)
def test_the_layer_stands_behind_the_models_own(source, tmp_path):
    path = write_16_bit(source, None, tmp_path)
    reader, stored = GGUFReader(path), load_file(source.folder / "model.safetensors")
    keys = {name.partition(".")[2]: field.contents() for name, field in reader.fields.items()}
    held, own = {tensor.name: tensor.data for tensor in reader.tensors}, source.spec.num_layers
    assert (keys["block_count"], keys["nextn_predict_layers"]) == (own + 1, 1)
    assert keys["attention.recurrent_layers"] == [layer.kind == "gated_delta" for layer in source.spec.layers] + [False]
    np.testing.assert_array_equal(held[f"blk.{own}.nextn.eh_proj.weight"], stored["mtp.fc.weight"].half().numpy())
    wanted = stored["mtp.pre_fc_norm_hidden.weight"].float().numpy() + 1
    np.testing.assert_array_equal(held[f"blk.{own}.nextn.hnorm.weight"], wanted)
    assert faults(source, path) == ""
    spec = source.spec.model_copy(update={"vocab_size": source.rows})
    predicted = {(one.name, one.shape) for one in file_shapes(spec) if len(one.shape) > 1}
    assert predicted == {(one.name, one.shape) for one in read_header(path).tensors if len(one.shape) > 1}
    assert gguf_kl(path, tuned_model(source, None), list(range(5, 45))) < 1e-4


@pytest.mark.full
@pytest.mark.parametrize("model", MODELS)
def test_a_checkpoint_without_it_makes_a_file_without_it(model, tmp_path):
    folder = small_checkpoint(find_model(model), tmp_path / "base")
    stored = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in stored.items() if not name.startswith("mtp.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    source = open_model(str(folder))
    path = write_16_bit(source, None, tmp_path)
    assert not [name for name in GGUFReader(path).fields if "nextn" in name]
    assert faults(source, path) == ""


@pytest.mark.full
def test_files_are_made_without_it_on_demand(source, tmp_path):
    """In a GGUF and in safetensors, where llama.cpp's converter would look for the layers that config.json names."""
    lean = source.without_drafts()
    path = write_16_bit(lean, None, tmp_path)
    reader = GGUFReader(path)
    assert not [name for name in (*reader.fields, *(one.name for one in reader.tensors)) if "nextn" in name]
    assert faults(lean, path) == ""
    assert "nextn" in faults(source, path)
    report = verify_file(path, ExportedModel(source, None, held_out=rows(source, 1), threads=1))
    assert report.passed, report.files
    folder = export_safetensors(lean, None, tmp_path / "merged")
    made, stored = open_model(str(folder)), load_file(folder / "model.safetensors")
    assert stored.keys() == {name for name in load_file(source.folder / "model.safetensors") if "mtp." not in name}
    assert made.spec == lean.spec
    assert made.config["mtp_num_hidden_layers"] == 0 < source.config["mtp_num_hidden_layers"]


@pytest.mark.full
def test_experts_in_one_tensor_become_the_same_file(tmp_path):
    folder = small_checkpoint(find_model(MODELS[1]), tmp_path / "base")
    alone = write_16_bit(open_model(str(folder)), None, tmp_path, name="alone")
    stored, place = load_file(folder / "model.safetensors"), "mtp.layers.0.mlp.experts"
    experts = range(sum(name.startswith(place) and "down_proj" in name for name in stored))
    gates, ups, downs = (
        torch.stack([stored.pop(f"{place}.{expert}.{part}_proj.weight") for expert in experts])
        for part in ("gate", "up", "down")
    )
    stored |= {f"{place}.gate_up_proj": torch.cat([gates, ups], dim=1), f"{place}.down_proj": downs}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    source = open_model(str(folder))
    together = write_16_bit(source, None, tmp_path, name="together")
    held = [{one.name: one.data.tobytes() for one in GGUFReader(path).tensors} for path in (alone, together)]
    assert held[0] == held[1]
    assert faults(source, together) == ""


def without(name):
    return lambda plan: replace(plan, tensors=[one for one in plan.tensors if name not in one.name])


def scaled(name):
    def change(tensor):
        return replace(tensor, make=lambda: 2 * tensor.make()) if name in tensor.name else tensor

    return lambda plan: replace(plan, tensors=[change(one) for one in plan.tensors])


def said(**keys):
    return lambda plan: replace(plan, metadata=plan.metadata | keys)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("nextn.enorm"), "lacks the tensor blk.4.nextn.enorm.weight"),
        (scaled("nextn.eh_proj"), "blk.4.nextn.eh_proj.weight"),
        (scaled("blk.4.attn_q."), "blk.4.attn_q.weight"),
        (said(nextn_predict_layers=0), "number of layers for multi-token prediction"),
    ],
)
def test_faults_in_it_are_named(change, words, tmp_path):
    source = open_model(str(small_checkpoint(find_model(MODELS[0]), tmp_path / "base")))
    assert words in faults(source, write_16_bit(source, None, tmp_path, change=change))


def quantized(path, target, kind, matrix=None):
    """Complaint of llama.cpp; empty where it made the file."""
    columns = read_importance(matrix) if matrix else None
    return quantize_file(path, target, GGUF_TYPES[kind].number, 1, lambda _line: None, columns)


@pytest.mark.full
def test_it_is_quantized_by_llama_cpps_rule_also_to_two_bits(wide, tmp_path):
    path, plans = wide
    own, target = plans[0].metadata["block_count"] - 1, tmp_path / "x.gguf"
    assert quantized(path, target, "Q4_K_M") == ""
    kinds = {one.name: one.tensor_type.name for one in GGUFReader(target).tensors}
    parts = (
        "nextn.eh_proj",
        "attn_q",
        "attn_v",
        "ffn_down" if "expert_count" not in plans[0].metadata else "ffn_down_exps",
    )
    assert [kinds[f"blk.{own}.{part}.weight"] for part in parts] == ["Q4_K", "Q4_K", "Q6_K", "Q6_K"]
    shapes = {one.name: one.shape for one in plans[0].tensors if one.name.startswith("blk.") and not one.full_precision}
    further = {one.name: one.shape for one in plans[0].drafting}
    assert further.keys() < shapes.keys()
    known = {name: np.ones((*shape[:-2], shape[-1]), dtype=np.float32) for name, shape in shapes.items()}
    found = Importance({name: value for name, value in known.items() if name not in further}, 10)
    write_importance(found, tmp_path / "lacking")
    assert quantized(path, target, "IQ2_M", tmp_path / "lacking") != ""
    write_importance(with_unknown(found, further), tmp_path / "matrix")
    assert quantized(path, target, "IQ2_M", tmp_path / "matrix") == ""
    with GgufModel(target, exact=True, threads=1) as opened:
        assert np.isfinite(opened.logits(list(range(5, 20)))).all()


@pytest.fixture(scope="module", params=MODELS)
def wide(request, tmp_path_factory):
    """An F16 file with rows of 256 numbers, as blocks of two bits have, and a list with its plan."""
    folder = tmp_path_factory.mktemp("wide")
    small = json.loads((small_checkpoint(find_model(request.param), folder) / "config.json").read_text())
    words = len(load_file(folder / "model.safetensors")["model.language_model.embed_tokens.weight"])
    sizes = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")
    text = small["text_config"] | {size: 256 for size in sizes if size in small["text_config"]}
    text |= {"hidden_size": 256, "vocab_size": words, "eos_token_id": 2}
    source, plans = open_model(str(save_wrapped(folder, small["model_type"], text))), []
    return write_16_bit(source, None, folder, change=lambda plan: plans.append(plan) or plan), plans


def test_layers_are_numbered_behind_the_models_own():
    stored = ["mtp.fc.weight", "mtp.layers.1.mlp.up_proj.weight", "mtp.norm.weight", "model.norm.weight"]
    assert mtp_names(stored, 3) == {
        "model.layers.3.eh_proj.weight": "mtp.fc.weight",
        "model.layers.4.mlp.up_proj.weight": "mtp.layers.1.mlp.up_proj.weight",
        "model.layers.3.shared_head.norm.weight": "mtp.norm.weight",
    }
