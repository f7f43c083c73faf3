"""Which fields play a part, given the others."""

from typing import get_args

import pytest

from burnish_app.recipe.recipe_fields import (
    ELSEWHERE,
    cleaning_fields,
    folded_sections,
    recipe_fields,
)
from burnish_app.recipe.recipe_relevance import (
    fitting_choices,
    is_relevant,
    not_applicable_text,
    note_text,
    reason_text,
)
from burnish_app.wording.recipe_text import CHOICES, LABELS, NOTES
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import recipe_problems
from burnish_engine.contract.recipe.recipe_preference import PREFERENCE_USES
from burnish_engine.contract.recipe.recipe_train import OPTIMIZER_USES, Optimizer


def values(**sections):
    return Recipe.model_validate(sections).model_dump()


@pytest.mark.parametrize("optimizer", get_args(Optimizer))
def test_an_optimizer_shows_only_what_it_has_a_use_for(optimizer):
    given = values(train={"optimizer": optimizer})
    shown = {name for name in ("momentum", "beta1", "beta2", "epsilon") if is_relevant(f"train.{name}", given)}
    assert shown == set(OPTIMIZER_USES[optimizer])


@pytest.mark.parametrize("objective", PREFERENCE_USES)
def test_the_losses_that_fit_an_objective_are_those_that_the_recipe_accepts_with_it(objective):
    (field,) = (field for field in recipe_fields() if field.key == "preference.loss_type")
    given = values(preference={"objective": objective})
    fitting = fitting_choices(field, given)
    accepted = []
    for loss in field.choices:
        field.write(given, loss)
        accepted += [] if recipe_problems(given) else [loss]
    assert sorted(fitting) == sorted(accepted)


@pytest.mark.parametrize(
    ("key", "idle", "used"),
    [
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
    assert 'made for train.schedule = "constant"' in both
    assert "beta2 does not apply" in note_text("train.optimizer", values(train={"optimizer": "lion", "beta2": 0.9}))
    for optimizer, usual in (("muon", "0.95"), ("lion", "0.99")):
        assert usual in note_text("train.momentum", values(train={"optimizer": optimizer}))
        assert usual in next(field.help for field in recipe_fields() if field.key == "train.momentum")
    assert note_text("name", values()) == note_text("train.epochs", values()) == ""
    broken = values()
    broken["train"]["epochs"] = "two"
    assert note_text("train.optimizer", broken) == ""


def test_words_are_only_for_what_the_schema_has():
    fields = {field.key: field for field in [*recipe_fields(), *cleaning_fields()]}
    assert set(LABELS) <= {*fields, *ELSEWHERE}
    for key, words in CHOICES.items():
        assert set(words) <= set(fields[key].choices), key
    for key, value in NOTES:
        assert value in fields[key].choices, key


def test_every_field_of_the_form_is_called_by_plain_words():
    unnamed = [field.key for field in [*recipe_fields(), *cleaning_fields()] if field.key not in LABELS]
    one_word = {"adapter.rank", "adapter.alpha", "adapter.dropout", "train.epochs"}
    assert set(unnamed) <= one_word


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


def test_reasons_and_notes_follow_where_the_run_stops():
    never = {"checkpoint_every": 130, "checkpoint_minutes": 0.0}
    short, whole = values(train={"max_steps": 30, **never}), values()
    assert "earlier" in reason_text("train.epochs", short, whole, "seen 3 times")
    assert reason_text("train.epochs", whole, whole, "seen 3 times") == "seen 3 times"
    assert "30 steps" in note_text("train.checkpoint_every", short)
    assert not note_text("train.checkpoint_every", values(train={"max_steps": 300, **never}))
    assert not note_text("train.checkpoint_every", values(train={"max_steps": 30, "checkpoint_every": 130}))
