"""Which fields play a part, given the others."""

from typing import get_args

import pytest

from burnish_app.recipe.recipe_fields import cleaning_fields, folded_sections, recipe_fields
from burnish_app.recipe.recipe_relevance import (
    fitting_choices,
    is_relevant,
    not_applicable_text,
    note_text,
    reason_text,
    without_effect_text,
)
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import recipe_problems
from burnish_engine.contract.recipe.recipe_preference import Objective


def values(**sections):
    return Recipe.model_validate(sections).model_dump()


@pytest.mark.parametrize("objective", get_args(Objective))
def test_the_losses_that_fit_an_objective_are_those_that_the_recipe_accepts_with_it(objective):
    (field,) = (field for field in recipe_fields() if field.key == "preference.loss_type")
    given = values(preference={"objective": objective}, task={"metric": "json"})
    fitting = fitting_choices(field, given)
    accepted = []
    for loss in field.choices:
        field.write(given, loss)
        accepted += [] if recipe_problems(given) else [loss]
    assert sorted(fitting) == sorted(accepted)


@pytest.mark.parametrize(
    ("key", "idle", "used"),
    [
        ("train.beta1", {"train": {"optimizer": "adafactor"}}, {"train": {"optimizer": "lion"}}),
        ("train.beta2", {"train": {"optimizer": "lion"}}, {"train": {"optimizer": "muon"}}),
        ("train.momentum", {}, {"train": {"optimizer": "muon"}}),
        ("preference.loss_type", {"preference": {"objective": "orpo"}}, {"preference": {"objective": "kto"}}),
        ("train.decay_share", {}, {"train": {"schedule": "wsd"}}),
        ("train.final_share", {"train": {"schedule": "constant"}}, {}),
        ("train.lora_plus_ratio", {"adapter": {"method": "full"}}, {}),
        ("train.products", {"adapter": {"method": "dora"}}, {"adapter": {"method": "rslora"}}),
        ("train.products", {"train": {"engine": "plain"}}, {}),
        ("export.merge_onto", {"model": {"quantize": "fp8"}}, {"model": {"quantize": "nf4"}}),
        ("memory.layers", {"train": {"engine": "plain"}}, {"train": {"engine": "fast"}}),
        ("memory.weights", {"adapter": {"method": "full"}}, {"model": {"quantize": "nf4"}}),
        ("memory.weights", {"devices": {"kind": "cpu"}}, {}),
        ("masking.probability", {}, {"masking": {"kind": "skip_update"}}),
        ("masking.temperature", {"masking": {"kind": "skip_update"}}, {"masking": {"kind": "magma"}}),
        ("evaluation.min_improvement", {}, {"evaluation": {"every": 5, "patience": 2}}),
        ("task.max_rows", {}, {"task": {"metric": "json"}}),
        ("task.json_schema", {"task": {"metric": "number"}}, {"task": {"metric": "json"}}),
        ("task.choices", {"task": {"metric": "json"}}, {"task": {"metric": "choice"}}),
        ("devices.timeout_hours", {}, {"devices": {"where": "ssh:office"}}),
        ("guard.window", {"guard": {"action": "off"}}, {}),
        ("export.merge_onto", {}, {"model": {"quantize": "nf4"}}),
        ("export.importance_tokens", {"export": {"importance": False}}, {}),
    ],
)
def test_fields_come_and_go_with_others(key, idle, used):
    assert not is_relevant(key, values(**idle))
    assert is_relevant(key, values(**used))


def test_what_was_changed_stays_in_sight():
    assert is_relevant("train.beta1", values(train={"optimizer": "adafactor", "beta1": 0.8}))
    assert is_relevant("masking.rate", values(masking={"rate": 2.0}))
    assert is_relevant("memory.weights", values(memory={"weights": "host"}, train={"engine": "plain"}))


def test_notes_come_with_the_choice():
    assert "lower" in note_text("train.optimizer", values(train={"optimizer": "lion"}))
    both = note_text("train.optimizer", values(train={"optimizer": "schedule_free", "beta1": 0.9}))
    assert "“Learning rate schedule: constant”" in both
    idle = note_text("train.beta2", values(train={"optimizer": "lion", "beta2": 0.9}))
    assert "“Optimizer” is: Lion" in idle
    for usual in ("0.95", "0.99"):
        assert usual in note_text("train.momentum", values(train={"optimizer": "muon"}))
        assert usual in next(field.help for field in recipe_fields() if field.key == "train.momentum")
    for objective, is_high in (("dpo", True), ("kto", True), ("sft", False)):
        high = values(preference={"objective": objective}, train={"learning_rate": 2e-4})
        assert ("High" in note_text("train.learning_rate", high)) == is_high
    assert note_text("name", values()) == note_text("train.epochs", values()) == ""
    broken = values()
    broken["train"]["epochs"] = "two"
    assert note_text("train.optimizer", broken) == ""


def test_every_field_that_is_shown_is_called_by_plain_words():
    assert not [field.key for field in [*recipe_fields(), *cleaning_fields()] if not field.info.label]


def test_the_optimizer_comes_first_among_its_settings():
    fields = dict(folded_sections())["Optimizer"]
    assert fields[0].key == "train.optimizer"
    assert {"train.weight_decay", "train.beta1"} <= {field.key for field in fields}


def test_the_share_held_out_is_idle_beside_a_file_of_its_own():
    key = "data.validation_share"
    assert not_applicable_text(key, values(data={"files": ["a"], "validation_files": ["b"]}))
    assert not not_applicable_text(key, values(data={"files": ["a"]}))


def test_what_an_adapter_to_go_on_from_decides_is_idle():
    further = values(adapter={"start": "/runs/first"})
    assert not_applicable_text("adapter.rank", further)
    assert not_applicable_text("adapter.targets", further)
    assert not not_applicable_text("train.learning_rate", further)
    assert not not_applicable_text("adapter.rank", values())


def test_a_field_says_which_other_one_leaves_it_without_effect():
    merge = without_effect_text("export.merge_onto", values())
    assert "“Weights while training” is: as they are" in merge
    assert "is: off" in without_effect_text("evaluation.min_improvement", values())
    assert "is: off" in without_effect_text("export.importance_tokens", values(export={"importance": False}))
    assert without_effect_text("export.merge_onto", values(model={"quantize": "nf4"})) == ""


def test_reasons_and_notes_follow_where_the_run_stops():
    never = {"checkpoint_every": 130, "checkpoint_minutes": 0.0}
    short, whole = values(train={"max_steps": 30, **never}), values()
    assert "earlier" in reason_text("train.epochs", short, whole, "seen 3 times")
    assert reason_text("train.epochs", whole, whole, "seen 3 times") == "seen 3 times"
    assert "30 steps" in note_text("train.checkpoint_every", short)
    assert "130 steps" in note_text("train.checkpoint_every", values(train={"max_steps": 130, **never}))
    assert not note_text("train.checkpoint_every", values(train={"max_steps": 131, **never}))
    assert not note_text("train.checkpoint_every", values(train={"max_steps": 30, "checkpoint_every": 130}))
