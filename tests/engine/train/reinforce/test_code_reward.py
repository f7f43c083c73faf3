"""Rewards for code that does what the row wants."""

from burnish_engine.contract.recipe.recipe_reinforce import RewardSection
from burnish_engine.scoring.rewards import TriedReply
from burnish_engine.train.reinforce.code_reward import CodeReward, code_of


def replies(wanted, *texts):
    return [TriedReply("Add two numbers.", text, wanted, True, 9) for text in texts]


def test_the_first_block_of_a_reply_is_its_code_else_all_of_it():
    assert code_of("Here:\n```python\nx = 1\n```\nand\n```\ny = 2\n```") == "x = 1\n"
    assert code_of("x = 1") == "x = 1"
    assert code_of("<think>\n```\nno\n```\n</think>\n```py\nyes\n```") == "yes\n"
    assert code_of("```\ncut off") == "cut off"


def test_the_rows_own_reply_is_the_tests_that_have_to_pass():
    judge = CodeReward(RewardSection(kind="code", isolation="limits"))
    right, wrong, early = "def add(a, b): return a + b", "def add(a, b): return a - b", "raise SystemExit(0)"
    tests = "```python\nassert add(2, 3) == 5\n```"
    assert judge.scores(replies(tests, right, wrong, early, f"```\n{right}\n```")) == [1.0, 0.0, 0.0, 1.0]


def test_what_a_program_prints_is_compared_but_for_white_space():
    judge = CodeReward(RewardSection(kind="code", check="output", isolation="limits"))
    assert judge.scores(replies("1 2\n3", "print(1, 2)\nprint(3)", "print(12)")) == [1.0, 0.0]
