"""`burnish duel`: what is refused, and what a dry run says."""

import json
import re
from contextlib import nullcontext

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.duel import run_duel as running
from burnish_engine.duel import state as states
from burnish_engine.duel.prepare import forecast_duel
from burnish_engine.duel.sides.spec import DuelOptions, RunSpec, run_recipe

from support.runs.duels import duel_of, outcome, pairs
from support.runs.tiny_runs import tiny_recipe


@pytest.fixture
def write(tmp_path):
    """A tiny recipe on disk: (name, rank, settings of [train]) -> path."""

    def made(name, *, rank=4, data=None, **train):
        recipe = tiny_recipe(tmp_path, max_steps=5, **train)
        changes = {"adapter": recipe.adapter.model_copy(update={"rank": rank})}
        if data:
            changes["data"] = recipe.data.model_copy(update=data)
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(dump_recipe(recipe.model_copy(update=changes)), encoding="utf-8")
        return path

    return made


def said(capsys, *arguments, code):
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    printed = capsys.readouterr()
    return " ".join(printed.out.split()), " ".join(printed.err.split())


@pytest.mark.full
def test_a_dry_run_shows_differences_runs_and_time_and_writes_nothing(write, tmp_path, capsys):
    files = write("a.toml"), write("b.toml", rank=16, learning_rate=1e-3)
    before = sorted(tmp_path.rglob("*"))
    text, _ = said(capsys, "duel", *files, "--dry-run", code=0)
    for words in ("adapter.rank 4 16", "train.learning_rate 0.005 0.001 not compared", "12 runs", "At most 28",
                  "Predicted training time", "5 steps", "Energy is not measured here"):  # fmt: skip
        assert words in text
    assert text.index("adapter.rank") < text.index("12 runs")
    least, most = re.search(r"training time: (.+?) \(at most (.+?)\)", text).groups()
    assert least != most
    assert sorted(tmp_path.rglob("*")) == before
    text, _ = said(capsys, "duel", *files, "--dry-run", "--json", "--factors", "1", "--seeds", "5", code=0)
    document = json.loads(text)
    assert (document["options"]["seeds"], document["options"]["factors"]) == (5, [1.0])


def test_factors_make_all_combinations_and_may_be_precision_and_schedule(write, capsys):
    tried = ["--try", "train.schedule=cosine,wsd", "--try", "masking.kind=off,magma"]
    text, _ = said(capsys, "duel", write("a.toml"), *tried, "--dry-run", "--json", code=0)
    document = json.loads(text)
    assert [side["name"] for side in document["sides"]] == [
        f"schedule {schedule}, masking {masking}" for schedule in ("cosine", "wsd") for masking in ("off", "magma")
    ]
    assert {one["key"] for one in document["differences"] if one["kind"] == "compared"} == {
        "train.schedule", "masking.kind"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tried", "why"),
    [
        ("train.learning_rate=1e-3,1e-4", "the middle of the side's own grid"),
        ("train.micro_batch_tokens=256,512", "another token budget"),
        ("masking.kind=off,magma,skip_update", "has two"),
    ],
)
def test_what_is_no_factor_of_a_duel_is_refused(write, capsys, tried, why):
    _, error = said(capsys, "duel", write("a.toml"), "--try", tried, "--dry-run", code=2)
    assert why in error


def test_factors_take_one_recipe(write, capsys):
    said(capsys, "duel", write("a.toml"), write("b.toml"), "--try", "masking.kind=off,magma", "--dry-run", code=2)


def test_unfair_recipes_are_refused_unless_asked_for(write, capsys):
    files = write("a.toml"), write("b.toml", rank=16, micro_batch_tokens=512)
    _, error = said(capsys, "duel", *files, "--dry-run", code=2)
    assert "train.micro_batch_tokens is 256 / 512 (another token budget)" in error
    assert "--anyway" in error
    text, _ = said(capsys, "duel", *files, "--dry-run", "--anyway", code=0)
    assert "unfair: another token budget" in text


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "2 to 8 recipes, not 0"),
        (["a.toml"], "2 to 8 recipes, not 1"),
        (["a.toml", "a.toml"], "there is nothing to compare"),
        (["a.toml", "rate.toml"], "(train.learning_rate)"),
        (["a.toml", "b.toml", "--factors", "1,x"], "is no list of numbers"),
        (["a.toml", "b.toml", "--factors", "1,-2"], "--factors"),
        (["a.toml", "b.toml", "--factors", "1,1"], "must differ from each other"),
        (["a.toml", "b.toml", "--seeds", "2"], "--seeds = 2"),
        (["a.toml", "b.toml", "--extend", "99"], "--extend = 99"),
        (["a.toml", "missing.toml"], "There is no recipe at"),
        (["--resume", "."], "There is no duel in"),
        (["a.toml", "--resume", "."], "takes no recipes"),
    ],
)
def test_what_cannot_be_is_said_in_a_paragraph(write, tmp_path, monkeypatch, capsys, arguments, words):
    write("a.toml")
    write("b.toml", rank=8)
    write("rate.toml", learning_rate=7e-4)
    monkeypatch.chdir(tmp_path)
    _, error = said(capsys, "duel", *arguments, code=2)
    assert words in error


