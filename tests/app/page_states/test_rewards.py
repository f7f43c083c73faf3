"""The card of rewards, and that of judged replies: their state for facts."""

from app.facts.reward_facts import rewarded, trial

from burnish_app.page_states.judged_replies import judged_replies_state
from burnish_app.page_states.rewards import RewardFacts, rewards_state
from burnish_app.recipe.rewards import RewardLine
from burnish_engine.contract.run.events import RewardsGiven
from burnish_engine.contract.run.fold import RunState, fold_all
from burnish_engine.contract.serve.reward_trial import RewardTrial

TASK = RewardLine("task")


def state(**facts):
    return rewards_state(RewardFacts(**{"learns": True, "lines": (TASK,), **facts}))


def test_the_card_is_seen_where_rewards_are_learned_from():
    assert state().is_seen
    assert not state(learns=False).is_seen


def test_the_last_reward_stays():
    assert not state().can_remove
    assert state(lines=(TASK, RewardLine("script"))).can_remove


def test_a_trial_needs_rows_and_valid_rewards_and_one_runs_at_a_time():
    assert state().button.is_enabled
    assert not state(has_data=False).button.is_enabled
    assert not state(problems={0: "It is empty."}).button.is_enabled
    running = state(is_trying=True, trial=trial())
    assert running.is_busy
    assert not running.button.is_enabled
    assert not running.tried


def test_replies_are_shown_with_each_reward_and_the_best_one_stands_out():
    shown = state(trial=trial(4)).tried
    assert [one.tone for one in shown] == ["warning", "plain", "plain", "success"]
    assert shown[-1].total == "1.5"
    assert "1" in shown[-1].parts
    assert "45" in shown[-1].asked
    assert "cut" in shown[1].reply


def test_rewards_that_do_not_tell_replies_apart_are_a_warning():
    flat = [row.model_copy(update={"sum": 0.5}) for row in trial().rows]
    assert state(trial=RewardTrial(rows=flat)).verdict[1] == "warning"
    never = [row.model_copy(update={"rewards": {**row.rewards, "task": 0.0}}) for row in trial().rows]
    text, tone = state(trial=RewardTrial(rows=never)).verdict
    assert tone == "warning"
    assert "Right reply" in text
    assert state(trial=trial()).verdict[1] == "success"
    assert state(failure="It failed.").verdict == ("It failed.", "error")


def test_the_newest_round_is_shown_unless_another_is_wanted():
    given = fold_all(RunState(), rewarded(12)).rewards.items()
    newest = judged_replies_state(given, None)
    assert (newest.place, newest.rounds, newest.is_seen) == (11, 12, True)
    assert "12" in newest.step
    assert [len(group.replies) for group in newest.groups] == [3, 2]
    assert "1.21" in newest.groups[0].title
    assert judged_replies_state(given, 2).place == 2
    assert judged_replies_state(given, 99).place == 11


def test_runs_without_groups_have_no_card():
    assert not judged_replies_state([], None).is_seen
    old = RewardsGiven(
        step=1, reward=0.0, spread=0.0, replies=2, groups=1, dropped_groups=0, reply_tokens=1, cut_replies=0,
        written_s=1.0, judged_s=0.0,
    )  # fmt: skip
    assert not judged_replies_state([old], None).is_seen
