"""Sentences on values that were not suggested: one for each direction of a change, with the right figures."""

import pytest
from app.facts import data_facts as facts

from burnish_app.recipe.recipe_fields import main_fields
from burnish_app.recipe.recipe_relevance import note_text
from burnish_app.recipe.value_reasons import share_above, value_reason
from burnish_engine.contract.recipe.recipe import Recipe


def values(**sections):
    return Recipe.model_validate(sections).model_dump()


SUGGESTED = values(train={"epochs": 3.0, "learning_rate": 1e-4, "micro_batch_tokens": 4096}, data={"max_length": 768})
OTHERS = {
    "train.epochs": ({"train": {"epochs": 5.0}}, {"train": {"epochs": 1.0}}),
    "train.max_steps": ({"train": {"max_steps": 30}},),
    "train.learning_rate": ({"train": {"learning_rate": 3e-4}}, {"train": {"learning_rate": 5e-5}}),
    "adapter.rank": ({"adapter": {"rank": 64}}, {"adapter": {"rank": 4}}),
    "model.quantize": ({"model": {"quantize": "nf4"}},),
    "data.max_length": ({"data": {"max_length": 256}},),
    "train.micro_batch_tokens": ({"train": {"micro_batch_tokens": 8192}}, {"train": {"micro_batch_tokens": 2048}}),
    "devices.where": ({"devices": {"where": "ssh:office"}},),
}


@pytest.mark.parametrize("key", OTHERS)
def test_every_direction_of_a_change_has_words_of_its_own(key):
    said = [value_reason(key, values(**other), SUGGESTED, facts.dataset()) for other in OTHERS[key]]
    assert all(said)
    assert len({*said}) == len(said)
    assert value_reason(key, SUGGESTED, SUGGESTED, facts.dataset()) not in said


def test_a_step_has_the_tokens_of_all_its_passes():
    other = values(train={"micro_batch_tokens": 8192, "accumulation": 4})
    assert "32,768" in value_reason("train.micro_batch_tokens", other, SUGGESTED, None)


def test_every_number_that_comes_first_is_explained():
    first = {field.key for field in main_fields()}
    assert first - set(OTHERS) == {"name", "task.metric"}  # its choices have notes


def test_what_a_rate_and_a_length_mean_follows_the_value():
    rate = value_reason("train.learning_rate", values(train={"learning_rate": 4e-4}), SUGGESTED, None)
    assert rate.startswith("4 times")
    lengths = facts.dataset().lengths.model_copy(update={"histogram": [(100, 75), (200, 25)], "longest": 200})
    data = facts.dataset().model_copy(update={"lengths": lengths})
    cut = value_reason("data.max_length", values(data={"max_length": 100, "overlong": "drop"}), SUGGESTED, data)
    assert "25 %" in cut
    assert "left out" in cut
    assert "200" in value_reason("data.max_length", values(data={"max_length": 512}), SUGGESTED, data)
    assert value_reason("data.max_length", values(data={"max_length": 512}), SUGGESTED, None) == ""


def test_a_suggested_value_without_a_reason_of_the_engine_s_has_one():
    assert value_reason("model.quantize", values(), values(), None)
    assert note_text("train.max_steps", values())
    assert not note_text("train.max_steps", values(train={"max_steps": 5}))


def test_what_is_no_number_is_not_explained():
    broken = values()
    broken["train"]["epochs"] = "two"
    assert value_reason("train.epochs", broken, SUGGESTED, None) == ""


@pytest.mark.parametrize(
    ("tokens", "share"), [(0, 1.0), (50, 0.875), (100, 0.75), (150, 0.375), (200, 0.0), (999, 0.0)]
)
def test_the_share_of_longer_rows_is_taken_from_the_histogram(tokens, share):
    lengths = facts.dataset().lengths.model_copy(update={"histogram": [(100, 25), (200, 75)], "longest": 200})
    assert share_above(lengths, tokens) == pytest.approx(share)
