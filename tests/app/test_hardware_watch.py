"""The card in view: the strip and its panel in a window, alarms, and their remedy."""

import pytest
from app.facts.run_summaries import summary
from PySide6.QtCore import Qt

from support.machines.hardware import made_up, recorded


def feed(window, lines):
    for line in lines:
        window.hardware.monitor._received(line)


@pytest.fixture
def running(window):
    """A run that is running, on the first GPU."""
    run = summary("running")
    run = run.model_copy(update={"state": run.state.model_copy(update={"device": "cuda-0"})})
    window.runs_poller.stop()
    window.hardware.runs_changed([run])
    return run


def messages(lines):
    return [{"type": "hardware", "line": line.model_dump(mode="json")} for line in lines]


def test_live_samples_reach_the_strip_and_a_click_shows_the_panel(qtbot, answers, window):
    strip = window.sidebar.hardware
    assert not strip.isVisible()
    answers.set("hardware", *messages(list(recorded())[:20]), {"hold": True})
    qtbot.waitUntil(strip.isVisible)
    qtbot.mouseClick(strip, Qt.MouseButton.LeftButton)
    assert window.hardware.panel.isVisible()
    assert strip.isChecked()
    qtbot.keyClick(window.hardware.panel, Qt.Key.Key_Escape)
    assert not window.hardware.panel.isVisible()
    assert not strip.isChecked()


@pytest.mark.full
def test_the_panel_keeps_its_place_when_the_window_changes_its_size(qtbot, window):
    feed(window, made_up(seconds=5))
    qtbot.mouseClick(window.sidebar.hardware, Qt.MouseButton.LeftButton)
    window.resize(900, 620)
    panel = window.hardware.panel
    qtbot.waitUntil(lambda: window.centralWidget().rect().contains(panel.geometry()))
    assert panel.geometry().left() >= window.sidebar.width()


@pytest.mark.parametrize("way", ["card", "strip", "keys"])
def test_all_of_the_hardware_opens_over_the_page_and_closes(qtbot, window, way):
    window.go_to("start")
    feed(window, made_up(seconds=5))
    if way == "card":
        qtbot.mouseClick(window.page("start").machine.open_button, Qt.MouseButton.LeftButton)
    elif way == "strip":
        qtbot.mouseClick(window.sidebar.hardware, Qt.MouseButton.LeftButton)
    else:
        qtbot.keyClick(window, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: window.shown_key == "hardware")
    page = window.page("hardware")
    assert page.isVisible()
    assert page.live.isVisible()
    assert window.sidebar.hardware.isChecked()
    qtbot.mouseClick(window.hardware.panel.close_button, Qt.MouseButton.LeftButton)
    assert window.shown_key == "start"
    assert not page.isVisible()


def test_another_page_closes_the_panel(qtbot, window):
    window.go_to("hardware")
    qtbot.mouseClick(window.sidebar.button("settings"), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: window.shown_key == "settings")
    assert not window.hardware.is_open


def test_tab_stays_within_the_panel(qtbot, window):
    window.go_to("hardware")
    seen = []
    for _ in range(8):
        qtbot.keyClick(window.focusWidget(), Qt.Key.Key_Tab)
        seen.append(window.focusWidget())
    assert window.hardware.panel.close_button in seen
    assert len(set(seen)) > 1
    assert all(window.hardware.panel.isAncestorOf(widget) for widget in seen)


def test_samples_stop_while_the_window_is_minimized(qtbot, answers, window):
    answers.set("hardware", *messages(made_up(seconds=2)), {"hold": True})
    qtbot.waitUntil(lambda: len(answers.asked("hardware")) >= 1)
    window.showMinimized()
    qtbot.waitUntil(lambda: len(answers.asked("cancel")) >= 1)
    before = len(answers.asked("hardware"))
    window.showNormal()
    qtbot.waitUntil(lambda: len(answers.asked("hardware")) > before)


@pytest.mark.full
def test_an_alarm_is_remedied_by_one_click(qtbot, answers, window, running):
    remedy = window.sidebar.remedy_button
    feed(window, made_up(seconds=200))
    assert not remedy.isVisible()
    feed(window, made_up(seconds=210, filled=5))
    assert remedy.isVisible()
    qtbot.mouseClick(remedy, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(answers.asked("command")) == 1)
    (asked,) = answers.asked("command")
    assert (asked["run"], asked["command"]) == (running.folder, "smaller_plan")
    assert not remedy.isVisible()
    assert "Asked" in window.sidebar.alarm.text()
    feed(window, list(made_up(seconds=211, filled=6))[-1:])
    assert not remedy.isVisible()  # it was asked for
    feed(window, made_up(seconds=260))
    assert window.sidebar.alarm.text() == ""


def test_the_remedy_comes_back_where_it_did_not_help(qtbot, answers, window, running):
    feed(window, made_up(seconds=210, filled=5))
    qtbot.mouseClick(window.sidebar.remedy_button, Qt.MouseButton.LeftButton)
    feed(window, list(made_up(seconds=260, filled=50))[-48:])
    assert window.sidebar.remedy_button.isVisible()


def test_a_refusal_is_said(qtbot, answers, window, running):
    answers.failure("command", "The run is gone.", exit_code=2)
    feed(window, made_up(seconds=210, filled=5))
    qtbot.mouseClick(window.sidebar.remedy_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "The run is gone." in window.sidebar.alarm.text())


@pytest.mark.full
def test_a_run_is_asked_about_every_card_that_shares_it(window, running):
    shared = {"device": "cuda-1", "further_devices": ["cuda-0"]}
    window.hardware.runs_changed([running.model_copy(update={"state": running.state.model_copy(update=shared)})])
    feed(window, made_up(seconds=210, filled=5))
    assert window.sidebar.remedy_button.isVisible()


@pytest.mark.full
def test_without_a_run_on_that_card_there_is_an_alarm_without_a_button(window, running):
    other = running.model_copy(update={"state": running.state.model_copy(update={"device": "cuda-1"})})
    window.hardware.runs_changed([other])
    feed(window, made_up(seconds=210, filled=5))
    assert window.sidebar.alarm.isVisible()
    assert not window.sidebar.remedy_button.isVisible()
