"""Runs that continue from a trained adapter: ordinary training, and preferences whose reference that adapter is."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.chat.model_cache import ModelCache
from burnish_engine.chat.target import find_target
from burnish_engine.cli.main import main
from burnish_engine.cli.results.chat import open_chat
from burnish_engine.contract.errors import ExitCode, SetupError, UsageError
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.contract.recipe.recipe_file import dump_recipe, load_recipe, parse_recipe
from burnish_engine.contract.run.events import EvaluationDone, GuardReported, StepDone
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.models.saved_adapters.start_adapter import as_started
from burnish_engine.runs.card import read_card
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run
from burnish_engine.train.run import run_training

from support.models.tiny import make_llama, write_jsonl
from support.runs.tiny_runs import losses, of_kind, tiny_recipe

ROWS = [
    {"prompt": f"Lamp {number}?", "chosen": "Gladly. " * (number % 3 + 1), "rejected": "No."} for number in range(10)
]


@pytest.fixture
def make(tmp_path):
    """Make a run: (adapter to start from, recipe changes) -> its paths."""
    count = iter(range(99))

    def make_run(start="", *, objective="sft", extra="", **train):
        short = {"max_steps": 3, "epochs": 9.0, "engine": '"fast"', "checkpoint_every": 1} | train
        preference = f'[preference]\nobjective = "{objective}"\n' if objective != "sft" else ""
        recipe = tiny_recipe(tmp_path, extra=f"{preference}{extra}", **short)
        data = {}
        if objective != "sft":
            file = write_jsonl(tmp_path / "pairs.jsonl", ROWS)
            data = {"files": [str(file)], "validation_files": [], "validation_share": 0.2}
        sections = {
            "adapter": recipe.adapter.model_copy(update={"start": str(start), "rank": 2 if start else 4}),
            "data": recipe.data.model_copy(update=data),
        }
        return create_run(recipe.model_copy(update=sections), tmp_path / f"run {next(count)}")

    return make_run


@pytest.fixture
def first(make):
    """A finished run."""
    paths = make()
    assert run_training(paths).exit_code == ExitCode.DONE
    return paths


def changed_copy(adapter, folder, **config):
    """Copy an adapter, with changes to its adapter_config.json."""
    shutil.copytree(adapter, folder)
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return folder


def shapes(folder):
    return {name: tuple(value.shape) for name, value in load_file(folder / "adapter_model.safetensors").items()}


@pytest.mark.full
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_a_run_goes_on_where_the_adapter_stood(make, first, engine):
    further = make(first.root, engine=f'"{engine}"')
    assert run_training(further).exit_code == ExitCode.DONE
    ended, began = of_kind(first, EvaluationDone)[-1], of_kind(further, EvaluationDone)[0]
    assert began.loss == pytest.approx(ended.loss, rel=1e-5)
    assert of_kind(further, EvaluationDone)[-1].loss < began.loss
    assert shapes(further.adapter) == shapes(first.adapter)  # not of the recipe's own rank
    assert all(report.verdict == "training" for report in of_kind(further, GuardReported))
    found, trained = read_card(further), read_card(first)
    assert {file.name: file.sha256 for file in found.start} == {
        file.name: file.sha256 for file in trained.result.files if file.name.startswith("adapter")
    }
    assert not trained.start


@pytest.mark.full
def test_an_adapter_may_reach_less_than_its_targets_name(tmp_path, make, first):
    """PEFT's config can choose among layers, which a recipe cannot; the guard does not call that a fault."""
    folder = changed_copy(first.adapter, tmp_path / "peft", layers_to_transform=[0])
    file = folder / "adapter_model.safetensors"
    save_file({name: value for name, value in load_file(file).items() if ".layers.0." in name}, file)
    paths = make(folder)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert shapes(paths.adapter) == shapes(folder)
    assert all(not report.check for report in of_kind(paths, GuardReported))


@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_the_adapter_is_the_reference_of_preferences(tmp_path, make, first, engine):
    folder = changed_copy(first.adapter, tmp_path / "peft", lora_dropout=0.0)  # which would move the first step
    paths = make(folder, objective="dpo", engine=f'"{engine}"')
    assert run_training(paths).exit_code == ExitCode.DONE
    step, held_out = of_kind(paths, StepDone)[0], of_kind(paths, EvaluationDone)[0]
    for event in (step, held_out):
        assert event.margin == pytest.approx(0.0, abs=1e-5)
        assert event.loss == pytest.approx(math.log(2), abs=1e-5)


