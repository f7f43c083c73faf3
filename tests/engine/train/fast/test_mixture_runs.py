"""Whole runs on mixtures of experts: both engines learn the same, and the fast one continues to the bit."""

import json

import pytest
import torch
from safetensors.torch import load_file

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.run.events import GuardReported, RunStarted
from burnish_engine.models.decoder.experts.expert_linear import ExpertLinear
from burnish_engine.models.decoder.lora_adapter import CONFIG_FILE, WEIGHTS_FILE
from burnish_engine.runs.store import create_run
from burnish_engine.train.fast.fast_trainer import FastTrainer
from burnish_engine.train.run import run_training

from support.models import tiny_models
from support.runs.tiny_runs import WATCHED, commanding, evaluations, losses, of_kind, tiny_recipe, trained


@pytest.fixture
def make(tmp_path):
    """Make a run on a tiny mixture: (shape, name, sections' changes, recipe changes) -> its paths."""

    def make_run(shape, name, *, adapter=None, quantize="none", **train):
        if not (tmp_path / "base").exists():
            tiny_models.make(shape, tmp_path / "base", tokenizer=True)
        recipe = tiny_recipe(tmp_path, extra=WATCHED, **{"max_steps": 6, "checkpoint_every": 3} | train)
        sections = {
            "adapter": recipe.adapter.model_copy(update={"dropout": 0.0, "rank": 6} | (adapter or {})),
            "model": recipe.model.model_copy(update={"quantize": quantize}),
        }
        return create_run(recipe.model_copy(update=sections), tmp_path / name)

    return make_run


def engine_of(paths):
    (started, *_) = of_kind(paths, RunStarted)
    return started.engine


@pytest.mark.full
@pytest.mark.parametrize("shape", tiny_models.MIXTURES)
def test_both_engines_learn_the_same(make, shape):
    fast, plain = make(shape, "fast"), make(shape, "plain", engine='"plain"')
    for paths in (fast, plain):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert (engine_of(fast), engine_of(plain)) == ("fast", "plain")
    ours, theirs = losses(fast), losses(plain)
    assert [ours[step] for step in sorted(ours)] == pytest.approx([theirs[step] for step in sorted(theirs)], abs=2e-5)
    assert ours[6] < ours[1] - (0.01 if shape == "granite-moe" else 0.3)  # its logits are divided
    assert evaluations(fast)[6] == pytest.approx(evaluations(plain)[6], abs=2e-5)
    assert {report.verdict for report in of_kind(fast, GuardReported)} == {"training"}
    configs = [json.loads((paths.adapter / CONFIG_FILE).read_text()) for paths in (fast, plain)]
    assert sorted(configs[0]["target_parameters"]) == sorted(configs[1]["target_parameters"])
    assert configs[0]["rank_pattern"] == configs[1]["rank_pattern"]


@pytest.mark.full
@pytest.mark.parametrize(("shape", "quantize"), [("qwen3-moe", "none"), ("lfm2-moe", "none"), ("gpt-oss", "nf4")])
def test_a_mixture_goes_on_bit_for_bit(make, shape, quantize):
    """It is stopped after half of its steps."""
    whole, stopped = (make(shape, name, quantize=quantize) for name in ("whole", "stopped"))
    assert run_training(whole).exit_code == ExitCode.DONE
    assert run_training(stopped, listener=commanding(stopped, 3, "stop")).exit_code == ExitCode.STOPPED
    assert run_training(stopped).exit_code == ExitCode.DONE
    assert engine_of(stopped) == "fast"
    assert losses(stopped) == losses(whole)
    assert trained(stopped) == trained(whole)


