"""Questions to the models before and after training, and what stands below their replies."""

from pathlib import Path

import pytest
from app.pages.test_hardware import words
from app.pages.try_out.asking import ask, facts, page_of, reply
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

pytestmark = pytest.mark.gui


@pytest.mark.full
def test_both_answer_the_same_question(qtbot, answers, window, run):
    answers.set("chat", {"type": "piece", "text": "Hel"}, {"type": "piece", "text": "lo"}, reply("Hello"))
    page = page_of(window)
    ask(page)
    qtbot.waitUntil(lambda: page.left.messages[-1].content == page.right.messages[-1].content == "Hello")
    asked = answers.asked("chat")
    assert [request["variant"] for request in asked] == ["base", "tuned"]
    assert {request["target"] for request in asked} == {str(run)}
    assert page.right.text.toPlainText().endswith("Hello")
    assert facts(page.right) == "4.0 tokens/s"
    assert page.right.state.toolTip() == "SmolLM2"
    ask(page, "And then?")
    qtbot.waitUntil(lambda: len(page.right.messages) == 4)
    contents = [message["content"] for message in answers.asked("chat")[-1]["messages"]]
    assert contents == ["Hi", "Hello", "And then?"]


@pytest.mark.full
@pytest.mark.parametrize(("text", "is_blank"), [("\n\n \n", True), ("", True), ("\nHello", False)])
def test_a_reply_without_a_word_is_said_to_be_one(qtbot, answers, window, run, text, is_blank):
    """Blank lines alone leave a pane that looks as if nobody had answered."""
    answers.set("chat", reply(text))
    page = page_of(window)
    ask(page)
    qtbot.waitUntil(lambda: "tokens/s" in page.right.state.text())
    assert ("white space" in facts(page.right)) == is_blank


def test_one_model_is_asked_again_by_itself_with_the_next_seed(qtbot, answers, window, run):
    answers.set("chat", reply("Hello"))
    page = page_of(window)
    page.sampling.system.setPlainText("Be brief.")
    page.sampling.seed.setValue(5)
    assert not page.right.again.isEnabled()
    ask(page)
    qtbot.waitUntil(lambda: len(page.right.messages) == len(page.left.messages) == 2)
    for times in (1, 2):
        answers.set("chat", reply(f"Another {times}"))
        page.right.again.click()
        assert not page.right.again.isEnabled()
        qtbot.waitUntil(lambda times=times: page.right.messages[-1].content == f"Another {times}")
        request = answers.asked("chat")[-1]
        assert (request["variant"], request["options"]["seed"]) == ("tuned", 5 + times)
        assert [message["content"] for message in request["messages"]] == ["Be brief.", "Hi"]
    assert [message.content for message in page.left.messages] == ["Hi", "Hello"]
    assert all(text in page.right.text.toPlainText() for text in ("Hello", "Another 1", "Another 2"))
    ask(page, "And then?")
    qtbot.waitUntil(lambda: len(page.right.messages) == 4)
    assert [message.content for message in page.right.messages[:3]] == ["Hi", "Another 2", "And then?"]
    assert [request["options"]["seed"] for request in answers.asked("chat")[-2:]] == [5, 5]


def test_a_second_try_that_fails_keeps_the_reply_and_a_first_that_failed_can_be_tried_again(
    qtbot, answers, window, run
):
    answers.failure("chat", "It did not fit.", "Free memory.", 10)
    page = page_of(window)
    ask(page)
    qtbot.waitUntil(page.right.again.isEnabled)
    assert page.right.messages == []
    answers.set("chat", reply("Hello"))
    page.right.again.click()
    qtbot.waitUntil(lambda: [message.content for message in page.right.messages] == ["Hi", "Hello"])
    answers.failure("chat", "It did not fit.", "Free memory.", 10)
    page.right.again.click()
    qtbot.waitUntil(lambda: "did not fit" in page.right.state.text())
    assert [message.content for message in page.right.messages] == ["Hi", "Hello"]


