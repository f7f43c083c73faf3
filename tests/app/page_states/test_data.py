"""What the page Data shows around its cards."""

import itertools

import pytest
from app.facts import data_facts as facts

from burnish_app.page_states.data import page_state
from burnish_engine.contract.facts.data_report import FileStatus

GOOD = facts.dataset()
BAD = facts.dataset(
    report=facts.dataset_report(
        files=[
            FileStatus(file=facts.DATA_FILE, entry=0, rows=1204),
            FileStatus(file="/old.jsonl", entry=1, problem="It is not valid JSON.", remedy="Correct it."),
        ]
    )
)


def state_of(dataset=GOOD, **changes):
    return page_state(**({"has_files": True, "dataset": dataset, "shown": dataset} | changes))


@pytest.mark.parametrize(
    ("changes", "status", "can_go_on", "parts"),
    [
        ({}, "done", True, {"held_out"}),
        ({"dataset": BAD}, "attention", True, {"held_out"}),
        ({"dataset": None, "has_files": False, "shown": None}, "empty", False, {"empty"}),
        ({"dataset": None, "shown": None}, "ready", True, {"held_out"}),
        ({"dataset": None, "shown": None, "is_busy": True}, "busy", True, {"held_out", "busy", "to_come"}),
        ({"dataset": None, "shown": GOOD, "is_busy": True}, "busy", True, {"held_out", "busy"}),
        ({"dataset": None, "shown": None, "has_failed": True}, "attention", False, {"held_out"}),
        ({"dataset": facts.dataset(train_rows=0)}, "attention", True, {"held_out"}),
    ],
)
def test_status_parts_and_button_follow_from_what_is_known(changes, status, can_go_on, parts):
    state = state_of(**changes)
    assert (state.status, state.primary.is_enabled, state.parts) == (status, can_go_on, parts)
    assert state.fills == ("to_come" in parts)


def test_the_status_stays_until_all_cards_are_filled():
    assert state_of(is_filling=True).status is None
    assert state_of(is_filling=True, is_busy=True).status == "busy"


def test_the_button_names_what_it_does():
    failed = {"dataset": None, "shown": None, "has_failed": True}
    states = [
        state_of(),
        state_of(dataset=BAD),
        state_of(has_files=False, dataset=None, shown=None),
        state_of(**failed),
        state_of(**failed, asks_columns=True),
    ]
    assert len({state.primary.text for state in states}) == len(states)
    assert [state.primary.does for state in states[:2]] == ["recipe", "leave_out"]


def test_rows_that_are_shown_are_counted_also_while_they_are_read_again():
    assert state_of(is_busy=True, dataset=None, shown=GOOD).subtitle == state_of().subtitle
    assert "1,102" in state_of().subtitle


def test_nothing_goes_on_without_data_or_past_a_failure():
    names = ("has_files", "is_busy", "is_filling", "has_failed", "asks_columns")
    for values in itertools.product((True, False), repeat=len(names)):
        given = dict(zip(names, values, strict=True))
        assert state_of(**given).primary.is_enabled == (given["has_files"] and not given["has_failed"])
