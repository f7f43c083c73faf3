"""`burnish submit` says what is wrong before any machine is asked."""

import os
from pathlib import Path

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.advice import PlaceOffers
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe

from support.machines.fake_ssh import FakeSsh
from support.runs.tiny_runs import tiny_recipe


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipe")
    file = folder / "recipe.toml"
    file.write_text(dump_recipe(tiny_recipe(folder, rows=8)), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--to", "nowhere"], "ssh:HOST"),
        (["--to", "ssh:-oProxyCommand=x"], "host"),
        (["--to", "here"], "--to"),
        ([], "--to"),
        (["--to", "slurm", "--timeout", "2x"], "--timeout"),
        (["--to", "slurm", "--timeout", "0h"], "--timeout"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(recipe, arguments, named, capsys):
    assert main(["submit", recipe, *arguments]) == ExitCode.USAGE
    assert named in capsys.readouterr().err
    assert not runs_dir().exists() or not list(runs_dir().iterdir())


@pytest.mark.parametrize("option", [[], ["--dry-run"]])
def test_a_machine_that_is_not_there_leaves_no_run_behind(recipe, option, monkeypatch, capsys):
    monkeypatch.setenv("BURNISH_SSH_COMMAND", "/nowhere/ssh")
    assert main(["submit", recipe, "--to", "ssh:office", *option]) == ExitCode.ENVIRONMENT
    assert "ssh" in capsys.readouterr().err
    assert not runs_dir().exists() or not list(runs_dir().iterdir())


SMI = """#!/bin/sh
case "$*" in
  *query-gpu*) for one in 24000 20000; do echo "NVIDIA GeForce RTX 3090, 24576, $one, 8.6, 4, 16"; done ;;
  *"topo -m"*) printf '\\tGPU0\\tGPU1\\nGPU0\\tX\\tNV4\\nGPU1\\tNV4\\tX\\n' ;;
esac
"""


@pytest.fixture
def office(tmp_path, monkeypatch):
    """A host with two linked cards, by a stand-in for nvidia-smi."""
    ssh = FakeSsh(tmp_path)
    ssh.use(monkeypatch)
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI, encoding="utf-8")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def on_gpus(tmp_path):
    file = tmp_path / "gpus.toml"
    made = tiny_recipe(tmp_path, rows=8, accumulation=2).model_copy(update={"devices": DevicesSection()})
    file.write_text(dump_recipe(made), encoding="utf-8")
    return str(file)


def dry_run(recipe, capsys, *arguments):
    code = main(["submit", recipe, "--to", "ssh:office", "--dry-run", *arguments])
    return code, capsys.readouterr().out


def test_several_gpus_there_are_planned_as_the_run_would_use_them(office, on_gpus, capsys):
    code, text = dry_run(on_gpus, capsys, "--gpus", "2", "--json")
    found = PlaceOffers.model_validate_json(text)
    assert (code, len(found.offers), found.best.used_gpus) == (ExitCode.DONE, 1, 2)
    plan = found.best.plan
    assert (plan.shared.passes, plan.shared.link) == (1, "nvlink")
    assert plan.memory_free_bytes == 20000 * 2**20  # the fuller card decides
    code, text = dry_run(on_gpus, capsys, "--gpus", "2")
    assert code == ExitCode.DONE
    assert "2 of 2" in text
    assert "NVLink" in text
    assert "--gpus 2" in dry_run(on_gpus, capsys)[1]  # one of two would be idle
    alone = Path(on_gpus).read_text(encoding="utf-8").replace("accumulation = 2", "accumulation = 1")
    Path(on_gpus).write_text(alone, encoding="utf-8")
    assert "--gpus" not in dry_run(on_gpus, capsys)[1]  # a step of one pass has nothing for the other
    assert dry_run(on_gpus, capsys, "--gpus", "3")[0] == ExitCode.ENVIRONMENT


def test_a_plan_alone_has_a_form_for_programs(recipe, capsys):
    assert main(["submit", recipe, "--to", "ssh:office", "--json"]) == ExitCode.USAGE
    assert "--dry-run" in capsys.readouterr().err


def test_a_plan_of_a_recipe_for_another_place_says_whose_it_is(on_gpus, capsys):
    assert main(["plan", on_gpus, "--skip-data"]) == ExitCode.DONE
    assert "submit" not in capsys.readouterr().out
    there = Path(on_gpus).read_text(encoding="utf-8").replace('where = "here"', 'where = "ssh:office"')
    Path(on_gpus).write_text(there, encoding="utf-8")
    assert main(["plan", on_gpus, "--skip-data"]) == ExitCode.DONE
    said = capsys.readouterr()
    assert "submit" in said.out + said.err
    assert "ssh:office" in said.out + said.err
