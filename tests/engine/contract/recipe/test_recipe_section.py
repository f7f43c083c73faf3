"""The declarations of all settings: short help, words for values that exist, conditions that can be met."""

from typing import Literal, get_args, get_origin

import pytest

from burnish_engine.contract.recipe.recipe import Recipe, sections, setting_of
from burnish_engine.contract.recipe.recipe_data import COLUMN_MEANINGS
from burnish_engine.contract.recipe.recipe_section import SettingInfo, setting_info

LONGEST_HELP = 300
"""Letters of three lines."""
DECLARED = {
    f"{section}.{name}": field for section, model in sections().items() for name, field in model.model_fields.items()
}


def values_of(annotation):
    """The values that a setting may have; empty: too many to name."""
    kinds = [annotation] if get_origin(annotation) in (Literal, list) else [annotation, *get_args(annotation)]
    return {value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)}


@pytest.mark.parametrize("key", DECLARED)
def test_a_declaration_is_short_and_about_what_exists(key):
    field, info, section = DECLARED[key], setting_info(DECLARED[key]), key.partition(".")[0]
    assert len(field.description) <= LONGEST_HELP
    assert all(len(note) <= LONGEST_HELP for note in info.note.values())
    known = values_of(field.annotation)
    assert set(info.choices) <= known
    assert {value for value in info.note if isinstance(value, str)} <= known or not known
    assert bool(info.more) == bool(info.less)
    for condition in info.used_if:
        other = DECLARED[condition.key_in(section)]
        possible = values_of(other.annotation)
        assert set(map(str, condition.values)) <= set(map(str, possible)) or not possible
        assert condition.key_in(section) != key


def test_a_setting_that_no_recipe_has_says_nothing():
    assert setting_of("train.zzz") == setting_of("zzz.epochs") == SettingInfo()
    assert setting_of("name").label
    assert setting_of("train").label


def test_a_unit_reaches_the_schema_for_editors_and_words_do_not():
    schema = Recipe.model_json_schema()["$defs"]["AdapterSection"]["properties"]["rank"]
    assert schema["unit"] == "dimensions"
    assert "label" not in schema


def test_the_guide_has_what_helps_are_too_short_for(assets):
    data, engine, preferences = (
        (assets / "guide" / f"{name}.md").read_text(encoding="utf-8") for name in ("data", "engine", "your-data")
    )
    listed = data.partition("A column may mean")[2].partition(".\n")[0]
    assert set(listed.replace("`", " ").replace(",", " ").split()) - {"or"} == set(COLUMN_MEANINGS)
    engine, preferences = (
        (assets / "guide" / f"{name}.md").read_text(encoding="utf-8") for name in ("engine", "your-data")
    )
    for key, text in (("train.optimizer", engine), ("preference.loss_type", preferences)):
        assert all(f"`{value}`" in text for value in values_of(DECLARED[key].annotation))
