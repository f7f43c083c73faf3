"""Replies side by side: the newest of each run for each prompt."""

from burnish_app.comparison.replies import different_words, replies_side_by_side
from burnish_engine.contract.run.events import SampleDone
from burnish_engine.contract.run.fold import RunState, fold_all


def state(*samples):
    events = [
        SampleDone(step=step, prompt=prompt, reply=reply, stopped=True, seq=number)
        for number, (step, prompt, reply) in enumerate(samples)
    ]
    return fold_all(RunState(), events)


def test_the_newest_reply_of_each_run_stands_in_its_place():
    first = state((0, "p", "raw"), (10, "p", "early"), (20, "p", "late"))
    second = state((0, "p", "raw too"), (5, "p", "other"))
    (found,) = replies_side_by_side([first, second])
    assert [reply.reply for reply in found.replies] == ["late", "other"]
    assert found.before.reply == "raw"


def test_prompts_that_most_runs_share_come_first_and_gaps_stay_open():
    first = state((10, "only first", "a"), (10, "both", "b"))
    second = state((10, "both", "c"))
    found = replies_side_by_side([first, second, RunState()])
    assert [one.prompt for one in found] == ["both", "only first"]
    assert found[1].replies[1] is None
    assert found[0].replies[2] is None
    assert replies_side_by_side([RunState()]) == []


def test_words_that_replies_do_not_share_are_found():
    one, other = "Ask the depot for a trace.", "Ask the old carrier for a trace."
    first, second = different_words([one, other])
    assert [one[begin:end] for begin, end in first] == ["depot"]
    assert [other[begin:end] for begin, end in second] == ["old carrier"]


def test_replies_that_share_too_little_or_nothing_to_compare_with_are_not_marked():
    assert different_words(["Cause: customs.", "I am sorry to hear that!"]) == [[], []]
    assert different_words(["Alone"]) == [[]]
    assert different_words([]) == []
    assert different_words(["Same words", "Same words"]) == [[], []]
