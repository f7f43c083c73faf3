"""What the tests of `burnish serve` share: a tiny recipe, a trained run, a running server."""

import shutil

import pytest

from burnish_engine.contract.paths import user_data_dir
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.runs.store import create_run, open_run

from support.app.serve import Server
from support.runs.tiny_runs import tiny_recipe

SAY = [{"role": "user", "content": "My lamp number 3 is broken?"}]


@pytest.fixture
def server(burnish_home):
    """A real `burnish serve` in this test's home."""
    with Server() as running:
        yield running


@pytest.fixture(scope="module")
def kept_server(tmp_path_factory):
    """A real `burnish serve` for all tests of a module, and its home. Its workers stay warm, as with a window."""
    home = tmp_path_factory.mktemp("kept home")
    with Server(BURNISH_HOME=str(home)) as running:
        yield running, home


@pytest.fixture
def warm_server(kept_server, monkeypatch):
    """The module's server, in whose home the test is."""
    running, home = kept_server
    monkeypatch.setenv("BURNISH_HOME", str(home))
    return running


@pytest.fixture
def no_runs(warm_server):
    """The module's server, in whose home there are no runs yet."""
    shutil.rmtree(user_data_dir() / "runs", ignore_errors=True)
    return warm_server


@pytest.fixture(scope="session")
def recipe(tmp_path_factory):
    """A recipe over a tiny model and dataset, as TOML."""
    return dump_recipe(tiny_recipe(tmp_path_factory.mktemp("serve data"), max_steps=6, epochs=10.0))


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """A finished run whose rows fill the blocks of every quantization; tests work on a copy of it."""
    from burnish_engine.train.run import run_training

    from support.models.tiny import make_llama

    folder = tmp_path_factory.mktemp("serve run")
    make_llama(folder / "base", hidden_size=256, intermediate_size=512)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BURNISH_HOME", str(folder / "home"))
        paths = create_run(tiny_recipe(folder, max_steps=6, epochs=10.0), folder / "home" / "runs" / "tuned")
        run_training(paths)
    return paths.root


@pytest.fixture
def run(request, finished_run):
    """The run in this test's home; where that is the module's server's, it is laid there anew."""
    if "warm_server" in request.fixturenames:
        request.getfixturevalue("warm_server")
    runs = user_data_dir() / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    shutil.copytree(finished_run, runs / "tuned")
    return open_run("tuned")