@pytest.mark.full
def test_the_keyboard_sends(qtbot, answers, window, run):
    answers.set("chat", reply("Hello"))
    page = page_of(window)
    window.activateWindow()
    page.prompt.setFocus()
    qtbot.keyClicks(page.prompt, "Hi")
    qtbot.keyClick(page.prompt, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: len(answers.asked("chat")) == 2)
    assert answers.asked("chat")[0]["messages"][-1]["content"] == "Hi"


@pytest.mark.full
def test_options_and_the_system_prompt_are_sent(qtbot, answers, window, run):
    answers.set("chat", reply("ok"))
    page = page_of(window)
    page.sampling.system.setPlainText("Be brief.")
    page.sampling.temperature.setValue(0.7)
    page.sampling.longest.setValue(64)
    ask(page)
    qtbot.waitUntil(lambda: len(answers.asked("chat")) == 2)
    request = answers.asked("chat")[0]
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (request["options"]["temperature"], request["options"]["max_tokens"]) == (0.7, 64)


@pytest.mark.full
def test_stop_keeps_what_came(qtbot, answers, window, run):
    answers.set("chat", {"type": "piece", "text": "Half a "}, {"hold": True})
    page = page_of(window)
    ask(page)
    qtbot.waitUntil(lambda: "Half a" in page.right.text.toPlainText())
    assert page.primary.text() == "Stop"
    assert page.status == "busy"
    page.primary.click()
    qtbot.waitUntil(lambda: page.primary.text() == "Send")
    assert page.right.messages[-1].content == "Half a "
    assert page.right.state.text() == "stopped"


@pytest.mark.full
def test_a_failure_stands_under_the_side_it_belongs_to(qtbot, answers, window, run):
    answers.failure("chat", "It did not fit.", "Free memory.", 10)
    page = page_of(window)
    ask(page)
    qtbot.waitUntil(lambda: page.left.state.text() == "It did not fit. Free memory.")
    qtbot.waitUntil(lambda: page.primary.text() == "Send")
    assert page.left.messages == []


@pytest.mark.full
def test_without_a_run_only_the_base_model_answers(qtbot, answers, window, bench):
    answers.set("chat", reply("Hello"))
    page = page_of(window)
    assert "There is no run yet" in words(page)
    ask(page)
    qtbot.waitUntil(lambda: len(page.left.messages) == 2)
    assert [(request["target"], request["variant"]) for request in answers.asked("chat")] == [("embedded", "base")]
    assert page.right.messages == []


def test_what_cannot_be_answered_by_either_stays_written(answers, window, bench):
    page = page_of(window)
    page.left.choose("tuned")
    ask(page)
    assert "can answer" in page.shown_banner.what
    assert page.prompt.toPlainText() == "Hi"
    assert "once a run" in page.left.text.placeholderText()
    page.left.choose("exported")
    assert "exported" in page.left.text.placeholderText()
    page.left.choose("base")
    assert page.left.text.placeholderText() == "Answers appear here."


@pytest.mark.full
def test_nothing_of_a_conversation_that_was_given_up_comes_later(qtbot, answers, answered, window, run):
    answers.set("chat", {"type": "piece", "text": "Half a "}, {"hold": True})
    page = page_of(window)
    ask(page)
    qtbot.waitUntil(lambda: "Half a" in page.right.text.toPlainText())
    page._begin_anew()
    answered()
    for pane in (page.left, page.right):
        assert (pane.text.toPlainText(), pane.state.text(), pane.messages) == ("", "", [])


def test_a_reply_is_copied_and_nothing_is_where_there_is_none(qtbot, answers, window, run):
    page, clipboard = page_of(window), QGuiApplication.clipboard()
    clipboard.setText("kept")
    page.left.copy.click()
    assert clipboard.text() == "kept"
    answers.set("chat", reply("It waits."))
    ask(page)
    qtbot.waitUntil(lambda: not page.answering.open)
    page.left.copy.click()
    assert clipboard.text() == "It waits."


