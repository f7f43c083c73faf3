"""What the page Try it shows around the conversations."""

import pytest

from burnish_app.page_states.try_out import page_state
from burnish_app.state.run_folder import RunFolder

NO_RUN, SAVED_NOTHING = RunFolder(), RunFolder(name="desk", title="desk")
TRAINED = RunFolder(name="desk", title="desk", trained=True)


def shown(folder=TRAINED, **changes):
    return page_state(folder, **changes)


def test_what_can_answer_is_said():
    states = [shown(NO_RUN), shown(SAVED_NOTHING), shown()]
    assert len({state.subtitle for state in states}) == 3
    assert [state.name for state in states] == ["", "", "desk"]
    assert [state.status for state in states] == ["empty", "empty", "ready"]


@pytest.mark.parametrize(
    ("changes", "does", "is_enabled"),
    [
        ({}, "send", False),
        ({"is_written": True}, "send", True),
        ({"is_answering": True}, "stop", True),
        ({"is_answering": True, "is_written": True}, "stop", True),
    ],
)
def test_the_button_sends_what_is_written_or_stops_the_replies(changes, does, is_enabled):
    state = shown(**changes)
    assert (state.primary.does, state.primary.is_enabled) == (does, is_enabled)
    assert (state.status == "busy") == (does == "stop")
    assert ("save" in state.enabled) == changes.get("is_written", False)


def test_a_note_of_before_goes_once_replies_come():
    assert shown(is_answering=True).note == ""
    assert shown().note is None


def test_nothing_is_asked_again_while_replies_come_or_it_is_secret_who_answers():
    assert "again" in shown().enabled
    assert "again" not in shown(is_answering=True).enabled | shown(is_secret=True).enabled


def test_a_blind_vote_needs_a_run_and_different_models():
    assert "blind" in shown(are_different=True).enabled
    assert "blind" not in shown().enabled | shown(NO_RUN, are_different=True).enabled


def test_what_was_loaded_can_be_unloaded_and_what_was_kept_brought_back():
    assert not shown().buttons["unload"].is_enabled
    assert shown(has_loaded=True).buttons["unload"].is_enabled
    assert "former" not in shown().buttons
    assert "former" in shown(has_former=True).buttons