@pytest.mark.full
def test_base_start_and_result_of_a_run_answer(make, first):
    further = make(first.root, learning_rate=5e-3)
    assert run_training(further).exit_code == ExitCode.DONE
    models, options = ModelCache(), Sampling(max_tokens=16, temperature=1.0)  # greedy replies are much alike

    def reply(paths, variant):
        backend, name = models.get(find_target(str(paths.root), variant))
        return backend.stream([{"role": "user", "content": "Lamp 3?"}], options).finish().text, name

    before, name = reply(first, "tuned")
    replies = {variant: reply(further, variant) for variant in ("base", "tuned", "start", "base")}
    assert replies["start"] == (before, name.replace("tuned", "start"))
    assert len({text for text, _ in replies.values()}) == 3
    shutil.rmtree(first.root)  # the run has its own copy
    backend = open_chat(str(further.root), "start", "cpu")
    assert backend.stream([{"role": "user", "content": "Lamp 3?"}], options).finish().text == before
    assert backend.name == replies["start"][1]
    backend.close()
    models.clear()


def test_a_run_that_began_anew_has_no_adapter_to_answer_with(make):
    with pytest.raises(UsageError, match="no adapter that it continued from"):
        find_target(str(make().root), "start")


@pytest.mark.full
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_a_resumed_run_compares_with_the_same_reference(make, first, engine):
    whole, halved = (make(first.root, objective="dpo", engine=f'"{engine}"') for _ in range(2))
    assert run_training(whole).exit_code == ExitCode.DONE

    def listen(event):
        if isinstance(event, StepDone) and event.step == 2:
            send(halved, "stop_now")

    assert run_training(halved, listener=listen).exit_code == ExitCode.STOPPED
    for path in (user_cache_dir() / "references").iterdir():
        path.unlink()
    shutil.rmtree(first.root)  # the run has its own copy
    assert run_training(halved).exit_code == ExitCode.DONE
    assert losses(halved) == losses(whole)


def test_an_adapter_of_other_weights_is_refused(make, first, tmp_path):
    model = tmp_path / "base"
    weights = next(model.glob("*.safetensors"))
    changed = {name: value + 0.01 for name, value in load_file(weights).items()}
    save_file(changed, weights, metadata={"format": "pt"})
    for named in (first.root, first.adapter):
        outcome = run_training(make(named))
        assert outcome.exit_code == ExitCode.ENVIRONMENT
        assert "SHA-256" in outcome.message
    shutil.rmtree(model)
    make_llama(model, hidden_size=48)
    with pytest.raises(SetupError, match=r"model\.safetensors"):
        plan_recipe(load_recipe(make(first.root).recipe))


def test_an_adapter_of_another_shape_is_refused(make, first, tmp_path):
    alone = tmp_path / "alone"
    shutil.copytree(first.adapter, alone)
    shutil.rmtree(tmp_path / "base")
    make_llama(tmp_path / "base", hidden_size=128)
    outcome = run_training(make(alone))
    assert outcome.exit_code == ExitCode.ENVIRONMENT
    assert "own base" in outcome.message
    assert "128" in outcome.message


def test_a_name_that_no_folder_can_have_is_refused_and_leaves_nothing(tmp_path, make, capsys):
    paths = make("n" * 5000)
    assert main(["train", str(paths.recipe), "--run-dir", str(tmp_path / "refused")]) == ExitCode.USAGE
    assert "adapter.start" in capsys.readouterr().err
    assert not (tmp_path / "refused").exists()


@pytest.mark.full
def test_a_folder_without_an_adapter_is_refused_before_training(make, tmp_path):
    (tmp_path / "empty").mkdir()
    recipe = load_recipe(make(tmp_path / "empty").recipe)
    with pytest.raises(UsageError, match=r"adapter\.start"):
        plan_recipe(recipe)
    assert run_training(make(tmp_path / "empty")).exit_code == ExitCode.USAGE


@pytest.mark.full
def test_method_rank_and_targets_are_the_adapters(tmp_path, make, first):
    config = {"use_rslora": True, "lora_alpha": 6.5, "target_modules": ["q_proj"]}
    folder = changed_copy(first.adapter, tmp_path / "peft", **config)
    started = as_started(load_recipe(make(folder).recipe)).adapter
    assert (started.method, started.rank, started.alpha, started.targets) == ("rslora", 4, 6.5, ["q_proj"])
    assert as_started(load_recipe(make().recipe)).adapter.rank == 4


