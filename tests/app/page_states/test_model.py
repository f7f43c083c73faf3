"""What the page Model shows around the chosen model's facts."""

import itertools

import pytest
from app.facts import model_facts

from burnish_app.page_states.model import page_state

USUAL = {"is_known": True, "is_intact": True, "is_busy": False, "has_failed": False}


def shown(integrity=None, **changes):
    return page_state(integrity, **(USUAL | changes))


@pytest.mark.parametrize(
    ("changes", "status", "can_go_on"),
    [
        ({}, "done", True),
        ({"is_known": False, "is_intact": False}, "empty", False),
        ({"is_known": False, "is_intact": False, "is_busy": True}, "busy", False),
        ({"is_intact": False, "is_busy": True}, "busy", True),
        ({"is_known": False, "is_intact": False, "has_failed": True}, "attention", False),
    ],
)
def test_status_and_button_follow_from_what_is_known(changes, status, can_go_on):
    state = shown(**changes)
    assert (state.status, state.primary.is_enabled) == (status, can_go_on)
    assert ("busy" in state.parts) == changes.get("is_busy", False)


def test_what_a_check_found_is_said_once_it_is_done():
    published, whole = shown(model_facts.integrity()).checked, shown(model_facts.integrity(checked=0)).checked
    assert "9 files" in published[2]
    assert (published[1], whole[1]) == ("success", "plain")
    assert published[0] != whole[0]
    assert shown(model_facts.integrity(), is_intact=False).checked[0] == ""


def test_nothing_goes_on_without_a_model_that_can_be_read():
    for values in itertools.product((True, False), repeat=4):
        given = dict(zip(USUAL, values, strict=True))
        state = shown(**given)
        assert state.primary.is_enabled == (given["is_known"] and not given["has_failed"])
