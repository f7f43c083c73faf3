"""Findings of an inspection are used for recipes of the same model and files, until a file changes."""

import os

import pytest

from burnish_engine.channel.job import Job
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import DevicesSection, ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.serve.data_requests import EstimateRequest, OffersRequest
from burnish_engine.remote import places
from burnish_engine.remote.backends.backend import DroppedError, Offer
from burnish_engine.remote.backends.machines import service_machine
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


class Service:
    """A service with two kinds of machines; `words` break the connection instead."""

    def __init__(self, words=""):
        self.words = words

    def offers(self):
        if self.words:
            raise DroppedError(self.words)
        kinds = (("small", "RTX 3060", 1, 0.5), ("two", "RTX 3090", 2, 1.0))
        return [
            Offer(name, service_machine(gpu, count), usd_per_hour=usd, gpus=count) for name, gpu, count, usd in kinds
        ]


def asked(monkeypatch, service, **devices):
    monkeypatch.setattr(places, "open_backend", lambda _place: service)
    recipe = Recipe(model=ModelSection(path="Qwen/Qwen3-0.6B"), devices=DevicesSection(where="hf", **devices))
    return PlanService(None, None).offers(OffersRequest(id="1", recipe=dump_recipe(recipe)), Job("1", print)).offers


def test_the_machines_of_a_place_come_with_plans_and_prices(monkeypatch):
    found = asked(monkeypatch, Service())
    assert [(one.name, one.used_gpus, one.usd_per_hour) for one in found.offers] == [("small", 1, 0.5), ("two", 1, 1.0)]
    assert found.where == "hf"
    assert all(one.plan.fits and one.plan.shared is None for one in found.offers)
    assert found.offers[1].machine.edges  # the recipe is planned on these facts while it is edited
    both = asked(monkeypatch, Service(), strategy="data_parallel", gpus=[0, 1])
    assert [(one.name, one.plan.shared.gpus) for one in both.offers] == [("two", 2)]


def test_a_place_that_cannot_be_reached_is_named(monkeypatch):
    with pytest.raises(SetupError, match=r"hf.*busy"):
        asked(monkeypatch, Service("busy"))


def test_a_service_numbers_its_gpus_from_0(monkeypatch):
    plans = PlanService(None, None)
    devices = DevicesSection(where="slurm", strategy="data_parallel", gpus=[2, 3])
    recipe = Recipe(model=ModelSection(path="Qwen/Qwen3-0.6B"), devices=devices)
    plan = plans.plan(recipe, Job("1", print), service_machine("RTX 3090", 2))
    assert (plan.fits, plan.shared.gpus) == (True, 2)