@pytest.mark.full
def test_another_run_begins_a_new_conversation(qtbot, answers, window, run, bench):
    answers.set("chat", reply("Hello"))
    page = page_of(window)
    ask(page)
    qtbot.waitUntil(lambda: len(page.right.messages) == 2)
    bench.set_run("")
    assert page.right.messages == []
    assert Path(run).exists()


def test_memory_is_freed_on_request(qtbot, answers, window, run):
    page = page_of(window)
    page._free()
    qtbot.waitUntil(lambda: len(answers.asked("free")) == 1)
    qtbot.waitUntil(lambda: "free" in page.foot.note.text())


@pytest.mark.full
def test_models_answer_in_lanes_of_their_own_unless_one_after_another_is_asked(qtbot, answers, window, run):
    answers.set("chat", reply("Hello"))
    page = page_of(window)
    page.count.button("3").click()
    page.sampling.seed.setValue(7)
    ask(page)
    qtbot.waitUntil(lambda: len(answers.asked("chat")) == 3)
    assert [request["lane"] for request in answers.asked("chat")] == [0, 1, 2]
    assert {request["options"]["seed"] for request in answers.asked("chat")} == {7}
    qtbot.waitUntil(lambda: not page.answering.open)
    page.sampling.in_turn.setChecked(True)
    ask(page)
    qtbot.waitUntil(lambda: len(answers.asked("chat")) == 6)
    assert [request["lane"] for request in answers.asked("chat")[3:]] == [0, 0, 0]


@pytest.mark.full
def test_speed_first_token_and_why_it_waited_stand_below(qtbot, answers, window, run):
    answer = reply("Hello")
    answer["reply"] |= {"first_token_s": 0.25, "waited": "a run is training"}
    answers.set("chat", answer)
    page = page_of(window)
    ask(page)
    qtbot.waitUntil(lambda: "tokens/s" in page.right.state.text())
    assert all(part in facts(page.right) for part in ("0.25 s", "a run is training"))


@pytest.mark.full
def test_replies_that_go_on_elsewhere_are_an_activity(qtbot, answers, window, run):
    answers.set("chat", {"type": "piece", "text": "Half a "}, {"hold": True})
    page = page_of(window)
    ask(page)
    qtbot.waitUntil(lambda: "Half a" in page.right.text.toPlainText())
    assert not window.activity.board.activities, "it is seen on the page itself"
    window.go_to("settings")
    (going,) = window.activity.board.activities
    assert going.page == "try_out"
    going.stop()
    qtbot.waitUntil(lambda: not window.activity.board.activities)


@pytest.mark.full
def test_what_has_nothing_to_work_on_is_not_offered(qtbot, answers, window, run):
    answers.set("chat", reply("Hello"))
    page = page_of(window)
    assert not (page.primary.isEnabled() or page.questions.save.isEnabled() or page.unload.isEnabled())
    assert not page.left.copy.isVisible()
    ask(page)
    qtbot.waitUntil(lambda: not page.answering.open)
    assert page.left.copy.isVisible()
    page.unload.click()
    qtbot.waitUntil(lambda: not page.unload.isEnabled())
    page.prompt.setPlainText("And then?")
    assert page.primary.isEnabled()
    assert page.questions.save.isEnabled()


@pytest.mark.full
def test_what_nobody_answered_can_be_asked_again(qtbot, answers, window, run):
    answers.failure("chat", "It needs 3.1 GiB, 0.8 GiB are free.", "Free memory.")
    page = page_of(window)
    ask(page, "Where is it?")
    qtbot.waitUntil(lambda: "3.1 GiB" in page.right.state.text() and not page.answering.open)
    assert page.prompt.toPlainText() == "Where is it?"
    answers.set("chat", reply("There."))
    page.primary.click()
    qtbot.waitUntil(lambda: page.left.messages[-1].content == page.right.messages[-1].content == "There.")
    assert page.prompt.toPlainText() == ""
