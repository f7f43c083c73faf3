"""Findings of an inspection are used for recipes of the same model and files, until a file changes."""

import os

from burnish_engine.channel.job import Job
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.serve.data_requests import EstimateRequest
from burnish_engine.service.plans import PlanService


def test_facts_are_found_for_the_same_model_and_files_alone(tmp_path, monkeypatch):
    file, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    file.write_text("{}", encoding="utf-8")
    facts = DatasetFacts(
        files=[str(file)], format="jsonl", shape="messages", columns=[], rows=3, train_rows=3, validation_rows=0
    )
    plans = PlanService(None, None)

    def recipe(model="/m", **data):
        return Recipe(model=ModelSection(path=model), data=DataSection(**{"files": [str(file)], **data}))

    plans.remember(recipe(), facts)
    assert plans.dataset_of(recipe(system_prompt="Be brief.")) == facts
    assert plans.dataset_of(recipe(files=[str(other)])) is None
    assert plans.dataset_of(recipe(validation_files=[str(other)])) is None
    assert plans.dataset_of(recipe("/another")) is None
    assert plans.dataset_of(recipe("/another"), any_model=True) == facts
    monkeypatch.setattr(plans, "plan", lambda *_: RunPlan.model_construct())
    new = recipe("/new", validation_files=[])
    plans.estimate(EstimateRequest.model_construct(id="1", recipe=dump_recipe(new), dataset=facts), Job("1", print))
    assert plans.dataset_of(new) == facts  # which came along with the request
    os.utime(file, ns=(1, 1))
    assert plans.dataset_of(recipe()) is None