def test_a_duel_needs_held_out_rows_and_an_empty_folder(write, tmp_path, capsys):
    files = [write(name, rank=rank, data={"validation_files": [], "validation_share": 0.0}) for name, rank in
             (("a.toml", 4), ("b.toml", 8))]  # fmt: skip
    _, error = said(capsys, "duel", *files, "--dry-run", code=2)
    assert "holds no rows out" in error
    files = [write("a.toml"), write("b.toml", rank=8)]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").touch()
    _, error = said(capsys, "duel", *files, "--out", tmp_path / "out", code=2)
    assert "already holds something" in error


@pytest.mark.full
def test_sides_with_files_of_one_name_are_told_apart(write):
    files = [write("one/a.toml"), write("two/a.toml", rank=8)]
    found = forecast_duel(files, DuelOptions(), "")
    assert [side.name for side in found.state.sides] == ["one/a", "two/a"]
    same = forecast_duel([files[0], files[0]], DuelOptions(anyway=True), "")
    assert [side.name for side in same.state.sides] == ["a A", "a B"]


def test_what_a_run_trains_is_the_recipe_but_for_what_the_duel_decides(write, tmp_path):
    recipe = tiny_recipe(tmp_path, extra='[evaluation]\nevery = 99\npatience = 2\nprompts = ["hi"]\n')
    spec = RunSpec(side=0, phase="seeds", seed=9, rate=0.02)
    made = run_recipe(recipe, spec, every=4)
    assert (made.train.seed, made.train.learning_rate, made.evaluation.every) == (9, 0.02, 4)
    assert (made.evaluation.prompts, made.evaluation.patience, made.train.checkpoint_every) == ([], 0, 4)
    assert not made.guard.rollback
    assert made.train.model_copy(update={"seed": 0, "learning_rate": 5e-3, "checkpoint_every": 3,
                                         "keep_checkpoints": 2}) == recipe.train  # fmt: skip
    assert (made.data, made.model, made.adapter) == (recipe.data, recipe.model, recipe.adapter)


class Quiet:
    """A listener that says nothing."""

    def run_begins(self, *_):
        pass

    run_progress = run_ended = run_begins


def test_a_duel_ends_where_conditions_differ_unless_it_shall_go_on_anyway(tmp_path, monkeypatch):
    def measured(_folder, _state, _recipe, spec, _listener):
        conditions = {"precision": "bf16"} if spec.side else {}
        return outcome(spec.side, 2.0 + spec.side, seed=spec.seed, rate=spec.rate, conditions=conditions)

    monkeypatch.setattr(running, "measure_run", measured)
    recipe = tiny_recipe(tmp_path)
    for anyway, made in ((False, 2), (True, 6)):
        state = duel_of(pairs([2.0, 2.1, 2.2], [2.3, 2.4, 2.5]), factors=[1.0], anyway=anyway)
        begun = state.model_copy(update={"outcomes": [], "checks": [], "verdicts": [], "status": "unfinished"})
        folder = states.create(begun, [recipe, recipe], tmp_path / f"duel {made}")
        with nullcontext() if anyway else pytest.raises(UsageError, match="precision: fp32 / bf16"):
            running.run_duel(folder, Quiet())
        _, left = states.open_duel(folder.root)
        assert (len(left.outcomes), left.status) == (made, "finished" if anyway else "unfinished")


def test_the_state_is_one_whole_file_with_one_owner(tmp_path, capsys):
    state = duel_of(pairs([2.0, 2.1, 2.2], [2.3, 2.4, 2.5]))
    folder = states.DuelFolder(tmp_path / "duel")
    folder.root.mkdir()
    states.write_state(folder, state)
    assert states.open_duel(folder.root)[1] == state
    with states.owned(folder):
        _, error = said(capsys, "duel", "--resume", folder.root, code=2)
        assert "already being carried out" in error
    folder.state.write_text(folder.state.read_text(encoding="utf-8")[:-50], encoding="utf-8")
    _, error = said(capsys, "duel", "--resume", folder.root, code=2)
    assert "is damaged" in error
