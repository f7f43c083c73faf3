"""`burnish sweep`, and `burnish runs` with a trash, notes and comparisons of more than two."""

import json

from burnish_engine.cli.main import main
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.store import create_run, list_runs

from support.runs.tiny_runs import tiny_recipe


def said(capsys, *arguments, code=0):
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    printed = capsys.readouterr()
    return " ".join((printed.out + printed.err).split())


def test_a_sweep_says_its_runs_and_time_first_and_makes_none_in_a_dry_run(tmp_path, capsys):
    file = tmp_path / "a.toml"
    file.write_text(dump_recipe(tiny_recipe(tmp_path, max_steps=5)), encoding="utf-8")
    text = said(
        capsys, "sweep", file, "--try", "adapter.rank=2,4", "--try", "train.learning_rate=1e-3,2e-3", "--dry-run"
    )
    assert "4 runs" in text
    assert "adapter.rank" in text
    assert list_runs() == []
    plan = json.loads(said(capsys, "sweep", file, "--try", "adapter.rank=2,4", "--dry-run", "--json"))
    assert [run["values"] for run in plan["runs"]] == [[2], [4]]
    assert "cannot vary" in said(capsys, "sweep", file, "--try", "data.files=a,b", code=2)
    many = ",".join(str(seed) for seed in range(100))
    assert "100 runs" in said(capsys, "sweep", file, "--try", f"train.seed={many}", code=2)
    assert "names no values" in said(capsys, "sweep", file, "--try", "adapter.rank", code=2)
    assert list_runs() == []


def test_a_sweep_prints_the_command_that_compares_its_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(lease, "start_waiting", list)
    file = tmp_path / "a.toml"
    file.write_text(dump_recipe(tiny_recipe(tmp_path, max_steps=5)), encoding="utf-8")
    command = said(capsys, "sweep", file, "--try", "adapter.rank=2,4").partition("burnish runs compare ")[2].split()
    assert sorted(command) == sorted(run.paths.root.name for run in list_runs())
    assert "adapter.rank" in said(capsys, "runs", "compare", *command)
    alone = said(capsys, "sweep", file, "--try", "adapter.rank=2")
    assert "Queued: 1 run." in alone
    assert "compare" not in alone


def test_a_deleted_run_is_restored_by_its_name_unless_it_went_for_good(capsys):
    create_run(Recipe(), runs_dir() / "one")
    assert "burnish runs restore one" in said(capsys, "runs", "delete", "one", "--yes")
    assert list_runs() == []
    said(capsys, "runs", "restore", "one")
    assert [run.paths.root.name for run in list_runs()] == ["one"]
    said(capsys, "runs", "delete", "one", "--yes", "--for-good")
    assert "not in the trash" in said(capsys, "runs", "restore", "one", code=2)


def test_a_deleted_run_comes_back_by_whatever_named_it(tmp_path, capsys, monkeypatch):
    create_run(Recipe(), runs_dir() / "one")
    create_run(Recipe(), tmp_path / "two")
    monkeypatch.chdir(tmp_path)
    for typed in ("one/", "two", runs_dir() / "one", "../runs/one"):
        assert "Deleted" in said(capsys, "runs", "delete", typed, "--yes")
        assert "Restored" in said(capsys, "runs", "restore", typed)


def test_notes_are_replaced_one_by_one(capsys):
    create_run(Recipe(), runs_dir() / "one")
    said(capsys, "runs", "note", "one", "--tags", "a, b")
    text = said(capsys, "runs", "note", "one", "--text", "mine")
    assert "a, b" in text
    assert "mine" in text


def test_three_runs_stand_beside_each_other(capsys):
    for name, rank in (("one", 2), ("two", 4), ("three", 8)):
        create_run(Recipe.model_validate({"adapter": {"rank": rank}}), runs_dir() / name)
    text = said(capsys, "runs", "compare", "one", "two", "three")
    assert "adapter.rank 2 4 8" in text
    several = [f"run{number}" for number in range(9)]
    for rank, name in enumerate(several, start=3):
        create_run(Recipe.model_validate({"adapter": {"rank": rank}}), runs_dir() / name)
    text = said(capsys, "runs", "compare", *several)
    assert "adapter.rank 3 4" in text
    assert text.split().index("11") > text.split().index("run8")
    found = json.loads(said(capsys, "runs", "compare", "one", "two", "three", "--json"))
    assert [outcome["run"] for outcome in found["outcomes"]] == ["one", "two", "three"]
    assert "two runs or more" in said(capsys, "runs", "compare", "one", code=2)
