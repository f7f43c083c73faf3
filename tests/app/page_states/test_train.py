"""What the page Train shows of a run in each state."""

import itertools

import pytest
from app.facts.run_events import FAILED, events
from app.facts.run_summaries import summary
from app.facts.train_scenes import TRAIN_SCENES

from burnish_app.page_states.train import page_state
from burnish_app.wording.causes import CURES, needed_first
from burnish_app.wording.run_text import LEAVE_QUEUE
from burnish_engine.contract.run.fold import RunState, fold_all
from burnish_engine.contract.run.process_end import ProcessEnd

COMMANDS = {"pause", "checkpoint", "suspend", "stop"}


def shown(run, lines=(), *, cure=None, is_asked=False):
    return page_state(run, fold_all(RunState(), lines), cure, is_asked=is_asked)


def scene(name, **given):
    run, lines = TRAIN_SCENES[name]
    return shown(run, lines, **given)


def pressable(state):
    """Names of all that a press would do now."""
    buttons = {name for name, button in state.buttons.items() if button.is_enabled}
    return buttons | ({state.primary.does} if state.primary is not None and state.primary.is_enabled else set())


def test_without_a_run_nothing_but_the_way_to_one_is_seen():
    state = shown(None)
    assert (state.parts, state.status, state.fills) == ({"nothing"}, "empty", True)
    assert pressable(state) == set()


@pytest.mark.parametrize(
    ("name", "status", "primary", "buttons"),
    [
        ("training", "busy", None, COMMANDS),
        ("paused", "ready", "resume", COMMANDS - {"pause"}),
        ("stopped", "ready", "resume", set()),
        ("suspended", "ready", "resume", set()),
        ("queued", "busy", None, {"stop"}),
        ("interrupted", "attention", "resume", {"copy"}),
        ("not_responding", "attention", None, {"stop_now", "copy"}),
        ("failed", "attention", "resume", {"copy"}),
        ("finished", "done", "try_out", set()),
    ],
)
def test_each_status_offers_what_can_be_done_about_it(name, status, primary, buttons):
    state = scene(name)
    assert state.status == status
    assert (state.primary.does if state.primary else None) == primary
    assert set(state.buttons) - {"holder"} == buttons


@pytest.mark.parametrize("name", ["failed", "paused", "interrupted"])
def test_what_has_to_come_first_takes_the_place_of_resuming_which_stands_beside_it(name):
    state = scene(name, cure=("Open the folder", "folder"))
    assert (state.primary.text, state.primary.does) == ("Open the folder", "folder")
    assert "resume" in state.buttons
    assert not state.can_go_on


@pytest.mark.parametrize(
    ("code", "does"), [(10, "fit"), (12, "model"), (15, "folder")], ids=["memory", "damaged model", "full disk"]
)
def test_a_run_that_would_fail_again_leads_to_what_has_to_change(code, does):
    run = summary("failed", 5, message="It failed.", exit_code=code)
    assert shown(run, events(5), cure=needed_first(run, RunState())).primary.does == does


@pytest.mark.parametrize(("exit_status", "cause"), [(-9, "killed"), (-11, "crash")])
def test_a_process_that_died_is_named_and_resumed(exit_status, cause):
    run = summary("interrupted").model_copy(update={"process_end": ProcessEnd(exit_status=exit_status, t=1.0)})
    state = shown(run, events(240))
    assert state.description.headline == CURES[cause].title
    assert state.primary.does == "resume"


def test_charts_are_seen_from_the_first_step_on_and_stages_before_it():
    before, after = scene("preparing"), scene("training")
    assert {"beginning", "figures", "log"} <= before.parts
    assert (before.fills, "charts" in before.parts) == (True, False)
    assert {"charts", "figures", "log"} <= after.parts
    assert (after.fills, "beginning" in after.parts) == (False, False)


def test_a_queued_run_leaves_the_queue_and_leads_to_the_run_that_it_waits_for():
    run = summary("queued", 0, waits_for="/runs/another")
    state = shown(run)
    assert state.buttons["stop"].text == LEAVE_QUEUE
    assert "holder" in state.buttons
    assert "save" in scene("training").buttons["stop"].text


def test_a_failed_run_says_why_in_two_parts():
    what, remedy = scene("failed").problem
    assert what == FAILED.message.partition(". ")[0] + "."
    assert remedy
    run, lines = TRAIN_SCENES["failed"]
    short = run.model_copy(update={"state": run.state.model_copy(update={"message": "The disk is full."})})
    assert shown(short, lines).problem[0] == "The disk is full."
    assert scene("training").problem == ("", "")


def test_while_a_command_is_not_answered_nothing_else_can_be_started():
    """In each state, with and without a cure: and never does one thing stand there twice."""
    for name, cure, is_asked in itertools.product(TRAIN_SCENES, (None, ("Mend it", "recipe")), (False, True)):
        state = scene(name, cure=cure, is_asked=is_asked)
        assert not is_asked or pressable(state) <= {"copy", "holder"}
        assert state.primary is None or state.primary.does not in state.buttons
