"""Rewards by another model: what it is asked, and what becomes of its reply."""

import pytest

from burnish_engine.channel.job import FailedError
from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.recipe.recipe_reinforce import RewardSection
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.replies import Reply
from burnish_engine.scoring.rewards import TriedReply
from burnish_engine.train.reinforce import judge_reward
from burnish_engine.train.reinforce.judge_reward import JudgeReward

from support.models.tiny import make_llama


def section(**changes):
    return RewardSection.model_validate({"kind": "judge", "model": "embedded", "question": "Is it kind?", **changes})


def reply(text):
    return TriedReply("Hello?", text, "Hello!", True, 3)


class Asked(list):
    """Questions, and the class of the judge."""


@pytest.fixture
def asked(monkeypatch):
    """Questions that a made-up judge was asked; it says its number, or fails."""
    found = Asked()

    class Judge:
        broken = False

        def __init__(self, module, name):
            pass

        def ask(self, request, job, about):
            text = request.messages[0].content
            found.append(text)
            if "fail" in text or self.broken:
                raise FailedError(Failure(id="judge", what="There is no such model.", exit_code=2))
            said = text.partition("Reply to judge:\n")[2].partition("\n")[0]
            return Result(id="judge", reply=Reply(text=said, stopped=True, tokens=1, seconds=0.0, name="judge"))

        def close(self):
            found.append("closed")

    monkeypatch.setattr(judge_reward, "Child", Judge)
    found.judge = Judge
    return found


def test_the_number_is_a_tenth_and_kept_within_its_range(asked):
    judge = JudgeReward(section())
    texts = ("7", "10 of 10", "12", "-3", "good", "<think>It is 2.</think>8")
    assert judge.scores([reply(text) for text in texts]) == [0.7, 1.0, 1.0, 0.0, 0.0, 0.8]
    assert all(part in asked[0] for part in ("Is it kind?", "Hello?", "Hello!"))


def test_the_same_reply_is_judged_once_and_the_process_ends(asked):
    judge = JudgeReward(section())
    assert judge.scores([reply("4"), reply("4")]) == judge.scores([reply("4"), reply("4")]) == [0.4, 0.4]
    judge.close()
    judge.close()
    assert len(asked) == 2
    assert asked[-1] == "closed"


def test_a_reply_that_the_judge_does_not_take_gets_nothing(asked):
    assert JudgeReward(section()).scores([reply("4"), reply("fail, too long"), reply("6")]) == [0.4, 0.0, 0.6]


def test_only_the_newest_judgments_are_remembered(asked, monkeypatch):
    monkeypatch.setattr(judge_reward, "_REMEMBERED", 2)
    judge = JudgeReward(section())
    assert judge.scores([reply(str(n)) for n in range(5)]) == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert judge.scores([reply("4"), reply("3"), reply("0")]) == [0.4, 0.3, 0.0]
    assert len(asked) == 6


def test_a_judge_that_fails_is_named(asked):
    asked.judge.broken = True
    with pytest.raises(SetupError) as failed:
        JudgeReward(section(name="kindness")).scores([reply("4")])
    assert "kindness" in failed.value.what
    assert "no such model" in failed.value.what


def test_a_file_that_is_not_there_is_refused_at_once(tmp_path):
    with pytest.raises(UsageError, match="no file"):
        JudgeReward(section(model=str(tmp_path / "judge.gguf")))


@pytest.mark.full
def test_a_model_on_this_machine_judges(tmp_path):
    judge = JudgeReward(section(model=str(make_llama(tmp_path / "judge"))))
    try:
        (found,) = judge.scores([reply("Hi.")])
    finally:
        judge.close()
    assert 0.0 <= found <= 1.0
