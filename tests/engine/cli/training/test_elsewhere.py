"""Facts about a run's data, before another machine trains it."""

import pytest

from burnish_engine.cli.training.elsewhere import known_data
from burnish_engine.contract.recipe.recipe import ModelSection

from support.runs.tiny_runs import tiny_recipe


@pytest.mark.parametrize("changes", [{"model": "somebody/not-fetched"}, {"files": ["hf://datasets/somebody/rows"]}])
def test_nothing_is_known_where_it_would_take_a_download(tmp_path, changes):
    recipe = tiny_recipe(tmp_path, rows=8)
    if "model" in changes:
        recipe = recipe.model_copy(update={"model": ModelSection(path=changes["model"])})
    else:
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"files": changes["files"]})})
    assert known_data(recipe) is None


def test_data_for_a_model_that_is_here_is_inspected(tmp_path):
    found = known_data(tiny_recipe(tmp_path, rows=8))
    assert found is not None
    assert found.rows > 0
