"""Tiny models shared by the training tests."""

import pytest

from burnish_engine.runs.store import create_run

from support.models.tiny import make_llama
from support.runs.forks import ForkServer
from support.runs.tiny_runs import tiny_recipe


@pytest.fixture(scope="module")
def fork_server():
    """A process with its libraries loaded, which starts runs and ranks by forking (POSIX)."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory):
    """Folder of a tiny Llama with tokenizer."""
    return make_llama(tmp_path_factory.mktemp("tiny") / "base")


@pytest.fixture(scope="module")
def adapted_llama(tmp_path_factory):
    """Folders of a tiny Llama, and of adapters for it without and with dropout."""
    from support.models import tiny_models

    folder = tmp_path_factory.mktemp("llama")
    base = tiny_models.make("llama", folder / "base")
    plain, dropping = (tiny_models.lora(base, folder / name, rank=5) for name in ("plain", "dropping"))
    config = dropping / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_dropout": 0.0', '"lora_dropout": 0.2'))
    return base, plain, dropping


@pytest.fixture
def make_run(tmp_path):
    """Make a run: (changes of the adapter section, keyword arguments of tiny_recipe) -> its paths."""
    count = iter(range(99))

    def make(adapter=None, **settings):
        recipe = tiny_recipe(tmp_path, **settings)
        recipe = recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update=adapter or {})})
        return create_run(recipe, tmp_path / f"run {next(count)} ü")

    return make
