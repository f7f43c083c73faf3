"""Bases in the blocks of a GGUF on the fast engine: the file is trained from as it is."""

import json

import pytest
from safetensors.torch import save_file

from burnish_engine.advise.facts.engine_choice import choose_engine
from burnish_engine.advise.facts.shape import NF4_BYTES, packed_width, stored_in_layers
from burnish_engine.advise.predict.fast_shape import frozen_weights, hosted_layer
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.export.gguf.adapter_file import export_adapter_gguf
from burnish_engine.models.checkpoint.open_checkpoint import open_checkpoint
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.gguf.gguf_library import quantize_file
from burnish_engine.runs.store import create_run
from burnish_engine.train.run import run_training

from support.models.export import gguf_kl, make_model, rows, tuned_model, with_adapter_kl, write_16_bit
from support.models.parity import fast, micro_batch, peft, peft_gradients, peft_logits, same_logits, worst
from support.models.tiny_models import lora
from support.runs.made_engines import changed
from support.runs.tiny_runs import commanding, losses, tiny_recipe, trained


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A Q4_K_M file of a tiny Llama, and a folder of safetensors with its decoded weights."""
    folder = tmp_path_factory.mktemp("gguf")
    source = make_model(folder / "base", "llama", hidden_size=256, intermediate_size=512)
    path = folder / "Q4_K_M.gguf"
    number = GGUF_TYPES["Q4_K_M"].number
    assert quantize_file(write_16_bit(source, None, folder), path, number, 1, lambda _line: None, None) == ""
    opened, decoded = open_model(str(path)), folder / "decoded"
    decoded.mkdir()
    with open_checkpoint(opened) as checkpoint:
        tensors = {name: checkpoint.read(name) for name in checkpoint.names()}
    save_file(tensors, decoded / "model.safetensors", {"format": "pt"})
    for one in opened.folder.iterdir():
        if one.suffix in (".json", ".jinja"):
            (decoded / one.name).write_bytes(one.read_bytes())
    config = json.loads((decoded / "config.json").read_text())
    del config["quantization_config"]
    (decoded / "config.json").write_text(json.dumps(config))
    return path, decoded


def test_logits_and_gradients_are_those_of_the_decoded_weights(file, tmp_path):
    path, decoded = file
    opened = open_model(str(path))
    batch = micro_batch(vocabulary=opened.spec.vocab_size)
    adapter = lora(decoded, tmp_path / "adapter", rank=5)
    reference = peft(decoded, adapter)
    loss, gradients = peft_gradients(reference, batch)
    for where in ({}, {"layers_on_host": frozenset({0, 1})}):
        ours = fast(opened.folder, adapter, quantize=True, **where)
        assert same_logits(ours.logits(batch), peft_logits(reference, batch), 1e-5)
        our_loss, found = ours.gradients(batch)
        assert our_loss == pytest.approx(loss, rel=1e-5)
        assert worst(found, gradients) < 1.5e-5


def test_the_adapter_on_that_very_file_is_the_trained_model_in_llama_cpp(file, tmp_path):
    path, decoded = file
    opened = open_model(str(path))
    adapter = lora(decoded, tmp_path / "adapter", rank=4)
    ids, base, tuned = rows(opened)[0], tuned_model(opened, None), tuned_model(opened, adapter)
    alone = gguf_kl(path, base, ids)
    written = export_adapter_gguf(opened, adapter, tmp_path / "out", "tiny")
    assert alone < 1e-4  # llama.cpp rounds what is multiplied with blocks
    assert with_adapter_kl(path, written, tuned, ids) < max(1.2 * alone, 2e-5)
    assert gguf_kl(write_16_bit(opened, adapter, tmp_path), tuned, ids) < 1e-6


def test_weights_take_the_files_bytes_in_memory_and_in_the_plan(file):
    spec = open_model(str(file[0])).spec
    loaded = fast(open_model(str(file[0])).folder, quantize=True).loaded
    held = sum(
        tensor.nbytes
        for layer in loaded.decoder.layers
        for stack in layer.stacks
        for tensor in stack.frozen.tensors(stack.stack.N, stack.stack.K).values()
    )
    own = [sum(layer.blocks) for layer in spec.layers]
    assert held == sum(own)
    without = spec.model_copy(update={"layers": [layer.model_copy(update={"blocks": ()}) for layer in spec.layers]})
    section = AdapterSection()
    ours, in_nf4 = (frozen_weights(one, section, "bf16", nf4=True) for one in (spec, without))
    values = stored_in_layers(spec, "linear")
    assert ours.stored - in_nf4.stored == pytest.approx(sum(own) - values * NF4_BYTES, abs=2)
    assert packed_width(spec) == sum(own) / values
    assert [hosted_layer(spec, section, one, "bf16", nf4=True).freed for one in spec.layers] == own


@pytest.mark.full
def test_a_run_from_a_gguf_stops_and_goes_on(file, tmp_path):
    recipe = changed(tiny_recipe(tmp_path, max_steps=4), model={"path": str(file[0])})
    whole = create_run(recipe, tmp_path / "whole")
    assert run_training(whole).exit_code == 0
    paths = create_run(recipe, tmp_path / "run")
    run_training(paths, listener=commanding(paths, 2, "stop"))
    assert max(losses(paths)) < 4
    assert run_training(paths).exit_code == 0
    assert losses(paths) == losses(whole)
    assert trained(paths) == trained(whole)
    config = json.loads((paths.adapter / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(file[0])


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"model": {"quantize": "nf4"}}, "once more"),
        ({"train": {"products": "int8"}}, "blocks of their GGUF"),
        ({"train": {"engine": "plain"}}, "only the fast engine reads"),
    ],
)
def test_what_does_not_go_with_a_gguf_is_refused(file, tmp_path, sections, why):
    sections = {**sections, "model": {"path": str(file[0]), **sections.get("model", {})}}
    recipe = changed(tiny_recipe(tmp_path), **sections)
    source = open_model(str(file[0]))
    with pytest.raises(UsageError, match=why):
        choose_engine(recipe, source.spec, None, "bf16", source.config)
