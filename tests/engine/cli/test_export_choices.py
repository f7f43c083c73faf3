"""What is said with `burnish export` goes before the run's recipe; what is not said stays as that has it."""

import pytest

from burnish_engine.cli.export import _with_options
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe

RECIPE = Recipe.model_validate({"export": {"importance": False, "merge_onto": "dequantized", "size_limit_mb": 90.0}})


def test_what_is_said_goes_first():
    said = _with_options(RECIPE, importance=True, merge_onto="base", size_limit=0.0).export
    assert (said.importance, said.merge_onto, said.size_limit_mb) == (True, "base", 0.0)
    assert said.quants == RECIPE.export.quants
    assert _with_options(RECIPE, importance=None, merge_onto="", size_limit=None) == RECIPE


def test_what_cannot_be_merged_onto_is_refused():
    with pytest.raises(UsageError, match="--merge-onto is 'nothing'") as refused:
        _with_options(RECIPE, importance=None, merge_onto="nothing", size_limit=None)
    assert "base or dequantized" in refused.value.remedy
