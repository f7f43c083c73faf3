"""The list of runs as windows show it."""

import time

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.runs.compare.overview import overview
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
