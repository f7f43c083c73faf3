"""Rewards as lines to edit: what becomes of what is typed."""

from typing import get_args

import pytest

from burnish_app.recipe.presets import PRESETS, PresetBasis, with_preset
from burnish_app.recipe.rewards import KINDS, RewardLine, can_add, reward_lines, reward_name, with_another, with_rewards
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_reinforce import MOST_REWARDS, RewardKind, RewardSection


def recipe(*rewards):
    return Recipe.model_validate(
        {"preference": {"objective": "grpo"}, "task": {"metric": "number"}, "reward": list(rewards)}
    )


ALL = (
    {"kind": "task", "name": "right"}, {"kind": "distance", "span": 2.5, "weight": 0.5}, {"kind": "keys"},
    {"kind": "format", "pattern": "^[0-9]+$"}, {"kind": "tags", "tags": ["think", "answer"]},
    {"kind": "length", "tokens": 64, "weight": -0.2}, {"kind": "script"},
    {"kind": "judge", "model": "/x/judge.gguf", "question": "Is it kind?"},
    {"kind": "code", "check": "output", "seconds": 2.0},
    {"kind": "python", "file": "/x/reward.py", "function": "judge"},
)  # fmt: skip


def test_every_kind_has_words_and_a_setting_of_its_table():
    assert KINDS.keys() == set(get_args(RewardKind))
    assert all(not text.setting or text.setting in RewardSection.model_fields for text in KINDS.values())


def test_lines_that_were_not_edited_give_the_same_recipe():
    made = recipe(*ALL)
    assert with_rewards(made, reward_lines(made)) == (made, {})


def test_without_a_table_the_score_of_the_task_is_the_line():
    assert reward_lines(recipe()) == (RewardLine("task"),)


@pytest.mark.parametrize(
    "line",
    [RewardLine("format"), RewardLine("length", "many"), RewardLine("task", weight="x"), RewardLine("task", weight="0"),
     RewardLine("distance", "-1"), RewardLine("format", "(")],
)  # fmt: skip
def test_what_is_wrong_is_said_of_its_line(line):
    made, problems = with_rewards(recipe(), [RewardLine("script"), line])
    assert made is None
    assert problems.keys() == {1}
    assert problems[1]


def test_another_kind_begins_with_an_empty_setting_and_keeps_the_weight():
    line = RewardLine("length", "64", "0.2", {"name": "short"})
    assert line.of_kind("tags") == RewardLine("tags", "", "0.2")
    assert line.of_kind("length") == line


def test_one_can_be_added_until_there_are_most_and_all_have_names_of_their_own():
    lines = reward_lines(recipe())
    while can_add(lines):
        lines = with_another(lines)
        lines = [line if line.setting or line.kind != "format" else RewardLine("format", "a") for line in lines]
        lines = [RewardLine("script") if line.kind in ("tags", "python", "judge") else line for line in lines]
    made, problems = with_rewards(recipe(), lines)
    assert not problems
    assert made is not None
    assert len({one.title for one in made.rewards}) == MOST_REWARDS == len(made.reward)


def test_a_reward_is_called_by_its_own_name_or_its_kind():
    assert reward_name("mine") == "mine"
    assert reward_name("distance") != "distance"
    assert reward_name("length 2") == "Short reply 2"
    assert reward_name("my own 2") == "my own 2"


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_of_a_recipe_with_rewards_is_valid(preset):
    basis = PresetBasis(recipe(), 200, has_held_out=True)
    made = with_preset(recipe(), preset, basis)
    assert Recipe.model_validate(made.model_dump()) == made
