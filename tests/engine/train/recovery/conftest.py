"""Runs that meet a lack of memory, and those that they are compared with."""

import pytest

from burnish_engine.contract.errors import ExitCode
from burnish_engine.runs.store import create_run
from burnish_engine.train.lifecycle import run_setup
from burnish_engine.train.run import run_training

from support.runs.recovered import STEPS
from support.runs.tiny_runs import WATCHED, tiny_recipe


@pytest.fixture
def unplanned(monkeypatch):
    """Nothing is predicted, so that only the number of steps decides whether there is a dry run."""
    monkeypatch.setattr(run_setup, "check_fit", lambda *_args, **_settings: None)


@pytest.fixture(scope="package")
def made(tmp_path_factory):
    """Make a run: (engine, keyword arguments of tiny_recipe) -> its paths. They share one model and its data."""
    folder = tmp_path_factory.mktemp("recovery")
    count = iter(range(999))

    def make(engine="fast", *, layers="auto", extra="", **settings):
        settings = {"max_steps": STEPS, "accumulation": 2, **settings}
        memory = f'\n[memory]\nlayers = "{layers}"\n' if layers != "auto" else ""
        recipe = tiny_recipe(folder, engine=f'"{engine}"', extra=extra + memory, **settings)
        return create_run(recipe, folder / f"run {next(count)}")

    return make


@pytest.fixture(scope="package")
def smaller(made):
    """The run of an engine that began with the smaller plan: its paths."""
    done = {}

    def get(engine):
        if engine not in done:
            begun = {"layers": "narrow"} if engine == "fast" else {"recompute": True}
            done[engine] = made(engine, extra=WATCHED, **begun)
            assert run_training(done[engine]).exit_code == ExitCode.DONE
        return done[engine]

    return get
