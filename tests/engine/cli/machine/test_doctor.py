"""The doctor's command for torchrun is pasted as it is printed, and trains."""

import os
import subprocess
import sys

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.events import StepDone
from burnish_engine.runs.store import list_runs, read_recipe, read_state

from support.machines.remote_jobs import UNWATCHED
from support.runs.tiny_runs import of_kind, tiny_recipe


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="torch for Windows has no torchrun of several processes")
def test_the_printed_command_trains_on_two_ranks(tmp_path, capsys, monkeypatch):
    """The recipe names GPUs of other numbers than the ranks have, as on a machine that uses its last two."""
    recipe = tiny_recipe(tmp_path, rows=24, extra=UNWATCHED, accumulation=2, max_steps=2)
    devices = DevicesSection(kind="cpu", threads=1, gpus=[2, 3], strategy="data_parallel")
    file = tmp_path / "two ranks.toml"
    file.write_text(dump_recipe(recipe.model_copy(update={"devices": devices})), encoding="utf-8")
    main(["doctor", str(file)])
    line = next(line for line in capsys.readouterr().out.splitlines() if "torch.distributed.run" in line)
    command = line.partition("torchrun ")[2].strip()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.DONE, done.stderr[-2000:]
    paths = list_runs()[0].paths
    assert read_state(paths).status == "finished"
    assert len(of_kind(paths, StepDone)) == 2
    assert read_recipe(paths).devices.gpus == [0, 1]
