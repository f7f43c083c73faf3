"""Where layers keep weights and activations, in a line."""

import pytest

from burnish_app.wording.layers_text import layers_text
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.contract.run.events import LayersPlaced, RunStarted
from burnish_engine.contract.run.fold import RunState


def text_of(activations, weights):
    return layers_text(RunState(layers=LayersPlaced(activations=activations, weights=weights)))


def test_layers_are_counted_by_place_and_by_what_they_do_with_activations():
    plan = "offloaded:10,narrow:17,products:1"
    line, meant = text_of(plan, "card:20,host:8")
    weights, activations = line.split("·")
    assert [word for word in weights.split() if word.isdigit()] == ["20", "8"]
    assert [word for word in activations.split() if word.isdigit()] == ["10", "17", "1"]
    assert [part.split(":")[0] for part in meant.splitlines()[:3]] == ["products", "offloaded", "narrow"]
    assert plan in meant


def test_layers_by_turns_are_counted_together_and_weights_are_on_the_card_unless_said():
    line, _ = text_of("offloaded:1,narrow:1,offloaded:1,narrow:1", "card")
    weights, activations = line.split("·")
    assert "4" in weights
    assert [word for word in activations.split() if word.isdigit()] == ["2", "2"]


@pytest.mark.parametrize("level", LEVEL_NAMES)
def test_every_level_has_words(level):
    assert all(text_of(f"{level}:3", "host:3"))


@pytest.mark.parametrize("plan", [("folded:3", "card"), ("narrow:3", "moon")])
def test_of_a_plan_of_a_later_version_nothing_is_said(plan):
    assert text_of(*plan) == ("", "")


def test_without_a_plan_and_on_the_cpu_nothing_is_said():
    assert layers_text(RunState()) == ("", "")
    here = RunStarted(run="a", pid=1, process_created=1, device="CPU", precision="fp32", engine="fast", total_steps=9)
    placed = LayersPlaced(activations="narrow:3", weights="card")
    assert layers_text(RunState(layers=placed, starts=(here,))) == ("", "")
