"""What the page Runs shows of runs and of a selection."""

import pytest
from app.facts.run_summaries import RUNS, summary

from burnish_app.page_states.runs import page_state
from burnish_app.wording.run_text import LEAVE_QUEUE

ONE = {"delete", "reveal", "duplicate", "report"}


def shown(*selection, runs=RUNS, most=3):
    return page_state(runs, selection, most)


def test_without_runs_nothing_but_the_way_to_one_is_seen():
    state = shown(runs=[])
    assert (state.parts, state.status, state.primary, state.buttons) == ({"nothing"}, "empty", None, {})


def test_runs_are_counted_with_those_that_go_on():
    assert (shown().subtitle, shown().status) == ("5 runs, 2 running", "busy")
    over = [run for run in RUNS if run.standing == "finished"]
    assert (shown(runs=over).subtitle, shown(runs=over).status) == ("1 run", "done")
    assert shown().parts == {"card"}


@pytest.mark.parametrize(
    ("status", "further"),
    [
        ("running", {"stop"}),
        ("queued", {"stop"}),
        ("paused", {"stop", "resume"}),
        ("finished", set()),
        ("failed", {"resume"}),
        ("not responding", set()),
    ],
)
def test_one_run_is_opened_and_offers_what_it_accepts(status, further):
    state = shown(summary(status))
    assert set(state.buttons) == ONE | further
    assert (state.primary.does, state.parts) == ("open", {"card", "details"})
    assert state.buttons["delete"].is_enabled == (status in ("queued", "finished", "failed"))


def test_a_run_that_waits_leaves_the_queue():
    assert shown(summary("queued")).buttons["stop"].text == LEAVE_QUEUE
    assert shown(summary("running")).buttons["stop"].text != LEAVE_QUEUE


def test_several_runs_are_compared_and_two_of_them_fight():
    over = [summary("finished", folder=f"/runs/{number}") for number in range(4)]
    two, three, four = (shown(*over[:count]) for count in (2, 3, 4))
    assert set(two.buttons) == {"delete", "duel"}
    assert set(three.buttons) == {"delete"}
    assert [state.primary.does for state in (two, three, four)] == ["compare"] * 3
    assert [state.primary.is_enabled for state in (two, three, four)] == [True, True, False]
    assert (three.primary.hint, "3" in four.primary.hint) == ("", True)


def test_of_several_runs_none_is_deleted_while_one_goes_on():
    state = shown(summary("finished"), summary("running"))
    assert not state.buttons["delete"].is_enabled
    assert state.buttons["delete"].hint
