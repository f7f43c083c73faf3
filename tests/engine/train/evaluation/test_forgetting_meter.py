"""The loss on general text: when it is measured, on which tokens, and where it is kept."""

from __future__ import annotations

import json
import math

import pytest

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.paths import general_text_path
from burnish_engine.contract.run import forgetting
from burnish_engine.contract.run.events import GeneralTextDone, StepDone, Warned
from burnish_engine.contract.run.fold import RunState, fold_all
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.runs.card import read_card
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.store import create_run
from burnish_engine.train.evaluation import forgetting_meter
from burnish_engine.train.run import run_training

from support.runs.tiny_runs import of_kind, tiny_recipe

MEASURED = "[evaluation]\ngeneral_text = true\n"


def measured(paths):
    return [(event.step, event.tokens) for event in of_kind(paths, GeneralTextDone)]


def run(tmp_path, *, quantize="none", device="cpu", extra=MEASURED, **train):
    recipe = tiny_recipe(tmp_path, extra=extra, **{"max_steps": 4, **train})
    sections = {
        "model": recipe.model.model_copy(update={"quantize": quantize}),
        "devices": recipe.devices.model_copy(update={"kind": device}),
    }
    paths = create_run(recipe.model_copy(update=sections), tmp_path / "run")
    assert run_training(paths).exit_code == ExitCode.DONE
    return paths


@pytest.mark.full
@pytest.mark.parametrize("engine", ["fast", "plain"])
@pytest.mark.parametrize("quantize", ["none", "nf4"])
def test_both_engines_measure_before_the_first_step_and_after_the_last(tmp_path, engine, quantize):
    paths = run(tmp_path, engine=f'"{engine}"', quantize=quantize)
    (first, tokens), (last, again) = measured(paths)
    assert (first, last) == (0, 4)
    assert tokens == again > 500
    found = read_run(paths.events).forgetting
    assert found is not None
    assert found.before != found.after
    assert math.isfinite(found.difference)
    assert read_card(paths).result.forgetting == found


@pytest.mark.gpu
@pytest.mark.parametrize("quantize", ["none", "nf4"])
def test_captured_steps_leave_room_for_the_measurement(tmp_path, quantize):
    """Steps are captured as graphs by then; the text's passes are of other lengths."""
    paths = run(tmp_path, device="cuda", quantize=quantize, max_steps=8, precision='"bf16"', engine='"fast"')
    found = read_run(paths.events).forgetting
    assert found is not None
    assert math.isfinite(found.difference)
    again = run(tmp_path / "again", device="cuda", quantize=quantize, max_steps=8, precision='"bf16"', engine='"fast"')
    assert read_run(again.events).forgetting == found


@pytest.mark.full
def test_a_fresh_model_has_the_loss_of_a_guess(tmp_path):
    """The tiny model's weights are random, so before training every token is about as likely as any other."""
    paths = run(tmp_path)
    vocabulary = json.loads((tmp_path / "base" / "config.json").read_text())["vocab_size"]
    assert read_run(paths.events).forgetting.before == pytest.approx(math.log(vocabulary), rel=0.05)


@pytest.mark.full
def test_the_same_run_measures_the_same(tmp_path):
    one, two = (run(tmp_path / name) for name in "ab")
    assert read_run(one.events).forgetting == read_run(two.events).forgetting


@pytest.mark.full
def test_the_recipe_switches_it_off(tmp_path):
    paths = run(tmp_path, extra="[evaluation]\ngeneral_text = false\n")
    assert measured(paths) == []
    assert read_card(paths).result.forgetting is None


@pytest.mark.full
def test_evaluations_on_the_way_are_not_measured_unless_one_may_be_the_result(tmp_path):
    plain = run(tmp_path / "plain", extra=f"{MEASURED}every = 2\n")
    assert [step for step, _ in measured(plain)] == [0, 4]
    stopping = run(tmp_path / "stopping", extra=f"{MEASURED}every = 2\npatience = 3\n")
    assert [step for step, _ in measured(stopping)] == [0, 2, 4]


@pytest.mark.full
def test_the_result_of_early_stopping_is_what_is_reported(tmp_path):
    paths = run(tmp_path, extra=f"{MEASURED}every = 1\npatience = 3\nmin_improvement = 50.0\n")
    state, events = read_run(paths.events), of_kind(paths, GeneralTextDone)
    assert state.best is not None
    by_step = {event.step: event.loss for event in events}
    assert state.best.step < max(by_step)
    assert state.forgetting.after == by_step[state.best.step]
    assert state.forgetting.after != by_step[max(by_step)]


@pytest.mark.full
def test_a_resumed_run_compares_with_the_loss_before_its_first_step(tmp_path):
    recipe = tiny_recipe(tmp_path, max_steps=6, extra=MEASURED)
    paths = create_run(recipe, tmp_path / "run")

    def listen(event):
        if isinstance(event, StepDone) and event.step == 2:
            send(paths, "suspend")

    assert run_training(paths, listener=listen).exit_code == ExitCode.STOPPED
    assert measured(paths)[-1][0] == 0
    before = of_kind(paths, GeneralTextDone)[0].loss
    assert run_training(paths).exit_code == ExitCode.DONE
    assert read_card(paths).result.forgetting.before == before


@pytest.mark.full
def test_a_marked_rise_is_pointed_out_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(forgetting, "MARKED_NATS", -100.0)
    (warning,) = (event for event in of_kind(run(tmp_path), Warned) if event.code == "forgetting")
    assert "learning_rate" in warning.message


@pytest.mark.parametrize(("after", "marked"), [(2.5, False), (3.05, False), (3.2, True), (math.nan, True)])
def test_only_a_large_rise_is_marked(after, marked):
    assert forgetting.Forgetting(before=3.0, after=after, tokens=9).is_marked is marked


@pytest.mark.full
def test_passages_are_whole_and_few(embedded_model, monkeypatch):
    tokenizer = load_tokenizer(open_model("embedded"))
    documents = forgetting_meter.general_documents(tokenizer, longest=1024)
    total = sum(map(len, documents))
    assert 1500 < total <= forgetting_meter.GENERAL_TEXT_TOKENS
    assert not any(document.truncated for document in documents)
    assert all(document.supervised[1:].all() and not document.supervised[0] for document in documents)
    monkeypatch.setattr(forgetting_meter, "GENERAL_TEXT_TOKENS", total - 1)
    assert len(forgetting_meter.general_documents(tokenizer, longest=1024)) == len(documents) - 1


def test_a_passage_longer_than_a_pass_is_cut(embedded_model):
    tokenizer = load_tokenizer(open_model("embedded"))
    assert max(map(len, forgetting_meter.general_documents(tokenizer, longest=32))) == 32


def test_the_text_has_many_kinds_and_stays_small():
    passages = [json.loads(line) for line in general_text_path().read_text(encoding="utf-8").splitlines()]
    assert {"story", "python", "arithmetic", "history", "dialog"} <= {one["kind"] for one in passages}
    assert general_text_path().stat().st_size < 60_000
    assert len({one["text"] for one in passages}) == len(passages)


def test_steps_that_were_undone_are_forgotten():
    events = [
        GeneralTextDone(seq=1, step=0, loss=3.0, tokens=9, seconds=0.1),
        GeneralTextDone(seq=2, step=4, loss=3.5, tokens=9, seconds=0.1),
        GeneralTextDone(seq=3, step=2, loss=3.25, tokens=9, seconds=0.1),
    ]
    assert [one.step for one in fold_all(RunState(), events).general_text] == [0, 2]
