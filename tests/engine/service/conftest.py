"""What the tests of `burnish serve` share: a tiny recipe, a trained run, a running server."""

import shutil

import pytest

from burnish_engine.contract.recipe_file import dump_recipe
from burnish_engine.runs.store import create_run, open_run

from support.runs import tiny_recipe
from support.serve import Server

SAY = [{"role": "user", "content": "My lamp number 3 is broken?"}]


@pytest.fixture
def server(burnish_home):
    """A real `burnish serve` in this test's home."""
    with Server() as running:
        yield running


@pytest.fixture(scope="session")
def recipe(tmp_path_factory):
    """A recipe over a tiny model and dataset, as TOML."""
    return dump_recipe(tiny_recipe(tmp_path_factory.mktemp("serve data"), max_steps=6, epochs=10.0))


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """A finished run whose rows fill the blocks of every quantization; tests work on a copy of it."""
    from burnish_engine.train.run import run_training

    from support.tiny import make_llama

    folder = tmp_path_factory.mktemp("serve run")
    make_llama(folder / "base", hidden_size=256, intermediate_size=512)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BURNISH_HOME", str(folder / "home"))
        paths = create_run(tiny_recipe(folder, max_steps=6, epochs=10.0), folder / "home" / "runs" / "tuned")
        run_training(paths)
    return paths.root


@pytest.fixture
def run(finished_run, burnish_home):
    """The run in this test's home."""
    shutil.copytree(finished_run, burnish_home / "runs" / "tuned")
    return open_run("tuned")
