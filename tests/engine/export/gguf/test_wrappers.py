"""The language model of a larger model leaves in every form: GGUF, merged folder, adapter, a whole model of its own."""

import json
import shutil

import pytest
import torch
from gguf import GGUFReader
from safetensors import safe_open
from safetensors.torch import load_file

from burnish_engine.advise.facts.catalog import find_model
from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe
from burnish_engine.export.gguf.adapter_file import export_adapter_gguf
from burnish_engine.export.weights.folders import export_adapter, export_safetensors
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.transformers_path.plain import load_adapter, load_base
from burnish_engine.train.plain.whole_model import WholeModel

from support.models.catalog_models import save_wrapped, small_checkpoint
from support.models.export import CPU, edit_json, gguf_kl, make_adapter, tuned_model, write_16_bit
from support.models.sentencepiece import save_sentencepiece

IDS = list(range(5, 60))
MISTRAL = {
    "model_type": "mistral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "sliding_window": None,
    "vocab_size": 720, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


LISTED = {
    "gemma3": "google/gemma-3-4b-it", "ministral3": "mistralai/Ministral-3-3B-Instruct-2512-BF16",
    "qwen3_5": "Qwen/Qwen3.5-4B", "qwen3_5_moe": "Qwen/Qwen3.5-35B-A3B",
}  # fmt: skip
PARTS = {
    "gemma3_text": ["vision_tower", "multi_modal_projector"], "ministral3": ["vision_tower", "multi_modal_projector"],
    "mistral": ["vision_tower", "multi_modal_projector"], "qwen3_5_text": ["visual", "mtp"],
    "qwen3_5_moe_text": ["visual", "mtp"],
}  # fmt: skip
"""Family to the parts of the files beside the language model."""


@pytest.fixture(scope="module", params=[*LISTED, "mistral3"])
def base(request, tmp_path_factory):
    """Small models of each kind that has a part for images."""
    folder = tmp_path_factory.mktemp("whole") / request.param
    if request.param in LISTED:
        return open_model(str(small_checkpoint(find_model(LISTED[request.param]), folder)))
    save_sentencepiece(folder, "first")
    return open_model(str(save_wrapped(folder, "mistral3", MISTRAL)))


@pytest.fixture(scope="module")
def adapter(base, tmp_path_factory):
    return make_adapter(base, tmp_path_factory.mktemp("whole-adapter") / "adapter")


def whole_model(folder):
    """The model with all its parts, as transformers loads it."""
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()


@torch.no_grad()
def logits(model):
    return model(input_ids=torch.tensor([IDS])).logits[0]


@pytest.mark.full
def test_what_is_trained_and_leaves_is_told_before_training(base):
    recipe = Recipe(model=ModelSection(path=str(base.folder)))
    [note] = [note for note in plan_recipe(recipe).notes if "language model alone" in note]
    assert all(part in note for part in PARTS[base.spec.family])


@pytest.mark.full
def test_the_gguf_is_the_language_model(base, adapter, tmp_path):
    path = write_16_bit(base, adapter, tmp_path, kind="F32")  # rounding could send tokens to other experts
    assert not [tensor.name for tensor in GGUFReader(path).tensors if tensor.name.startswith(("v.", "mm."))]
    assert gguf_kl(path, tuned_model(base, adapter), IDS[:40]) < 1e-4


@pytest.mark.quick_cases(2)
def test_the_gguf_equals_that_of_the_language_model_alone(base, tmp_path):
    alone = tmp_path / "alone"
    WholeModel(base, "fp32", CPU).save(alone)
    whole, text = (GGUFReader(write_16_bit(source, None, tmp_path, name=name)) for name, source in
                   (("whole", base), ("text", open_model(str(alone)))))  # fmt: skip
    further = f"blk.{base.spec.num_layers}."  # for multi-token prediction, which transformers does not keep
    assert {one.name: one.data.tobytes() for one in whole.tensors if not one.name.startswith(further)} == {
        one.name: one.data.tobytes() for one in text.tensors
    }


@pytest.mark.quick_cases(1)
def test_an_exported_adapter_fits_the_whole_model(base, adapter, tmp_path):
    from peft import PeftModel

    out = export_adapter(adapter, tmp_path / "out", base.wrapper)
    tuned = PeftModel.from_pretrained(whole_model(base.folder), str(out)).eval()
    wanted = logits(load_adapter(load_base(base, "fp32", CPU), adapter).eval())
    torch.testing.assert_close(logits(tuned), wanted, rtol=0, atol=1e-5)
    assert not [name for name, _ in tuned.named_parameters() if "lora" in name and "vision" in name]
    with tuned.disable_adapter():
        assert float((logits(tuned) - wanted).abs().max()) > 1e-2


@pytest.mark.full
def test_a_merged_folder_stays_the_whole_model(base, adapter, tmp_path):
    fine = tmp_path / "fine"  # in fp32, so that merging rounds nothing
    shutil.copytree(base.folder, fine)
    whole_model(base.folder).save_pretrained(fine)
    shutil.copy(base.folder / "config.json", fine)
    edit_json(fine / "config.json", dtype="float32")
    source = open_model(str(fine))
    out = export_safetensors(source, adapter, tmp_path / "out", shard_bytes=100_000)
    merged, tuned = whole_model(out), load_adapter(load_base(source, "fp32", CPU), adapter).eval()
    torch.testing.assert_close(logits(merged), logits(tuned), rtol=0, atol=1e-4)
    before = load_file(fine / "model.safetensors")
    index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    assert index.keys() == before.keys()
    others = [name for name in before if base.wrapper.text_name(name) is None]
    assert others
    for name in others:
        with safe_open(out / index[name], framework="pt") as file:
            assert torch.equal(file.get_tensor(name), before[name])


def test_an_adapter_as_gguf_names_the_language_models_tensors(base, adapter, tmp_path):
    path = export_adapter_gguf(base, adapter, tmp_path, "x")
    names = {tensor.name for tensor in GGUFReader(path).tensors}
    assert any(name.endswith(".attn_q.weight.lora_a") for name in names)
    assert all(name.startswith("blk.") for name in names)


@pytest.mark.full
def test_a_model_whose_every_weight_was_trained_is_a_language_model(base, tmp_path):
    WholeModel(base, "bf16", CPU).save(tmp_path / "out")
    saved = open_model(str(tmp_path / "out"))
    assert saved.wrapper is None
    assert saved.spec == base.spec.model_copy(update={"mtp_layers": 0})  # transformers does not load them
    torch.testing.assert_close(logits(load_base(saved, "fp32", CPU)), logits(load_base(base, "fp32", CPU)))
