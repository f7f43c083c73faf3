"""Plans of every family of mixtures show their experts in the window."""

import pytest
from app.facts import machine_facts as machines
from app.facts import page_facts as facts
from PySide6.QtWidgets import QLabel

from burnish_app.recipe.offers import offered_settings
from burnish_app.widgets.recipe.fit_card import FitCard
from burnish_engine.advise.facts.catalog import catalog
from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.contract.recipe.recipe import Recipe

from support.machines.advice import machine

MIXTURES = {model.spec.family: model.spec for model in catalog() if model.spec.num_experts}
CARD = machine(("NVIDIA GeForce RTX 4090", 24, (8, 9)))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("family", MIXTURES)
def test_a_plan_shows_experts_in_memory_reach_and_rank(qtbot, theme, family):
    spec = MIXTURES[family]
    recipe = Recipe.model_validate({"model": {"quantize": "nf4"}})
    card = FitCard()
    qtbot.addWidget(card)
    card.show_plan(plan_run(recipe, spec, CARD))
    shown = " ".join(label.text() for label in card.findChildren(QLabel))
    assert "experts 100 %" in shown
    assert "router 0 %" in shown
    assert f"{spec.experts_per_token} experts" in shown  # that the rank is shared out over
    bar = {line.partition(":")[0] for line in card.bar.accessibleDescription().splitlines()}
    assert {"Experts", "Expert adapters"} <= bar
    model = facts.model_facts(spec=spec)
    reason = offered_settings(recipe.model_dump(), model, None, machines.machine(), None)["adapter.expert_rank"]
    assert {str(spec.experts_per_token), str(spec.num_experts)} <= set(reason.split())
