"""A sweep with its runs: rows in the order of the values, the best of them, and proposals for values."""

import pytest
from app.page_scenes.several_scenes import CELLS, a_sweep

from burnish_app.comparison.swept import (
    offered_settings,
    ranked,
    row_title,
    sweep_rows,
    unfinished,
    usual_values,
)
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.sweep import parse_values, sweepable_keys


@pytest.fixture
def swept(tmp_path):
    return a_sweep(tmp_path, ended=4)


@pytest.mark.full
def test_rows_follow_the_sweep_and_leave_out_what_was_deleted(swept):
    sweep, runs = swept
    rows = sweep_rows(sweep, list(reversed(runs)))
    assert [row.run.folder for row in rows] == [run.folder for run in runs]
    assert rows[0].values == ("0.0001", "8")
    assert len(sweep_rows(sweep, runs[1:])) == len(CELLS) - 1
    assert row_title(sweep, rows[0]) == "learning rate 0.0001, rank 8"


def test_the_best_comes_first_and_runs_without_a_loss_last(swept):
    sweep, runs = swept
    rows = ranked(sweep_rows(sweep, runs))
    losses = [row.run.state.evaluation_loss for row in rows]
    assert losses[-1] is None
    known = [loss for loss in losses if loss is not None]
    assert known == sorted(known)
    assert rows[0].delta == 0.0


@pytest.mark.full
def test_what_goes_on_or_waits_is_unfinished(swept):
    sweep, runs = swept
    assert [row.run.standing for row in unfinished(sweep_rows(sweep, runs))] == ["running", "queued"]


def test_every_setting_is_offered_once_the_usual_first():
    offered = offered_settings()
    assert offered[0] == "train.learning_rate"
    assert sorted(offered) == sorted(sweepable_keys())


def test_proposed_values_are_values_of_the_setting_around_its_own():
    recipe = Recipe()
    for key in offered_settings():
        text = usual_values(recipe, key)
        assert text == "" or parse_values(key, text), key
    assert parse_values("adapter.rank", usual_values(recipe, "adapter.rank"))[1] == recipe.adapter.rank
