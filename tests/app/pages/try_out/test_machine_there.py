"""Replies of the machine that trained a run."""

import pytest
from app.pages.try_out.asking import ask, page_of, reply

from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.run.state import RunStateFile

pytestmark = pytest.mark.gui


@pytest.fixture
def stopped_there(run):
    """The run was stopped at another machine, which still has its folder and its base model."""
    (run / "remote.json").write_text(RemoteJob(where="ssh:office", id="7", folder="/jobs/x").model_dump_json())
    (run / "state.json").write_text(RunStateFile(run="x", status="stopped", step=5).model_dump_json())
    return run


def choose_there(page):
    page.left.choose("base-there")
    page.right.choose("tuned-there")


def test_the_machine_that_trained_a_run_answers_with_its_models(qtbot, answers, window, stopped_there, office):
    office.set("chat", {"type": "piece", "text": "Hel"}, reply("Hello"))
    page = page_of(window)
    choose_there(page)
    ask(page)
    qtbot.waitUntil(lambda: page.left.messages[-1].content == page.right.messages[-1].content == "Hello")
    assert [(one["target"], one["variant"]) for one in office.asked("chat")] == [
        ("/jobs/x/run", "base"), ("/jobs/x/run", "tuned"),
    ]  # fmt: skip
    assert not answers.asked("chat")
    page._free()
    qtbot.waitUntil(lambda: bool(office.asked("free") and answers.asked("free")))


def test_one_answers_here_and_one_there_and_both_are_stopped(qtbot, answers, window, stopped_there, office):
    for engine in (answers, office):
        engine.set("chat", {"type": "piece", "text": "Hel"}, {"hold": True})
    page = page_of(window)
    page.right.choose("tuned-there")
    ask(page)
    qtbot.waitUntil(lambda: all(pane.text.toPlainText().endswith("Hel") for pane in (page.left, page.right)))
    page.primary.click()
    qtbot.waitUntil(lambda: not page.answering.open)


@pytest.mark.full
def test_a_machine_that_does_not_answer_is_said_in_its_pane_and_asked_again(
    qtbot, answers, window, stopped_there, office
):
    answers.set("chat", reply("Hello"))
    refusal = {"type": "failure", "id": "", "what": "Host key verification failed.", "exit_code": 12}
    office.set("at_start", refusal, {"exit": 12})
    office.set("chat", reply("At last"))
    page = page_of(window)
    page.right.choose("tuned-there")
    ask(page)
    qtbot.waitUntil(lambda: "Host key verification failed." in page.right.state.text())
    qtbot.waitUntil(lambda: page.left.messages[-1].content == "Hello" and not page.answering.open)
    office.set("at_start")
    ask(page)
    qtbot.waitUntil(lambda: page.right.messages[-1].content == "At last")


@pytest.mark.full
def test_a_run_that_finished_left_nothing_there(window, stopped_there):
    (stopped_there / "state.json").write_text(RunStateFile(run="x", status="finished").model_dump_json())
    page = page_of(window)
    page.right.choose("tuned-there")
    assert page.right.answerer.where == ""
