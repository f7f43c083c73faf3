"""Sweeps and duels through the server: planned, started, followed and stopped; comparisons, notes and the trash."""

from pathlib import Path

import pytest

from burnish_engine.contract.recipe.recipe_file import dump_recipe, parse_recipe
from burnish_engine.runs.store import open_run, read_recipe

from support.app.serve import wait_for

RANKS = [{"key": "adapter.rank", "values": [2, 4]}]


def sides(recipe, **train):
    parsed = parse_recipe(recipe)
    other = parsed.model_copy(update={"adapter": parsed.adapter.model_copy(update={"rank": 8})})
    if train:
        other = other.model_copy(update={"train": parsed.train.model_copy(update=train)})
    return [{"name": "rank 4", "recipe": recipe}, {"name": "rank 8", "recipe": dump_recipe(other)}]


def ended(server, folders):
    by_folder = {run.folder: run.standing for run in server.result("runs").runs}
    return [by_folder[folder] for folder in folders]


def test_a_sweep_is_said_first_then_made_as_ordinary_runs_which_are_compared_noted_deleted_and_restored(
    no_runs, recipe
):
    server = no_runs
    plan = server.result("plan_sweep", recipe=recipe, settings=RANKS).sweep_plan
    assert [run.values for run in plan.runs] == [[2], [4]]
    assert all(run.fits and run.memory_bytes > 0 for run in plan.runs)
    assert server.result("runs").runs == []
    assert "cannot vary" in server.failure("start_sweep", recipe=recipe, settings=[{"key": "x", "values": [1]}]).what

    (sweep,) = server.result("start_sweep", recipe=recipe, settings=RANKS, name="ranks").sweeps
    folders = [run.folder for run in sweep.runs]
    assert [read_recipe(open_run(folder)).adapter.rank for folder in folders] == [2, 4]
    wait_for(lambda: ended(server, folders) == ["finished", "finished"])
    assert server.result("sweeps").sweeps == [sweep]

    comparison = server.result("compare", runs=folders).comparison
    assert {row.key: row.values for row in comparison.rows if row.group == "recipe"} == {"adapter.rank": [2, 4]}
    assert all(outcome.held_out_loss for outcome in comparison.outcomes)
    first, second = (run for run in server.result("runs").runs)
    assert first.held_out == second.held_out != ""

    server.result("annotate", run=folders[0], tags=["small"], text="as a start")
    noted = next(run for run in server.result("runs").runs if run.folder == folders[0])
    assert (noted.notes.tags, noted.notes.text) == (("small",), "as a start")

    assert server.result("delete", run=folders[0]).run == folders[0]
    assert [run.folder for run in server.result("runs").runs] == folders[1:]
    assert server.result("restore", run=folders[0]).run == folders[0]
    assert {run.folder for run in server.result("runs").runs} == set(folders)
    server.result("delete", run=folders[0])
    server.result("purge", run=folders[0])
    assert "not in the trash" in server.failure("restore", run=folders[0]).what


@pytest.mark.full
def test_a_sweep_that_cannot_fit_makes_no_run(no_runs, recipe):
    parsed = parse_recipe(recipe)
    bounded = dump_recipe(parsed.model_copy(update={"memory": parsed.memory.model_copy(update={"budget_gib": 4.0})}))
    huge = [{"key": "train.micro_batch_tokens", "values": [256, 4_000_000]}]
    refused = no_runs.failure("start_sweep", recipe=bounded, settings=huge)
    assert refused.exit_code == 10
    assert "1 of 2" in refused.what
    assert no_runs.result("runs").runs == []
    assert no_runs.result("sweeps").sweeps == []


@pytest.mark.full
def test_more_sides_than_a_duel_has_are_refused(warm_server, recipe):
    many = [{"name": "alike", "recipe": recipe}] * 9
    assert "2 to 8 recipes" in warm_server.failure("plan_duel", sides=many, factors=[1.0]).what


@pytest.mark.long
def test_a_duel_is_planned_started_stopped_and_taken_to_its_verdict(warm_server, recipe):
    server = warm_server
    (plan,) = server.result("plan_duel", sides=sides(recipe), factors=[1.0]).duels
    assert (plan.status, plan.runs, [side.name for side in plan.sides]) == ("planned", (6, 6), ["rank 4", "rank 8"])
    assert [(one.key, one.kind) for one in plan.differences] == [("adapter.rank", "compared")]
    assert plan.seconds[0] > 0
    assert "cannot be compared fairly" in server.failure("plan_duel", sides=sides(recipe, epochs=2.0)).what

    folder = server.result("start_duel", sides=sides(recipe), factors=[1.0]).run
    duel = lambda: server.result("duels", folder=folder).duels[0]  # noqa: E731
    assert duel().status == "running"
    assert "running already" in server.failure("resume_duel", folder=folder).what
    wait_for(lambda: len(duel().made) >= 1)
    server.result("stop_duel", folder=folder)
    wait_for(lambda: duel().status == "stopped")
    before = len(duel().made)
    assert 1 <= before < 6
    assert duel().current is not None
    assert "not running" in server.failure("stop_duel", folder=folder).what

    assert server.result("resume_duel", folder=folder).run == folder
    wait_for(lambda: duel().status == "finished")
    found = duel()
    assert len(found.made) == 6
    loss = next(one for one in found.verdicts if one.measure == "held_out_loss")
    assert loss.low <= loss.difference <= loss.high
    assert len(loss.pairs) == 3
    assert sum(loss.pairs) / 3 == pytest.approx(loss.difference)
    assert found.headline
    assert all(one.verdict != "differs" for one in found.checks)
    assert Path(found.report).is_file()
    assert folder in {one.folder for one in server.result("duels").duels}
    assert "is finished" in server.failure("resume_duel", folder=folder).what
