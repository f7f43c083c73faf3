"""Runs that were stopped continue as if they had not been, or say why they cannot."""

import json

import pytest

from burnish_engine.advise.plan import plan
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.events import (
    CheckpointSaved,
    RunStarted,
    StepDone,
    Warned,
)
from burnish_engine.runs.card import read_card
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import summarize
from burnish_engine.train.fast import fast_engine
from burnish_engine.train.lifecycle import run_setup
from burnish_engine.train.run import run_training

from support.runs.tiny_runs import commanding, losses, of_kind, tiny_recipe


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "status", "engine"), [("stop", "stopped", '"fast"'), ("suspend", "suspended", '"plain"')]
)
def test_an_ended_run_goes_on_with_the_uninterrupted_losses(make_run, name, status, engine):
    """Bit for bit, under dropout, with the engine that began it."""
    settings = {"max_steps": 8, "epochs": 9.0, "accumulation": 2, "engine": engine}
    whole, cut = make_run(**settings), make_run(**settings)
    run_training(whole)
    outcome = run_training(cut, listener=commanding(cut, 5, name))
    assert (outcome.exit_code, outcome.step) == (ExitCode.STOPPED, 5)
    assert outcome.message.startswith(f"{status.capitalize()} as asked")
    assert "step 5 is saved" in outcome.message
    assert summarize(cut).status == status
    assert (cut.adapter / "adapter_model.safetensors").is_file()
    assert run_training(cut).exit_code == ExitCode.DONE
    assert [event.resumed_from_step for event in of_kind(cut, RunStarted)] == [None, 5]
    assert {f'"{event.engine}"' for event in of_kind(cut, RunStarted)} == {engine}
    assert losses(cut) == losses(whole)
    assert (
        read_card(cut).result.tokens
        == read_card(whole).result.tokens
        == sum(one.tokens for one in of_kind(whole, StepDone))
    )


@pytest.mark.full
def test_stop_now_saves_nothing_new(make_run):
    paths = make_run(max_steps=7)
    outcome = run_training(paths, listener=commanding(paths, 5, "stop_now"))
    assert "the last checkpoint (step 3) is kept" in outcome.message
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == [3]
    assert not paths.adapter.exists()
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.step for event in of_kind(paths, StepDone)] == [1, 2, 3, 4, 5, 4, 5, 6, 7]


@pytest.mark.full
def test_stop_now_before_the_first_checkpoint_says_that_nothing_is_kept(make_run):
    paths = make_run(max_steps=12)
    outcome = run_training(paths, listener=commanding(paths, 2, "stop_now"))
    assert "nothing is kept" in outcome.message


@pytest.mark.full
def test_an_automatic_run_stays_with_what_was_chosen_when_it_began(make_run):
    """Also where the other engine could train it by now, in another precision, with more threads, packed."""
    paths = make_run(max_steps=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("burnish_engine.train.engine_loader.why_not", lambda *_: "Triton is not installed")
        patch.setattr(run_setup, "choose_precision", lambda *_: "bf16")
        patch.setattr(run_setup, "choose_threads", lambda *_: 2)
        patch.setattr("burnish_engine.train.plain.plain_engine.choose_layout", lambda *_: ("padded", ""))
        run_training(paths, listener=commanding(paths, 3, "stop"))
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [(event.engine, event.precision, event.resumed_from_step) for event in of_kind(paths, RunStarted)] == [
        ("plain", "bf16", None), ("plain", "bf16", 3),
    ]  # fmt: skip
    kept = [json.loads(state.read_text()) for state in sorted(paths.checkpoints.glob("*/state.json"))]
    assert [(state["step"], state["threads"], state["layout"]) for state in kept] == [
        (3, 2, "padded"),
        (4, 2, "padded"),
    ]
    (why,) = [event.message for event in of_kind(paths, Warned) if event.code == "engine"]
    assert why.startswith("Triton is not installed")


def test_changed_data_or_recipe_is_not_resumed(make_run, tmp_path):
    paths = make_run(max_steps=8)
    run_training(paths, listener=commanding(paths, 4, "stop"))
    data = tmp_path / "train.jsonl"
    original = data.read_text()
    data.write_text(original.replace("lamp", "lump"))
    outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.USAGE
    assert "data is not what this run was started with" in outcome.message
    data.write_text(original)
    recipe = tiny_recipe(tmp_path, max_steps=9)
    paths.recipe.write_text(dump_recipe(recipe), encoding="utf-8")
    assert "recipe" in run_training(paths).message


def with_targets(paths, targets):
    """The run with other targets in its recipe."""
    text = paths.recipe.read_text(encoding="utf-8")
    start, end = text.index("targets = ["), text.index("]", text.index("targets = [")) + 1
    paths.recipe.write_text(f"{text[:start]}targets = {targets}{text[end:]}", encoding="utf-8")
    return paths


@pytest.mark.full
def test_targets_the_model_lacks_are_refused_once(make_run):
    some = with_targets(make_run(max_steps=2), '["q_proj", "router"]')
    outcome = run_training(some)
    assert outcome.exit_code == UsageError.exit_code
    assert "router" in outcome.message
    assert "down_proj" in outcome.message
    assert not [event for event in read_events(some.events) if "router" in getattr(event, "message", "")][1:]
    none = run_training(with_targets(make_run(max_steps=2), '["nope"]'))
    assert none.exit_code == UsageError.exit_code
    assert "q_proj" in none.message


@pytest.mark.full
def test_a_run_that_an_older_version_began_with_such_targets_goes_on(make_run, monkeypatch):
    paths = with_targets(make_run(max_steps=4, engine='"fast"'), '["q_proj", "router"]')
    with monkeypatch.context() as older:
        for module in (plan, fast_engine):
            older.setattr(module, "check_spec_targets", lambda *_: [])
        assert run_training(paths, listener=commanding(paths, 2, "stop")).exit_code == ExitCode.STOPPED
    assert run_training(paths).exit_code == ExitCode.DONE
    card = read_card(paths)
    assert "feed-forward 0 %" in card.coverage.text
    assert "feed-forward 0 %" in card.guard.coverage
