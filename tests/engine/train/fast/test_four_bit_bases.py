"""Bases in 4 bits on the fast engine: made so on request, or stored so in the checkpoint."""

import json

import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.run.events import RunStarted
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run
from burnish_engine.train.run import run_training

from support.models.bitsandbytes_files import save_quantized
from support.runs.made_engines import changed
from support.runs.tiny_runs import tiny_recipe


@pytest.mark.full
def test_nf4_on_request_trains_close_to_16_bits(make):
    sections = {"adapter": {"dropout": 0.0}}
    exact = make(sections=sections)
    quantized = make(sections=sections | {"model": {"path": exact.recipe.model.path, "quantize": "nf4"}})
    assert quantized.engine.notes == []
    ours, theirs = ([one.loss for one in each.steps(8)] for each in (quantized, exact))
    assert ours != theirs
    assert ours == pytest.approx(theirs, rel=0.05)
    assert ours[-1] < ours[0]


@pytest.mark.full
def test_a_checkpoint_in_4_bits_simply_trains_and_says_so(make, tmp_path):
    plain_weights = make(sections={"adapter": {"dropout": 0.0}})
    folder = save_quantized(plain_weights.source.folder, tmp_path / "quantized")
    sections = {"adapter": {"dropout": 0.0}}
    stored = make(sections=sections | {"model": {"path": str(folder), "quantize": "none"}})
    asked = make(sections=sections | {"model": {"path": str(folder), "quantize": "nf4"}})
    here = make(sections=sections | {"model": {"path": plain_weights.recipe.model.path, "quantize": "nf4"}})
    (note,) = stored.engine.notes
    assert "NF4" in note
    assert "QLoRA" in note
    assert asked.engine.notes == here.engine.notes == []
    expected = [one.loss for one in here.steps(3)]
    assert [one.loss for one in stored.steps(3)] == [one.loss for one in asked.steps(3)] == expected
    prompts = [[5, 6, 7, 8]]
    assert stored.engine.replies(prompts, 6) == here.engine.replies(prompts, 6)


@pytest.mark.full
def test_such_a_checkpoint_goes_through_a_whole_run(tmp_path):
    recipe = tiny_recipe(tmp_path, max_steps=3)
    folder = save_quantized(tmp_path / "base", tmp_path / "quantized")
    paths = create_run(changed(recipe, model={"path": str(folder)}), tmp_path / "run")
    outcome = run_training(paths)
    assert outcome.exit_code == 0, outcome.message
    events = list(read_events(paths.events))
    assert [event.engine for event in events if isinstance(event, RunStarted)] == ["fast"]
    assert any("QLoRA" in getattr(event, "message", "") for event in events)
    config = json.loads((paths.adapter / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(folder)


def test_damaged_4_bit_weights_end_a_run_with_a_message(make, tmp_path):
    from safetensors.torch import load_file, save_file

    good = make()
    folder = save_quantized(good.source.folder, tmp_path / "quantized")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.down_proj.weight.absmax"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(SetupError, match=r"down_proj\.weight\.absmax is not in the checkpoint"):
        make(sections={"model": {"path": str(folder)}})
