"""A run that trains every weight, from its recipe to a verified file, talked to on the way."""

import shutil

import pytest
import torch
from gguf import GGUFReader
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from burnish_engine.chat.model_cache import ModelCache
from burnish_engine.chat.target import find_target
from burnish_engine.cli.main import main
from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.runs.store import open_run

from support.models.tiny import make_llama
from support.runs.tiny_runs import tiny_recipe

SAY = ["--prompt", "My lamp number 3 is broken?", "--max-tokens", "8"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run; its base lies beside it."""
    folder = tmp_path_factory.mktemp("trained")
    make_llama(folder / "base", hidden_size=256, intermediate_size=512)
    recipe = tiny_recipe(folder, max_steps=6, learning_rate=1e-3)
    recipe = recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update={"method": "full"})})
    (folder / "recipe.toml").write_text(dump_recipe(recipe), encoding="utf-8")
    run = folder / "home" / "runs" / "tuned"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BURNISH_HOME", str(folder / "home"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        assert main(["train", str(folder / "recipe.toml"), "--run-dir", str(run)]) == 0
    return run


@pytest.fixture
def run(trained, burnish_home):
    """The run as `last` in this test's home."""
    shutil.copytree(trained, burnish_home / "runs" / "tuned")
    return open_run("last")


def said(capsys, *arguments):
    """What a command that succeeds prints on stdout."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.full
def test_the_run_has_a_model_and_no_adapter(run):
    assert not run.adapter.exists()
    model = AutoModelForCausalLM.from_pretrained(run.model)
    assert model.config.model_type == "llama"
    assert sorted(path.name for path in next(run.checkpoints.iterdir()).iterdir() if path.is_dir()) == ["model"]


@pytest.mark.full
def test_files_hold_the_trained_weights_and_are_verified(run, capsys):
    tensors = load_file(run.model / "model.safetensors")
    report = FidelityReport.model_validate_json(said(capsys, "export", "last", "--quant", "F16", "--json"))
    assert report.passed
    assert report.model == "base"
    assert len(report.adapter_sha256) == 64
    (file,) = run.export.glob("*.gguf")
    assert file.name == "base-tuned-F16.gguf"
    written = {tensor.name: tensor.data for tensor in GGUFReader(file).tensors}
    down = torch.from_numpy(written["blk.0.ffn_down.weight"].copy())
    assert torch.equal(down, tensors["model.layers.0.mlp.down_proj.weight"].half())
    norm = torch.from_numpy(written["output_norm.weight"].copy())
    assert torch.equal(norm, tensors["model.norm.weight"])
    assert "verified" in said(capsys, "verify", file, "--against", "last")
    assert said(capsys, "chat", "last", "--exported", *SAY).strip()


def test_the_folder_is_the_model_exactly(run, capsys, tmp_path):
    said(capsys, "export", "last", "--to", "safetensors", "--out", tmp_path)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (run.model, tmp_path / "safetensors"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    AutoModelForCausalLM.from_pretrained(tmp_path / "safetensors")


@pytest.mark.full
def test_another_training_of_the_same_base_is_another_model(run, capsys):
    first = FidelityReport.model_validate_json(said(capsys, "export", "last", "--quant", "Q8_0", "--json"))
    (file,) = run.export.glob("*.gguf")
    tensors = load_file(run.model / "model.safetensors")
    random = torch.Generator().manual_seed(0)
    changed = {name: value + 0.02 * torch.randn(value.shape, generator=random) for name, value in tensors.items()}
    save_file(changed, run.model / "model.safetensors", metadata={"format": "pt"})
    capsys.readouterr()
    assert main(["verify", str(file), "--against", "last", "--json"]) == 14
    report = FidelityReport.model_validate_json(capsys.readouterr().out)
    assert not report.passed
    assert report.adapter_sha256 != first.adapter_sha256


def test_no_adapter_is_exported(run, capsys, tmp_path):
    capsys.readouterr()
    assert main(["export", "last", "--to", "adapter", "--out", str(tmp_path / "out")]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert 'The run tuned trained every weight (adapter.method = "full"), so it has no adapter.' in error
    assert "burnish export tuned --to safetensors" in error
    assert not (tmp_path / "out" / "adapter").exists()


@pytest.mark.full
def test_tuned_and_base_are_talked_to(run):
    models = ModelCache()
    replies = {}
    for variant in ("tuned", "base"):
        backend, name = models.get(find_target("last", variant))
        stream = backend.stream([{"role": "user", "content": "My lamp number 3 is broken?"}])
        replies[name] = "".join(stream)
    models.clear()
    assert set(replies) == {"base (tuned)", "base"}
    assert replies["base (tuned)"] != replies["base"]


@pytest.fixture
def without_base(trained):
    """The base is gone while the test runs."""
    base = trained.parents[2] / "base"
    base.rename(base.with_name("elsewhere"))
    yield
    base.with_name("elsewhere").rename(base)


@pytest.mark.full
def test_it_needs_its_base_no_more(run, capsys, without_base):
    assert said(capsys, "chat", "last", *SAY).strip()
    text = " ".join(said(capsys, "export", "last", "--quant", "Q8_0", "--quant", "F16").split())
    assert "verified" in text
    assert "The model before training cannot be opened, so what was gained is not known." in text
    assert "does not exist" in text
    assert "keeps" not in text
    (file,) = run.export.glob("*Q8_0.gguf")
    assert "verified" in said(capsys, "verify", file, "--against", "last")


@pytest.mark.full
def test_with_its_base_the_gain_is_told(run, capsys):
    report = FidelityReport.model_validate_json(said(capsys, "export", "last", "--quant", "Q8_0", "--json"))
    assert report.base_loss > report.tuned_loss
    assert report.files[0].gain_kept is not None


def test_a_run_without_a_model_yet_says_so(run, capsys):
    shutil.rmtree(run.model)
    capsys.readouterr()
    for command in (["export", "last"], ["chat", "last", *SAY]):
        assert main(command) == 2
        assert "The run tuned has no model yet" in " ".join(capsys.readouterr().err.split())
