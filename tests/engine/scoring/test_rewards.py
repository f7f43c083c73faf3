"""Rewards of replies: what each kind pays for, and what it does not."""

import pytest

from burnish_engine.contract.recipe.recipe_reinforce import RewardSection
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.scoring.rewards import TriedReply, make_reward


def score(kind, text, wanted="", *, ended=True, tokens=5, task=None, **settings):
    section = RewardSection(kind=kind, **settings)
    reward = make_reward(section, task or TaskSection(metric="number"), [wanted])
    return reward.score(TriedReply("asked", text, wanted, ended, tokens))


@pytest.mark.parametrize(
    ("text", "ended", "reward"), [("It is 7.", True, 1.0), ("It is 8.", True, 0.0), ("It is 7.", False, 0.0)]
)
def test_the_task_pays_for_right_replies_that_end(text, ended, reward):
    assert score("task", text, "7", ended=ended) == reward
    assert score("task", f"<think>maybe 9</think>{text}", "7", ended=ended) == reward


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ('{"name": "Ida", "age": 40, "home": {"city": "Rome"}}', 1.0),
        ('```json\n{"name": "Ida", "age": 40.0, "home": {"city": "Rome"}}\n```', 1.0),
        ('{"name": "Ida", "age": 41, "home": {"city": "Rome"}}', 2 / 3),
        ('{"name": "Ida"}', 1 / 3),
        ('{"name": "Ida", "age": 40, "home": {"city": "Rome"}, "a": 1, "b": 2, "c": 3}', 1 / 2),
        ('{"name": "Ida", "age": 40, "home": "Rome"}', 1 / 2),
        ("Ida, 40, Rome", 0.0),
    ],
)
def test_keys_pay_for_the_share_that_is_right_and_not_for_more_keys(text, reward):
    wanted = '{"name": "Ida", "age": 40, "home": {"city": "Rome"}}'
    assert score("keys", text, wanted) == pytest.approx(reward)


def test_a_distance_pays_more_for_nearer_numbers():
    assert [score("distance", f"about {number}", "50", span=20) for number in (50, 55, 60, 69, 70, 500)] == (
        pytest.approx([1.0, 0.75, 0.5, 0.05, 0.0, 0.0])
    )
    assert score("distance", "75", "50") == pytest.approx(0.5)  # as far as the number itself
    assert score("distance", "none", "50") == 0.0


def test_formats_tags_lengths_and_scripts_are_judged_without_the_rows_reply():
    assert [score("format", text, pattern="^[0-9]+$") for text in (" 12 ", "12.")] == [1.0, 0.0]
    tags = {"tags": ["think", "answer"]}
    assert score("tags", "<think>a</think> <answer>b</answer>", **tags) == 1.0
    assert score("tags", "<think>a</think> b", **tags) == 0.5
    assert score("tags", "<answer>b</answer><think>a</think>", **tags) == 0.5  # in another order
    assert score("tags", "<think><think>a</think> <answer>b</answer>", **tags) == 0.5  # opened twice
    lengths = [
        make_reward(RewardSection(kind="length", tokens=10), TaskSection(), []).score(TriedReply("", "", "", True, n))
        for n in (1, 10, 15, 20, 40)
    ]
    assert lengths == [1.0, 1.0, 0.5, 0.0, 0.0]
    assert score("script", "Привет мир ok", "Да") == pytest.approx(9 / 11)
    assert score("script", "123", "Да") == 0.0


def test_rows_that_cannot_be_compared_with_are_named():
    task = TaskSection(metric="number")
    for kind, wanted in (("keys", "text"), ("distance", "none"), ("script", "12"), ("task", "none")):
        assert make_reward(RewardSection(kind=kind), task, [wanted]).why_not(wanted)
    assert make_reward(RewardSection(kind="format", pattern="x"), task, []).why_not("any") == ""
