"""Engines over the tiny recipe."""

import pytest

from support.runs.made_engines import Made, changed
from support.runs.tiny_runs import tiny_recipe


@pytest.fixture
def make(tmp_path):
    """Make engines over the tiny recipe: (settings of the recipe, sections, options of `Made`) -> Made."""
    made = []

    def make(settings=None, sections=None, **options):
        recipe = changed(tiny_recipe(tmp_path, **settings or {}), **sections or {})
        made.append(Made(recipe, **options))
        return made[-1]

    yield make
    for one in made:
        one.engine.close()
