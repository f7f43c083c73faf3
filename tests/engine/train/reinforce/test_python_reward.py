"""Reward functions of the person's own run in a process with limits, and every way to fail says so."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe_reinforce import RewardSection
from burnish_engine.scoring.rewards import TriedReply
from burnish_engine.train.reinforce import python_reward
from burnish_engine.train.reinforce.python_reward import PythonReward

REPLIES = [TriedReply("2 + 2?", text, "4", True, 3) for text in ("4", "five", "")]


@pytest.fixture
def made(tmp_path):
    """Make a reward of a file's text, closed at the end."""
    rewards = []

    def make(text, function="reward"):
        file = tmp_path / "own.py"
        file.write_text(text)
        rewards.append(PythonReward(RewardSection(kind="python", file=str(file), function=function)))
        return rewards[-1]

    yield make
    for reward in rewards:
        reward.close()


def test_the_function_gets_prompt_reply_and_own_reply_and_may_print(made):
    reward = made("def reward(prompt, reply, wanted):\n    print(reply)\n    return len(prompt) + (reply == wanted)\n")
    assert reward.scores(REPLIES) == [7.0, 6.0, 6.0]
    assert reward.scores(REPLIES[1:2]) == [6.0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def other(*_): return 1\n", "no function reward"),
        ("import nowhere_at_all\n", "ModuleNotFoundError in line 1"),
        ("def reward(prompt, reply, wanted):\n    return 1 / len(reply)\n", "ZeroDivisionError in line 2"),
        ("def reward(*_): return float('nan')\n", "no finite number"),
        ("def reward(*_): return 'good'\n", "ValueError"),
        ("import os\ndef reward(*_): os._exit(3)\n", "status 3"),
        ("def reward(*_): return len(bytearray(2**40))\n", "MemoryError"),
    ],
)
def test_a_function_that_fails_is_named_with_the_cause(made, text, says):
    with pytest.raises(UsageError) as caught:
        made(text).scores(REPLIES)
    assert says in caught.value.what


def test_a_function_that_never_returns_is_ended(made, monkeypatch):
    monkeypatch.setattr(python_reward, "_PATIENCE", 0.01)  # of 26 s: it sleeps, and takes no processor time
    with pytest.raises(UsageError, match="took more than"):
        made("import time\ndef reward(*_): time.sleep(60)\n").scores(REPLIES)


def test_a_function_that_waits_is_ended_before_its_time_and_one_that_computes_is_not(made, monkeypatch):
    monkeypatch.setattr(python_reward, "_IDLE_S", 0.8)
    computing = "import time\ndef reward(*_):\n    while time.process_time() < 2.5: pass\n    return 1\n"
    assert made(computing).scores(REPLIES[:1]) == [1.0]
    with pytest.raises(UsageError, match="without computing"):
        made("import time\ndef reward(*_): time.sleep(60)\n").scores(REPLIES)


def test_a_file_that_is_not_there_is_refused_at_once(tmp_path):
    with pytest.raises(UsageError, match="There is no file"):
        PythonReward(RewardSection(kind="python", file=str(tmp_path / "none.py")))