@pytest.mark.full
@pytest.mark.parametrize(("shape", "quantize"), [("qwen3-moe", "nf4"), ("olmoe", "none")])
def test_a_mixture_in_fp8_learns_and_goes_on_bit_for_bit(make, shape, quantize):
    settings = {"precision": '"bf16"', "quantize": quantize}
    sixteen = make(shape, "sixteen", **settings)
    whole, stopped = (make(shape, name, products='"fp8"', **settings) for name in ("whole", "stopped"))
    for paths in (sixteen, whole):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert run_training(stopped, listener=commanding(stopped, 3, "stop")).exit_code == ExitCode.STOPPED
    assert run_training(stopped).exit_code == ExitCode.DONE
    assert engine_of(stopped) == "fast"
    assert losses(stopped) == losses(whole) != losses(sixteen)
    assert trained(stopped) == trained(whole)
    assert losses(whole)[6] == pytest.approx(losses(sixteen)[6], rel=0.03)
    assert {report.verdict for report in of_kind(whole, GuardReported)} == {"training"}


@pytest.mark.full
def test_a_run_goes_on_from_an_adapter_of_experts(make):
    first = make("qwen3-moe", "first")
    assert run_training(first).exit_code == ExitCode.DONE
    second = make("qwen3-moe", "second", adapter={"start": str(first.root), "rank": 3})
    assert run_training(second).exit_code == ExitCode.DONE
    assert engine_of(second) == "fast"
    assert evaluations(second)[0] == evaluations(first)[6]
    configs = [json.loads((paths.adapter / CONFIG_FILE).read_text()) for paths in (first, second)]
    assert configs[0]["target_parameters"] == configs[1]["target_parameters"]
    assert configs[0]["rank_pattern"] == configs[1]["rank_pattern"] != {}


def test_the_adapter_of_a_run_is_exported_with_the_experts_apart(make, tmp_path):
    paths = make("mixtral", "run", max_steps=2, adapter={"targets": ["experts.down_proj"], "expert_rank": 2})
    assert run_training(paths).exit_code == ExitCode.DONE
    assert main(["export", str(paths.root), "--to", "adapter", "--each-expert", "--out", str(tmp_path / "out")]) == 0
    names = load_file(tmp_path / "out" / "adapter" / WEIGHTS_FILE).keys()
    assert {name.split(".experts.")[1] for name in names} == {
        f"{expert}.w2.lora_{letter}.weight" for expert in range(4) for letter in "AB"
    }


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "engine"),
    [
        ({"optimizer": '"muon"'}, "plain"),
        ({"optimizer": '"muon"', "adapter": {"targets": ["q_proj", "v_proj"]}}, "fast"),
        ({"optimizer": '"lion"'}, "fast"),
        ({"adapter": {"targets": ["experts.down_proj"], "expert_rank": 3}}, "fast"),
        ({"adapter": {"method": "rslora"}}, "fast"),
    ],
)
def test_which_engine_trains_what(make, changes, engine):
    """Muon's step depends on how experts are stacked, so experts and Muon are the plain engine's."""
    paths = make("mixtral", "run", max_steps=2, **changes)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert engine_of(paths) == engine


def _nudged(decoder):
    experts = decoder.layers[2].weights.experts
    experts.gate_up.weight.view(torch.int32)[5, 3, 7] += 1


def _nudged_router(decoder):
    decoder.layers[0].weights.experts.router_EH.view(torch.int32)[1, 2] += 1


@pytest.mark.full
@pytest.mark.parametrize("spoil", [_nudged, _nudged_router])
def test_the_guard_notices_a_changed_bit_of_a_frozen_expert(make, monkeypatch, spoil):
    real, taken = FastTrainer.step, []

    def step(trainer, prefetcher):
        taken.append(1)
        if len(taken) == 5:
            spoil(trainer.model.loaded.decoder)
        return real(trainer, prefetcher)

    monkeypatch.setattr(FastTrainer, "step", step)
    paths = make("qwen3-moe", "run", max_steps=8)
    assert run_training(paths).exit_code == ExitCode.DIVERGED
    assert of_kind(paths, GuardReported)[-1].check == "base_changed"


def test_the_guard_notices_experts_without_gradients(make, monkeypatch):
    monkeypatch.setattr(ExpertLinear, "accumulate_b", lambda *_given, **_named: None)
    paths = make("qwen3-moe", "run")
    assert run_training(paths).exit_code == ExitCode.DIVERGED
    report = of_kind(paths, GuardReported)[-1]
    assert report.check in {"detached", "zero_gradient"}
    assert "experts" in f"{report.sentence} {report.cause}"
