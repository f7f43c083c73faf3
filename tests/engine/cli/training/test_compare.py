"""`burnish runs compare`: what two recipes do differently, and what came of it."""

import json
import math

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import EvaluationDone, StepDone
from burnish_engine.runs.card import write_card
from burnish_engine.runs.compare.compare import compare
from burnish_engine.runs.events_file import EventWriter
from burnish_engine.runs.store import create_run, open_run

from support.runs.cards import make_card


def make(name, *, losses=(), held_out=None, held_out_tokens=500, **train):
    """A run with these losses; its n-th step ran at n x 100 tokens/s, took n seconds and n GB."""
    recipe = Recipe.model_validate({"train": train})
    paths = create_run(recipe, runs_dir() / name)
    events = EventWriter(paths.events)
    for number, loss in enumerate(losses, start=1):
        events.write(
            StepDone(
                step=number, epoch=0.0, loss=loss, learning_rate=1e-3, grad_norm=1.0, tokens=9, supervised_tokens=5,
                tokens_per_s=number * 100.0, supervised_tokens_per_s=1.0, step_s=float(number),
                memory_bytes=number * 10**9, eta_s=0.0,
            )
        )  # fmt: skip
    if held_out is not None:
        events.write(EvaluationDone(step=0, loss=9.0, tokens=held_out_tokens, seconds=1.0))
        events.write(EvaluationDone(step=len(losses), loss=held_out, tokens=held_out_tokens, seconds=1.0))
    events.close()
    return paths


def test_recipes_differ_by_dotted_keys_and_outcomes_are_measured():
    first = make("a", losses=[3.0, 2.0, 1.0], held_out=1.5, learning_rate=1e-3)
    second = make("b", losses=[3.0, 2.5, 2.25], held_out=2.5, learning_rate=1e-4, max_steps=7)
    result = compare(first, second)
    assert {item.key: item.values for item in result.recipe} == {
        "train.learning_rate": (1e-3, 1e-4),
        "train.max_steps": (Recipe().train.max_steps, 7),
    }
    better, worse = result.outcomes
    assert (better.run, better.loss, better.held_out_loss, better.held_out_step) == ("a", 1.0, 1.5, 3)
    assert (worse.run, worse.loss, worse.held_out_loss) == ("b", 2.25, 2.5)
    assert (better.tokens_per_s, better.memory_bytes, better.training_s) == (200.0, 3 * 10**9, 6.0)
    assert result.notes == []


def test_a_step_that_was_made_again_after_a_crash_counts_once():
    first, second = make("a", losses=[3.0, 2.0]), make("b", losses=[3.0, 2.0])
    again = EventWriter(first.events)
    again.write(
        StepDone(
            step=2, epoch=0.0, loss=1.9, learning_rate=1e-3, grad_norm=1.0, tokens=9, supervised_tokens=5,
            tokens_per_s=200.0, supervised_tokens_per_s=1.0, step_s=2.0, memory_bytes=1, eta_s=0.0,
        )
    )  # fmt: skip
    again.close()
    ours, theirs = compare(first, second).outcomes
    assert (ours.loss, ours.training_s) == (1.9, theirs.training_s)


def test_what_cannot_be_compared_is_said():
    first = make("a", losses=[3.0, 2.0], held_out=1.0, held_out_tokens=100)
    second = make("b", losses=[3.0], held_out=2.0, held_out_tokens=200)
    notes = " ".join(compare(first, second).notes)
    assert "different rows" in notes
    assert "different numbers of steps" in notes


def test_a_run_that_has_not_begun_has_no_figures_and_rows_without_any_are_left_out(capsys):
    make("a", losses=[2.0])
    make("b")
    assert compare(open_run("a"), open_run("b")).outcomes[1].loss is None
    assert main(["runs", "compare", "a", "b"]) == 0
    table = capsys.readouterr().out
    assert "training loss" in table
    assert "held-out loss" not in table


def test_the_table_and_the_document_say_the_same(capsys):
    make("a", losses=[3.0, 2.0], held_out=1.25)
    make("b", losses=[3.0, math.inf], learning_rate=5e-5)
    assert main(["runs", "compare", "a", "b", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["recipe"][0]["key"] == "train.learning_rate"
    assert document["outcomes"][0]["held_out_loss"] == 1.25
    assert document["outcomes"][1]["loss"] == "Infinity"
    assert [line["topic"] for line in document["cards"]] == ["card"]
    assert main(["runs", "compare", "a", "b"]) == 0
    lines = {line.rpartition("  ")[0][:20].strip(): line for line in capsys.readouterr().out.splitlines()}
    assert "5e-05" in lines["train.learning_rate"]
    assert "1.2500" in lines["held-out loss"]
    assert "inf" in lines["training loss"]
    assert "3 s" in lines["training time"]


def test_long_values_keep_their_ends_which_tell_them_apart(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("first", "second"):
        start = f"/runs/{'a-rather-long-name-' * 5}/{name}"
        create_run(Recipe.model_validate({"adapter": {"start": start}}), runs_dir() / name)
    assert main(["runs", "compare", "first", "second"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("adapter.start"))
    _, *values = line.split()
    assert [(len(value), value[:3], value.rpartition("/")[2]) for value in values] == [
        (60, "...", "first"), (60, "...", "second"),
    ]  # fmt: skip


@pytest.mark.full
def test_cards_are_compared_and_a_missing_one_is_a_note(capsys):
    first, second = make("a", losses=[1.0]), make("b", losses=[1.0])
    assert main(["runs", "compare", "a", "b"]) == 0
    assert "note: a has no card" in capsys.readouterr().out
    write_card(first, make_card())
    write_card(second, make_card(versions={"burnish": "0.1.0", "python": "3.11.7", "torch": "2.11.0", "cuda": "12.8"}))
    assert main(["runs", "compare", "a", "b"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert {"base model: the same weights", "torch 2.13.0 / 2.11.0"} <= set(said)
    assert not any(line.startswith("note:") for line in said)
    assert main(["runs", "compare", "a", "b", "--json"]) == 0
    lines = {line["topic"]: line for line in json.loads(capsys.readouterr().out)["cards"]}
    assert lines["torch"]["values"] == ["2.13.0", "2.11.0"]
    assert lines["base model"]["verdict"] == "same"


@pytest.mark.parametrize(("second", "word"), [("a", "same run"), ("nobody", "no run")])
def test_a_run_is_compared_with_another_that_exists(capsys, second, word):
    make("a", losses=[1.0])
    assert main(["runs", "compare", "a", second]) == 2
    assert word in " ".join(capsys.readouterr().err.split())
