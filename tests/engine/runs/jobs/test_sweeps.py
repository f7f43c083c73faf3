"""Sweeps: queued as ordinary runs, all or none, and listed as long as one of them is there."""

import os

import pytest

from burnish_engine.contract.errors import NoSpaceError, UsageError
from burnish_engine.contract.facts.sweeps import SweptRun
from burnish_engine.contract.paths import sweeps_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.sweep import SweepSetting, expand
from burnish_engine.runs.jobs import lease, sweeps, trash
from burnish_engine.runs.store import list_runs, open_run, read_recipe, read_state

SETTINGS = [SweepSetting(key="adapter.rank", values=[4, 8])]


@pytest.fixture
def started(monkeypatch):
    """Which runs would be started; no process is."""
    made = []
    monkeypatch.setattr(lease, "start_detached", lambda arguments, *_: made.append(arguments) or os.getpid())
    return made


def cells(*, files=("/data/a.jsonl",)):
    return expand(Recipe(name="base", data=DataSection(files=list(files))), SETTINGS)


@pytest.mark.parametrize("name", ["x" * 101, "two\nlines", " \t", "\x1b[31mred", "\n\n"])
def test_a_name_that_is_no_short_line_is_refused(name):
    with pytest.raises(UsageError):
        sweeps.sweep_name(name, "recipe")


def test_a_sweep_without_a_name_takes_the_default_on_a_short_line():
    assert sweeps.sweep_name("ranks", "recipe") == "ranks"
    assert sweeps.sweep_name("", "my\nrecipe") == "my recipe"
    assert sweeps.sweep_name("", "x" * 300) == "x" * 100


def test_a_name_with_separators_stays_in_the_folder_of_sweeps(started):
    made = sweeps.queue_sweep("../../x", SETTINGS, cells(), ["cpu", "cpu"], anyway=True)
    assert [file.parent for file in sweeps_dir().rglob("*x.json")] == [sweeps_dir()]
    assert sweeps.list_sweeps() == [made]


def test_all_runs_wait_in_order_and_the_first_begins(started):
    made = sweeps.queue_sweep("ranks", SETTINGS, cells(), ["cpu", "cpu"], anyway=True)
    assert [read_recipe(open_run(run.folder)).adapter.rank for run in made.runs] == [4, 8]
    assert [arguments[2] for arguments in started] == [made.runs[0].folder]
    assert [(str(entry.run), entry.anyway) for entry in lease.queue()] == [(made.runs[1].folder, True)]
    (listed,) = sweeps.list_sweeps()
    assert listed == made


def test_each_run_waits_for_its_own_device(started):
    made = sweeps.queue_sweep("ranks", SETTINGS, cells(), ["cuda-0", "cuda-1"], anyway=False)
    assert [read_state(open_run(run.folder)).device for run in made.runs] == ["cuda-0", "cuda-1"]
    assert [arguments[2] for arguments in started] == [run.folder for run in made.runs]
    assert not any("--anyway" in arguments for arguments in started)


def test_a_sweep_is_listed_with_the_runs_that_are_there(started):
    made = sweeps.queue_sweep("ranks", SETTINGS, cells(), ["cpu", "cpu"], anyway=False)
    trash.discard(open_run(made.runs[1].folder))
    assert [run.values for run in sweeps.list_sweeps()[0].runs] == [[4]]
    trash.discard(open_run(made.runs[0].folder))
    assert sweeps.list_sweeps() == []
    trash.restore(made.runs[1].folder)
    assert [run.values for run in sweeps.list_sweeps()[0].runs] == [[8]]


def test_a_sweep_file_that_is_damaged_or_names_no_possible_folder_hides_no_other(started):
    made = sweeps.queue_sweep("ranks", SETTINGS, cells(), ["cpu", "cpu"], anyway=False)
    nowhere = made.model_copy(update={"runs": [SweptRun(folder="x" * 5000, values=[1]), *made.runs[:1]]})
    (sweeps.sweeps_dir() / "far.json").write_text(nowhere.model_dump_json(), encoding="utf-8")
    (sweeps.sweeps_dir() / "half.json").write_text('{"v": 1', encoding="utf-8")
    assert sorted(len(sweep.runs) for sweep in sweeps.list_sweeps()) == [1, 2]


def test_where_one_run_cannot_be_made_none_is_left(started, monkeypatch):
    made = []
    create = sweeps.create_run

    def second_fails(recipe):
        if made:
            raise NoSpaceError("The disk is full.")
        made.append(create(recipe))
        return made[-1]

    monkeypatch.setattr(sweeps, "create_run", second_fails)
    with pytest.raises(NoSpaceError):
        sweeps.queue_sweep("ranks", SETTINGS, cells(), ["cpu", "cpu"], anyway=False)
    assert list_runs() == []
    assert lease.queue() == []
    assert sweeps.list_sweeps() == []
    assert started == []


def test_without_data_there_is_no_sweep(started):
    with pytest.raises(UsageError, match="no training files"):
        sweeps.queue_sweep("ranks", SETTINGS, cells(files=()), ["cpu", "cpu"], anyway=False)
    assert list_runs() == []
