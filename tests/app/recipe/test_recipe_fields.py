import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish_app.recipe.recipe_fields import (
    folded_sections,
    kept_elsewhere,
    main_fields,
    problem_of_row,
    problems_by_field,
    recipe_fields,
)
from burnish_app.recipe.suggested import same_elsewhere, with_suggestion
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.contract.recipe.recipe import Recipe, sections
from burnish_engine.contract.recipe.recipe_file import recipe_problems

FIELDS = {field.key: field for field in recipe_fields()}


def test_every_field_of_the_schema_is_shown_once_or_belongs_to_another_page():
    of_schema = {f"{name}.{key}" for name, section in sections().items() for key in section.model_fields}
    of_schema |= {key for key in Recipe.model_fields if key not in sections()}
    shown = [field.key for field in main_fields()] + [f.key for _, fields in folded_sections() for f in fields]
    assert len(shown) == len(set(shown))
    assert set(shown) | kept_elsewhere() == of_schema


def test_seven_settings_come_first_between_the_name_and_the_place():
    first = [field.key for field in main_fields()]
    assert first == [
        "name", "train.epochs", "train.learning_rate", "adapter.rank", "model.quantize",
        "data.max_length", "train.micro_batch_tokens", "task.metric", "devices.where",
    ]  # fmt: skip


@pytest.mark.parametrize("key", FIELDS)
def test_defaults_survive_the_form(key):
    field = FIELDS[key]
    value = field.read(Recipe().model_dump())
    if field.kind not in ("switch", "choice"):
        assert field.from_text(field.as_text(value)) == value
    assert "In the recipe" in field.help


def test_the_help_of_the_layers_knows_every_level():
    words = set(re.findall(r"[a-z]+", FIELDS["memory.layers"].help.partition("smallest:")[2]))
    assert words >= set(LEVEL_NAMES)


@pytest.mark.full
@given(st.floats(min_value=1e-6, max_value=1.0, exclude_min=True))
def test_any_learning_rate_survives_the_form(rate):
    field = FIELDS["train.learning_rate"]
    assert field.from_text(field.as_text(rate)) == rate


def test_what_is_no_number_stays_as_typed_for_the_schema_to_refuse():
    assert FIELDS["train.epochs"].from_text("two") == "two"
    assert FIELDS["devices.gpus"].from_text("0, x") == [0, "x"]
    assert FIELDS["evaluation.prompts"].from_text("Hello, you\n\n Why? ") == ["Hello, you", "Why?"]
    assert FIELDS["data.system_prompt"].from_text("Be brief.\nBe kind.") == "Be brief.\nBe kind."


def recipe(**sections_):
    return Recipe.model_validate(sections_)


def test_a_first_suggestion_is_taken_but_not_over_what_was_changed():
    current = recipe(model={"path": "m"}, data={"files": ["a.jsonl"]}, train={"epochs": 9.0})
    suggestion = recipe(model={"path": "other"}, train={"epochs": 3.0, "learning_rate": 1e-4})
    merged = with_suggestion(current, None, suggestion)
    assert (merged.train.epochs, merged.train.learning_rate) == (9.0, 1e-4)
    assert (merged.model.path, merged.data.files) == ("m", ["a.jsonl"])


def test_a_second_suggestion_replaces_the_first_one_s_values():
    first, second = recipe(train={"epochs": 3.0, "seed": 1}), recipe(train={"epochs": 1.0, "seed": 2})
    current = recipe(train={"epochs": 3.0, "seed": 7})
    merged = with_suggestion(current, first, second)
    assert (merged.train.epochs, merged.train.seed) == (1.0, 7)
    assert with_suggestion(current, first, second, take_all=True).train.seed == 2


def test_values_that_do_not_go_together_give_way():
    current = recipe(data={"max_length": 2048}, train={"micro_batch_tokens": 2048})
    suggestion = recipe(data={"max_length": 512}, train={"micro_batch_tokens": 1024})
    assert with_suggestion(current, None, suggestion).data.max_length == 512


def test_the_target_stays_the_person_s_and_its_file_type_the_suggestion_s():
    current = recipe(target={"kind": "phone", "ram_gib": 6.0})
    merged = with_suggestion(current, None, recipe(target={"kind": "laptop", "ram_gib": 16.0, "quant": "IQ4_NL"}))
    assert (merged.target.kind, merged.target.ram_gib, merged.target.quant) == ("phone", 6.0, "IQ4_NL")


def test_no_two_fields_have_the_same_name_and_every_default_can_be_shown():
    labels = [field.label for field in FIELDS.values()]
    assert len(labels) == len(set(labels))
    values = Recipe().model_dump()
    for field in FIELDS.values():
        if field.kind == "choice":
            assert str(field.read(values)) in field.choices, field.key


def test_a_suggestion_never_changes_what_is_held_out_by_itself():
    current = recipe(data={"files": ["a.jsonl"], "validation_share": 0.05})
    suggestion = recipe(data={"validation_share": 0.1}, train={"epochs": 3.0})
    assert with_suggestion(current, None, suggestion).data.validation_share == 0.05
    assert with_suggestion(current, None, suggestion, take_all=True).data.validation_share == 0.1


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"adapter": {"rank": 999}}, "adapter.rank"),
        ({"evaluation": {"every": 0, "patience": 3}}, "evaluation.patience"),
        ({"preference": {"objective": "kto"}, "task": {"metric": "choice"}}, "task.metric"),
        ({"data": {"max_length": 4096}}, "data.max_length"),
        ({"preference": {"objective": "dpo"}, "data": {"max_length": 1024}, "train": {"micro_batch_tokens": 1024}}, ""),
    ],
)
def test_a_problem_stands_at_the_field_that_it_begins_with(values, field):
    assert list(problems_by_field(recipe_problems(values))) == [field]


@pytest.mark.parametrize(
    ("section", "name", "value", "told"),
    [
        ("train", "warmup_share", 2.0, "at most 0.9"),
        ("adapter", "rank", 0, "at least 1"),
        ("adapter", "rank", 1.5, "whole number"),
        ("train", "learning_rate", "fast", "a number"),
        ("devices", "where", "mars", "ssh:HOST"),
    ],
)
def test_a_row_says_in_plain_words_what_its_value_has_to_be(section, name, value, told):
    key = f"{section}.{name}"
    text = problem_of_row(key, recipe_problems({section: {name: value}})[key])
    assert told in text
    assert key not in text
    assert "input should" not in text.casefold()


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"train": {"epochs": 2.0}, "name": "mine"}, True), ({"data": {"files": ["/b.jsonl"]}}, False),
        ({"model": {"path": "/other"}}, False),
    ],
)  # fmt: skip
def test_recipes_differ_elsewhere_where_another_page_s_setting_does(changes, same):
    assert same_elsewhere(Recipe(), Recipe.model_validate(changes)) == same
