"""Run folders: made, found, listed, refused."""

import json
import math
import re
import time

import pytest

from burnish_engine.contract.errors import ExitCode, NoSpaceError, UsageError
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.contract.run.events import PlanMade, RunEnded
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.process import own_identity
from burnish_engine.runs.recorder import Recorder, predicted_end
from burnish_engine.runs.store import create_run, list_runs, open_run, read_recipe, read_state, summarize, write_state


def test_a_new_run_holds_its_recipe_and_state(tmp_path):
    recipe = Recipe(name="my run")
    paths = create_run(recipe, tmp_path / "läuft hier")
    assert read_recipe(paths) == recipe
    assert read_state(paths).status == "created"
    assert open_run(tmp_path / "läuft hier") == paths


def test_runs_without_a_folder_get_distinct_names():
    first, second = create_run(Recipe(name="../x")), create_run(Recipe(name="../x"))
    assert first.root != second.root
    assert first.root.parent == second.root.parent
    assert {summary.state.run for summary in list_runs()} == {first.root.name, second.root.name}
    assert open_run(first.root.name) == first
    assert open_run("last").root in (first.root, second.root)


def test_a_file_in_the_place_of_burnishs_folder_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "file"))
    with pytest.raises(NoSpaceError, match=r"file.*could not be written"):
        create_run(Recipe())


def test_a_used_folder_is_never_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="already holds something") as caught:
        create_run(Recipe(), tmp_path)
    assert "resume" not in caught.value.remedy
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_run_in_a_used_folder_can_be_gone_on_with(tmp_path):
    root = create_run(Recipe(), tmp_path / "my run").root
    with pytest.raises(UsageError, match="already holds another run") as caught:
        create_run(Recipe(), root)
    assert f"`burnish runs resume {typed(root)}`" in caught.value.remedy


def test_the_last_of_no_runs_is_looked_for_where_runs_are(tmp_path):
    create_run(Recipe(), tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="no runs in") as caught:
        open_run("last")
    assert str(runs_dir()) in caught.value.what
    assert "by its folder" in caught.value.remedy


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"v": 99, "run": "x"}', "version 99"),
        ('{"run": "x"}', "version None"),
        ("[]", "version None"),
        ('{"v": 1', "damaged"),
        ('{"v": 1, "run": "x", "status": "flying"}', "damaged.*: status: .*not 'flying'"),
        ('{"v": ' + "1" * 5000 + "}", "damaged"),
        ("[" * 100_000, "damaged"),
        ("\udc80", "damaged"),
    ],
)
def test_run_folders_of_other_versions_and_damaged_ones_are_refused(tmp_path, content, words):
    paths = create_run(Recipe(), tmp_path / "r")
    paths.state.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=words) as caught:
        open_run(paths.root)
    assert caught.value.exit_code is ExitCode.USAGE


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="not a run folder"):
        open_run(tmp_path)
    with pytest.raises(UsageError, match="no run 'nope'"):
        open_run("nope")
    with pytest.raises(UsageError, match="no run 'xxx"):
        open_run("x" * 5000)


def test_a_process_that_is_gone_makes_the_run_interrupted(tmp_path):
    paths = create_run(Recipe(), tmp_path / "r")
    pid, created = own_identity()
    running = read_state(paths).model_copy(
        update={"status": "running", "pid": pid, "process_created": created, "heartbeat": 4e9}
    )
    write_state(paths, running)
    assert summarize(paths).status == "running"
    write_state(paths, running.model_copy(update={"process_created": created - 1000}))  # the pid was reused
    assert summarize(paths).status == "interrupted"


def test_state_is_readable_json(tmp_path):
    paths = create_run(Recipe(name="ü"), tmp_path / "r")
    assert json.loads(paths.state.read_text(encoding="utf-8"))["name"] == "ü"


def test_the_state_says_when_the_run_is_predicted_to_end(tmp_path):
    paths = create_run(Recipe(), tmp_path / "run")
    recorder = Recorder(paths)
    assert read_state(paths).ends == 0
    plan = {"memory_bytes": 1, "memory_free_bytes": 2, "tokens_per_s": 1, "fits": True}
    for seconds, expected in ((600.0, 600.0), (0.0, 0.0)):
        recorder.emit(PlanMade(seconds=seconds, **plan))
        begun = time.time() if expected else 0.0
        assert read_state(paths).ends - begun == pytest.approx(expected, abs=60)
    recorder.update(ends=predicted_end(9.0))
    assert read_state(paths).ends > 0
    recorder.end(RunEnded(outcome="finished", exit_code=0, step=9))
    assert read_state(paths).ends == 0
    assert predicted_end(math.nan) == predicted_end(math.inf) == predicted_end(-1.0) == 0


def test_the_state_says_how_a_run_ended(tmp_path):
    paths = create_run(Recipe(), tmp_path / "run")
    recorder = Recorder(paths)
    recorder.phase("training")
    recorder.update(step=3, loss=2.5)
    recorder.end(RunEnded(outcome="failed", exit_code=13, step=4, message="It diverged."))
    state = read_state(paths)
    assert (state.status, state.exit_code, state.step, state.message) == ("failed", 13, 4, "It diverged.")
    assert (state.phase, state.loss, state.pid) == ("", 2.5, None)
    Recorder(paths).end(RunEnded(outcome="finished", exit_code=0, step=9))
    assert [event.seq for event in read_events(paths.events)] == [0, 1, 2]
    assert (read_state(paths).status, read_state(paths).message) == ("finished", "")


def test_names_count_up_and_a_run_without_one_is_called_by_its_model_and_time():
    made = [create_run(Recipe(name=name)) for name in ("first", "first", "first 2", "", "")]
    names = [read_state(paths).name for paths in made]
    assert names[:3] == ["first", "first 2", "first 3"]
    assert all(re.fullmatch(r"embedded, \d{4}-\d\d-\d\d \d\d:\d\d( 2)?", name) for name in names[3:])
    assert len(set(names)) == len(names)
    assert load_recipe(made[1].recipe).name == "first", "the recipe stays as it was given"
