"""Replies to the fixed prompts over time: a slider goes through the steps and follows the newest at its end."""

import pytest
from app.facts.run_events import numbered
from app.pages.test_hardware import words
from PySide6.QtCore import Qt

from burnish_app.widgets.runs.run_log import RunLog, first_and_at
from burnish_engine.contract.run.events import SampleDone
from burnish_engine.contract.run.fold import RunState, fold_all

pytestmark = pytest.mark.gui


def samples(*steps, prompts=("Hello?", "Why?")):
    return [
        SampleDone(step=step, prompt=prompt, reply=f"{prompt} at {step}", stopped=True)
        for step in steps
        for prompt in prompts
    ]


def state(*steps):
    return fold_all(RunState(), numbered(samples(*steps)))


def shows(qtbot, log, text):
    """Wait until a reply is shown: what is added is laid out by the next event."""
    qtbot.waitUntil(lambda: text in words(log))


@pytest.fixture
def log(qtbot, theme):
    made = RunLog()
    qtbot.addWidget(made)
    made.draw(state(0, 10, 20))
    with qtbot.waitExposed(made):
        made.show()
    return made


def test_the_newest_reply_is_shown_beside_the_first(log):
    assert "Hello? at 20" in words(log)
    assert "Hello? at 0" in words(log)
    assert "Hello? at 10" not in words(log)


def test_the_keyboard_goes_back_in_time(qtbot, log):
    log.slider.setFocus()
    qtbot.keyClick(log.slider, Qt.Key.Key_Left)
    shows(qtbot, log, "Why? at 10")
    assert "Why? at 20" not in words(log)
    qtbot.keyClick(log.slider, Qt.Key.Key_Home)
    qtbot.waitUntil(lambda: "Why? at 10" not in words(log))


def test_at_its_end_it_follows_and_elsewhere_it_stays(qtbot, log):
    log.draw(state(0, 10, 20, 30))
    shows(qtbot, log, "Hello? at 30")
    log.slider.setValue(1)
    log.draw(state(0, 10, 20, 30, 40))
    shows(qtbot, log, "Hello? at 10")
    assert log.slider.maximum() == 4


def test_replies_that_a_rollback_took_back_are_gone(qtbot, log):
    log.slider.setValue(1)
    log._drawn = (-1, -1)
    log.draw(state(0))
    shows(qtbot, log, "Hello? at 0")
    assert log._chooser.isHidden(), "there is only one step"


def test_a_prompt_that_was_asked_later_is_not_shown_before():
    early, late = samples(0, prompts=("a",)), samples(5, prompts=("b",))
    assert [then.prompt for _, then in first_and_at([*early, *late], 3)] == ["a"]
    assert [then.prompt for _, then in first_and_at([*early, *late], 5)] == ["a", "b"]
