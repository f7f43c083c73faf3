"""`burnish export --to lora-gguf` of adapters that llama.cpp cannot add to a base."""

import pytest

from burnish_engine.cli.main import main
from burnish_engine.runs.store import create_run, open_run
from burnish_engine.train.run import run_training

from support.runs.tiny_runs import tiny_recipe


@pytest.mark.full
def test_dora_is_merged_instead_and_says_so(tmp_path, burnish_home, capsys):
    recipe = tiny_recipe(tmp_path, max_steps=2, epochs=9.0)
    recipe = recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update={"method": "dora"})})
    assert run_training(create_run(recipe, burnish_home / "runs" / "dora")).exit_code == 0
    capsys.readouterr()
    assert main(["export", "last", "--to", "lora-gguf", "--quant", "F16"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The adapter is a DoRA adapter" in said
    assert "It is merged into the model instead." in said
    assert [file.name for file in open_run("last").export.glob("*.gguf")] == ["base-tuned-F16.gguf"]
