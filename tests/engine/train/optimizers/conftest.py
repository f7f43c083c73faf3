"""Engines over the tiny recipe with any optimizer."""

import pytest
from engine.train.optimizers.optimizer_run import Run

from burnish_engine.data.prepare import prepare
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

from support.runs.tiny_runs import tiny_recipe


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The tiny recipe, its model and tokenizer, and its data, all of which every engine here shares."""
    recipe = tiny_recipe(tmp_path_factory.mktemp("tiny"))
    source = open_model(recipe.model.path)
    tokenizer = load_tokenizer(source)
    return recipe, source, tokenizer, prepare(recipe, tokenizer)


@pytest.fixture
def run(tiny):
    """Make engines: (optimizer, engine, options of `Run`) -> Run."""
    made = []

    def run(name, engine="fast", **options):
        made.append(Run(tiny, name, engine, **options))
        assert made[-1].engine.facts.name == engine
        return made[-1]

    yield run
    for one in made:
        one.engine.close()
