"""Runs and recipes that an earlier version wrote (2026-11-22, before modules and classes were renamed) still work.

`tests/golden/runs` holds, for each engine, a whole run of ten steps and the same run suspended after the fourth.
"""

import json
import shutil
from pathlib import Path

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.recipe.recipe_file import parse_recipe, recipe_hash
from burnish_engine.contract.run.events import RunEnded, StepDone
from burnish_engine.runs.card import read_card
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import open_run, read_recipe, summarize
from burnish_engine.train.lifecycle import run_setup
from burnish_engine.train.lifecycle.checkpoint import find_checkpoint, read_position
from burnish_engine.train.run import run_training

from support.runs.tiny_runs import evaluations, losses

RECORDED = Path(__file__).resolve().parents[2] / "golden" / "runs"
WRITTEN_IN = "/tmp/recorded"  # the folder that the recorded recipes name
RUNS = ["fast-part", "fast-whole", "plain-part", "plain-whole"]


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A runs folder with the recorded runs; their recipes name model and data beside them."""
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    shutil.copytree(RECORDED, runs_dir())
    return runs_dir()


@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_opens_with_all_that_it_holds(recorded, name):
    paths = open_run(recorded / name)
    summary, recipe, card = summarize(paths), read_recipe(paths), read_card(paths)
    events = list(read_events(paths.events))
    lines = paths.events.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["type"] for line in lines] == [event.type for event in events]
    assert recipe.adapter.rank == 4
    assert recipe.train.engine == name.partition("-")[0]
    assert card is not None
    assert card.steps == 10
    assert summary.state.step == (10 if name.endswith("whole") else 4)
    assert summary.status == ("finished" if name.endswith("whole") else "suspended")
    assert [event.step for event in events if isinstance(event, StepDone)] == list(range(1, summary.state.step + 1))


@pytest.mark.full
@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_a_recorded_run_goes_on_to_the_losses_of_the_whole_one(recorded, engine, monkeypatch):
    part, whole = open_run(recorded / f"{engine}-part"), open_run(recorded / f"{engine}-whole")
    newest, _ = find_checkpoint(part.checkpoints)
    recorded_hash = read_position(newest).recipe_hash
    # The hash holds absolute paths, which the copy does not have; the test below compares hashes.
    monkeypatch.setattr(run_setup, "recipe_hash", lambda _: recorded_hash)
    assert run_training(part).exit_code == 0
    # Bit for bit with the versions that recorded it; other versions of torch round elsewhere.
    assert losses(part) == pytest.approx(losses(whole), rel=1e-4)
    assert evaluations(part) == pytest.approx(evaluations(whole), rel=1e-4)
    ended = [event for event in read_events(part.events) if isinstance(event, RunEnded)]
    assert [event.outcome for event in ended] == ["suspended", "finished"]


def test_the_command_line_shows_and_compares_recorded_runs(recorded, capsys):
    for command in ("list", "show fast-whole", "compare fast-whole plain-whole"):
        assert main(["runs", *command.split()]) in {None, 0}
        shown = capsys.readouterr().out
        assert "fast-whole" in shown


def test_a_recorded_recipe_with_every_key_means_the_same(recorded):
    recipe = parse_recipe((recorded / "fast-whole" / "recipe.toml").read_text(encoding="utf-8"))
    written = json.loads((recorded / "recipe-values.json").read_text(encoding="utf-8"))
    read = recipe.model_dump(mode="json")
    for section, values in written["values"].items():
        assert (read[section] | values if isinstance(values, dict) else values) == read[section], section
    assert recipe_hash(recipe) == written["hash"]
