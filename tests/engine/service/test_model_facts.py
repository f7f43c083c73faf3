"""What the window asks before it shows a model as usable: damaged weights and a wrong tokenizer are told at once."""

import json

import pytest

from burnish_engine.advise.facts.catalog import catalog
from burnish_engine.advise.plan.plan_recipe import plan_recipe
from burnish_engine.advise.suggest.suggest import chosen_model
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.service.model_facts import model_facts

from support.models.tiny import make_llama


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def another_tokenizer(folder):
    path = folder / "tokenizer.json"
    raw = json.loads(path.read_text())
    raw["added_tokens"].append({**raw["added_tokens"][0], "id": 365, "content": "<more>", "special": False})
    path.write_text(json.dumps(raw))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("damage", "words"), [(cut, "is damaged"), (another_tokenizer, "ids up to 365")])
def test_no_green_tick_for_a_model_that_cannot_be_trained(tmp_path, damage, words):
    folder = make_llama(tmp_path / "model")
    recipe = Recipe(model=ModelSection(path=str(folder)), data=DataSection(files=[]))
    assert model_facts(str(folder)).spec is not None
    assert plan_recipe(recipe).memory_bytes > 0
    damage(folder)
    suggested = lambda: chosen_model(str(folder), catalog(), ())  # noqa: E731
    for ask in (lambda: model_facts(str(folder)), lambda: plan_recipe(recipe), suggested):
        with pytest.raises(SetupError, match=words):
            ask()