@pytest.mark.full
def test_the_plan_counts_the_adapter_s_rank_and_not_the_recipe_s(make, first, capsys):
    def planned(paths):
        assert main(["plan", str(paths.recipe), "--json"]) == ExitCode.DONE
        plan = json.loads(capsys.readouterr().out)
        return plan["trainable_parameters"], [note for note in plan["notes"] if "rank (4)" in note]

    (new, untold), (further, told) = planned(first), planned(make(first.root))
    assert further == new
    assert (len(untold), len(told)) == (0, 1)
    assert str(first.adapter) in told[0]
    smaller = load_recipe(make(first.root).recipe)
    assert smaller.adapter.rank < 4, "what the recipe says would be fewer"


def test_checking_a_recipe_tells_what_it_goes_on_from(tmp_path, make, first, capsys):
    assert main(["recipe", "check", str(make(first.root).recipe)]) == ExitCode.DONE
    told = " ".join(capsys.readouterr().out.split())
    assert "rank 4" in told
    assert "q_proj" in told
    (tmp_path / "empty").mkdir()
    assert main(["recipe", "check", str(make(tmp_path / "empty").recipe)]) == ExitCode.USAGE
    assert "adapter.start" in capsys.readouterr().err


@pytest.mark.full
def test_a_damaged_adapter_is_refused(tmp_path, make, first):
    folder = tmp_path / "damaged"
    shutil.copytree(first.adapter, folder)
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    assert main(["recipe", "check", str(make(folder).recipe)]) == ExitCode.ENVIRONMENT
    (folder / "adapter_config.json").write_text('{"peft_type": "IA3"}')
    assert main(["recipe", "check", str(make(folder).recipe)]) == ExitCode.ENVIRONMENT


@pytest.mark.full
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_an_adapter_that_lacks_a_tensor_is_refused_with_its_name(tmp_path, make, first, engine):
    folder = changed_copy(first.adapter, tmp_path / "lacking")
    tensors = load_file(folder / "adapter_model.safetensors")
    lost = next(name for name in tensors if ".q_proj.lora_A" in name)
    del tensors[lost]
    save_file(tensors, folder / "adapter_model.safetensors")
    outcome = run_training(make(folder, engine=f'"{engine}"'))
    assert outcome.exit_code == ExitCode.ENVIRONMENT
    assert lost.removeprefix("base_model.model.").partition(".lora_A")[0] in outcome.message


@pytest.mark.full
@pytest.mark.parametrize("engine", ["auto", "plain"])
def test_an_adapter_whose_config_names_another_rank_is_refused_before_training(tmp_path, make, first, engine, capsys):
    folder = changed_copy(first.adapter, tmp_path / "torn", r=8)
    paths = make(folder, engine=f'"{engine}"')
    assert main(["recipe", "check", str(paths.recipe)]) == ExitCode.ENVIRONMENT
    assert "the rank 4" in " ".join(capsys.readouterr().err.split())
    outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.ENVIRONMENT
    assert "the rank 4" in outcome.message


@pytest.mark.full
@pytest.mark.parametrize("engine", ["auto", "plain"])
def test_an_adapter_of_no_numbers_is_named_and_not_the_base(tmp_path, make, first, engine):
    folder = changed_copy(first.adapter, tmp_path / "broken")
    tensors = load_file(folder / "adapter_model.safetensors")
    next(iter(tensors.values()))[0, 0] = math.nan
    save_file(tensors, folder / "adapter_model.safetensors")
    outcome = run_training(make(folder, engine=f'"{engine}"'))
    assert outcome.exit_code == ExitCode.ENVIRONMENT
    assert next(iter(tensors)) in outcome.message
    assert "base model" not in outcome.message


def test_every_weight_and_an_adapter_to_start_from_exclude_each_other():
    with pytest.raises(UsageError, match=r"adapter\.start"):
        parse_recipe('[adapter]\nmethod = "full"\nstart = "there"')


@pytest.mark.full
def test_a_relative_start_is_taken_from_the_recipes_folder(tmp_path, first, make):
    recipe = load_recipe(make().recipe)
    file = tmp_path / "recipe.toml"
    named = recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update={"start": first.root.name})})
    file.write_text(dump_recipe(named), encoding="utf-8")
    assert Path(load_recipe(file).adapter.start) == first.root
