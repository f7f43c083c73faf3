"""The list of runs as windows show it."""

import time

import pytest

from burnish_engine.contract.facts.votes import add_vote
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.notes import write_notes
from burnish_engine.runs.compare.compare import compared_run
from burnish_engine.runs.compare.overview import overview
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.store import create_run, read_state, write_state


def test_runs_elsewhere_are_listed_once_and_only_when_asked_for(burnish_home, tmp_path):
    inside = create_run(Recipe(name="inside"))
    time.sleep(0.01)
    outside = create_run(Recipe(name="outside"), tmp_path / "outside")
    assert [run.state.name for run in overview()] == ["inside"]
    folders = [str(outside.root), str(inside.root), str(tmp_path / "nothing"), str(tmp_path)]
    assert [run.state.name for run in overview(folders)] == ["outside", "inside"]


def test_a_run_elsewhere_whose_process_is_gone_is_interrupted(burnish_home, tmp_path):
    paths = create_run(Recipe(name="outside"), tmp_path / "outside")
    write_state(
        paths, read_state(paths).model_copy(update={"status": "running", "pid": 2**22 + 1, "process_created": 1.0})
    )
    assert [run.standing for run in overview([str(paths.root)])] == ["interrupted"]


def with_train(name, **changes):
    document = Recipe(name=name).model_dump()
    for key, value in changes.items():
        section, _, field = key.partition("__")
        document[section][field] = value
    return create_run(Recipe.model_validate(document))


@pytest.mark.full
def test_runs_measured_on_the_same_held_out_rows_are_told_from_others(burnish_home):
    files = {"data__files": ["/d/a.jsonl"], "data__validation_share": 0.1}
    for name, changes in {
        "first": files,
        "rate": {**files, "train__learning_rate": 1e-5, "adapter__rank": 4, "data__workers": 2},
        "seed": {**files, "train__seed": 7},
        "share": {**files, "data__validation_share": 0.2},
        "model": {**files, "model__path": "/m"},
        "own files": {"data__files": ["/d/a.jsonl"], "data__validation_files": ["/d/held.jsonl"]},
        "own files, other data": {"data__files": ["/d/b.jsonl"], "data__validation_files": ["/d/held.jsonl"]},
    }.items():
        with_train(name, **changes)
    held_out = {run.state.name: run.held_out for run in overview()}
    assert held_out["first"] == held_out["rate"] != ""
    assert held_out["own files"] == held_out["own files, other data"] != ""
    assert len(set(held_out.values())) == 5


def test_runs_say_what_they_learn_by(burnish_home):
    with_train("replies")
    with_train("pairs", preference__objective="dpo")
    assert {run.state.name: run.objective for run in overview()} == {"replies": "sft", "pairs": "dpo"}


def test_runs_carry_their_notes_and_the_names_of_their_data(burnish_home):
    paths = with_train("noted", data__files=["/somewhere/support.jsonl", "/else/more.jsonl"])
    write_notes(paths, ["keep"], "the good one")
    (run,) = overview()
    assert (run.data, run.notes.tags, run.notes.text) == ("support.jsonl, more.jsonl", ("keep",), "the good one")
    paths.notes.write_text('{"v": 1, "text": "half', encoding="utf-8")
    assert [(run.folder, run.notes.text) for run in overview()] == [(str(paths.root), "")]


def test_runs_carry_the_count_of_their_votes(burnish_home):
    paths = with_train("voted")
    add_vote(paths, "x", ["base", "tuned"], "tuned")
    assert [run.votes.text for run in overview()] == ["tuned 1, base 0"]
    assert compared_run(paths).votes == "tuned 1, base 0"
    paths.votes.write_text("{", encoding="utf-8")
    assert [run.votes.text for run in overview()] == [""], "damaged votes are no reason not to list a run"
    assert compared_run(paths).votes == ""


def test_a_waiting_run_says_which_run_has_its_device(burnish_home):
    holder, behind, free = (create_run(Recipe(name=name)) for name in ("holder", "behind", "free"))
    lease.acquire("cuda-0", holder)
    lease.enqueue(behind, "cuda-0")
    lease.enqueue(free, "cuda-1")
    waits = {run.state.name: run.waits_for for run in overview()}
    assert waits == {"holder": "", "behind": str(holder.root), "free": ""}
