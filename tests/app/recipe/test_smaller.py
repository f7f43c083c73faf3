"""A recipe that ran out of memory, made smaller: the same tokens to a step, in smaller passes."""

import pytest

from burnish_app.recipe.smaller import smaller_recipe
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe, parse_recipe


def recipe(text):
    return parse_recipe(text)


def test_passes_are_halved_and_doubled_in_number():
    before = recipe("[data]\nmax_length = 1024\n[train]\nmicro_batch_tokens = 4096\naccumulation = 2\n")
    after = smaller_recipe(before)
    assert (after.train.micro_batch_tokens, after.train.accumulation) == (2048, 4)
    assert after.data == before.data
    assert smaller_recipe(after).train.micro_batch_tokens == 1024


@pytest.mark.parametrize(
    "text",
    [
        "[data]\nmax_length = 2048\n[train]\nmicro_batch_tokens = 2048\n",
        '[data]\nmax_length = 512\n[preference]\nobjective = "dpo"\n[train]\nmicro_batch_tokens = 1024\n',
        '[memory]\nlayers = "products"\nbudget_gib = 7.0\n[data]\nmax_length = 512\n',
        "[data]\nmax_length = 64\n[train]\nmicro_batch_tokens = 100\n",
    ],
)
def test_the_smaller_recipe_is_a_recipe(text):
    smaller = smaller_recipe(recipe(text))
    assert Recipe.model_validate(smaller.model_dump()) == smaller
    assert parse_recipe(dump_recipe(smaller)) == smaller
    assert not smaller.memory.pins
    assert smaller.memory.budget_gib == recipe(text).memory.budget_gib


def test_there_is_a_smallest_one():
    small = recipe("[data]\nmax_length = 64\n[train]\nmicro_batch_tokens = 128\n")
    assert smaller_recipe(small).train.micro_batch_tokens == 128
