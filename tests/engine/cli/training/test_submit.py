"""`burnish submit` says what is wrong before any machine is asked."""

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.paths import runs_dir
from burnish_engine.contract.recipe.recipe_file import dump_recipe

from support.runs import tiny_recipe


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
