"""Closing the window while something is running: it asks once, and does what was chosen."""

import pytest
from app.facts.run_summaries import summary
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from burnish_app.closing import ClosingQuestion, stop_all
from burnish_app.state.preferences import Preferences
from burnish_app.wording.activity import Activity
from burnish_engine.contract.serve.replies import ExportJob

pytestmark = pytest.mark.usefixtures("asked_on_closing")


@pytest.fixture
def busy(qtbot, window, answers, tmp_path):
    """A window beside which a run and an export continue."""
    job = ExportJob(status="running", share=0.36)
    other = summary("finished", 600, folder=str(tmp_path), name="other").model_copy(update={"export": job})
    answers.result("runs", runs=[summary("running"), other])
    window.go_to("runs")
    window.page("runs").refresh_runs.emit()
    qtbot.waitUntil(lambda: len(window.activity.board.activities) == 2)
    return window


def closed_with(qtbot, window, choose):
    """Close the window and choose a button of the question; choose: question -> button."""
    assert not window.close()
    assert window.isVisible()
    question = window.closing.question
    qtbot.waitUntil(question.isVisible)
    choose(question).click()
    return question


@pytest.mark.full
def test_a_window_beside_which_nothing_goes_on_closes_at_once(qtbot, window):
    assert window.close()
    assert not window.isVisible()


@pytest.mark.full
def test_what_goes_on_is_named_and_can_be_left_running(qtbot, busy, answers):
    question = closed_with(qtbot, busy, lambda asked: asked.leaving)
    assert "support-desk" in question.informativeText()
    assert "36 %" in question.informativeText()
    qtbot.waitUntil(lambda: not busy.isVisible())
    assert not answers.asked("command")
    assert Preferences().asks_on_close


@pytest.mark.full
def test_canceling_keeps_the_window_and_the_next_time_it_asks_again(qtbot, busy):
    for _ in range(2):
        closed_with(qtbot, busy, lambda asked: asked.escapeButton())
        qtbot.waitUntil(lambda: busy.closing.question is None)
    assert busy.isVisible()


@pytest.mark.full
def test_stopping_stops_runs_and_exports_before_the_window_closes(qtbot, busy, answers):
    answers.result("command", done=True)
    answers.result("cancel_export", done=True)
    closed_with(qtbot, busy, lambda asked: asked.stopping)
    qtbot.waitUntil(lambda: not busy.isVisible())
    training, exporting = (one.folder for one in busy.activity.board.activities)
    assert [(asked["run"], asked["command"]) for asked in answers.asked("command")] == [(training, "stop")]
    assert [asked["run"] for asked in answers.asked("cancel_export")] == [exporting]


def test_everything_is_asked_to_stop_before_it_is_done(qtbot, window, answers):
    methods = ("command", "cancel_export", "stop_duel", "download")
    for method in methods:
        answers.result(method, done=True)
    pages = ("train", "export", "duel", "model")
    going = [Activity(page, f"/{page}", page, "", 0.5) for page in pages]
    done, failed = [], []
    window.client.start()
    stop_all(window.client, going, done=lambda: done.append(True), failed=failed.append, owner=window)
    qtbot.waitUntil(lambda: bool(done or failed))
    assert (done, failed) == ([True], [])
    assert [len(answers.asked(method)) for method in methods] == [1, 1, 1, 1]
    assert (answers.asked("download")[0]["name"], answers.asked("download")[0]["do"]) == ("/model", "pause")
    assert answers.asked("stop_duel")[0]["folder"] == "/duel"


@pytest.mark.full
def test_of_many_that_go_on_some_are_named_and_the_others_counted(qtbot, window):
    many = [Activity("train", f"/runs/{number}", f"run {number}", "Training", 0.5) for number in range(7)]
    question = ClosingQuestion(window, many, leave=lambda _never: None, stop=lambda: None)
    qtbot.addWidget(question)
    text = question.informativeText()
    named = [one for one in many if f"{one.name}:" in text]
    assert 0 < len(named) < len(many)
    assert f"and {len(many) - len(named)} more" in text


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("refused", "done"), [("command", "cancel_export"), ("cancel_export", "command")])
def test_what_cannot_be_stopped_keeps_the_window(qtbot, busy, answers, refused, done):
    answers.failure(refused, "No process would take it.")
    answers.result(done, done=True)
    closed_with(qtbot, busy, lambda asked: asked.stopping)
    qtbot.waitUntil(lambda: busy.page("runs").shown_banner is not None)
    assert busy.isVisible()


def test_the_question_can_be_switched_off(qtbot, busy):
    def choose(asked):
        asked.never_again.setChecked(True)
        return asked.leaving

    closed_with(qtbot, busy, choose)
    qtbot.waitUntil(lambda: not busy.isVisible())
    assert not Preferences().asks_on_close


@pytest.mark.full
def test_a_name_is_shown_as_it_is_and_never_read_as_markup(qtbot, window):
    name = "<h1>much</h1> larger"
    question = ClosingQuestion(window, [Activity("train", "/r", name, "Training", 0.5)], leave=print, stop=print)
    qtbot.addWidget(question)
    labels = [label for label in question.findChildren(QLabel) if label.text()]
    assert any(name in label.text() for label in labels)
    assert {label.textFormat() for label in labels} == {Qt.TextFormat.PlainText}
