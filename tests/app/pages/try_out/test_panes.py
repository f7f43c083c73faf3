"""The panes of the models: which ones answer, where they stand, and what of them is in view."""

import pytest
from app.pages.try_out.asking import ROWS, ask, facts, page_of, reply
from PySide6.QtWidgets import QScrollArea

pytestmark = pytest.mark.gui


@pytest.mark.full
def test_a_new_question_is_in_view_whatever_was_read_before(qtbot, answers, window, run):
    answers.set("chat", reply("A long answer of many words. " * 60))
    page = page_of(window)
    bar = page.left.text.verticalScrollBar()
    for turn in range(3):
        ask(page)
        qtbot.waitUntil(lambda turn=turn: len(page.left.messages) == 2 * (turn + 1) and not page.answering.open)
        assert bar.maximum() == bar.value() > 0
        bar.setValue(0)  # the person reads the beginning again


@pytest.mark.full
def test_the_end_stays_in_view_when_room_is_taken_and_what_is_read_does_too(qtbot, answers, window, run):
    answers.set("chat", reply("A long answer of many words. " * 60))
    page = page_of(window)
    ask(page)
    bar = page.left.text.verticalScrollBar()
    qtbot.waitUntil(lambda: not page.answering.open and bar.maximum() > 0)
    before = bar.maximum()
    page.left.state.setText("a line below the reply that wraps " * 9)
    qtbot.waitUntil(lambda: bar.maximum() > before)
    assert bar.value() == bar.maximum()
    bar.setValue(7)
    page.left.stream("More. " * 90)
    qtbot.waitUntil(lambda: "More." in page.left.text.toPlainText())
    assert bar.value() == 7


@pytest.mark.full
def test_an_exported_file_can_be_chosen_once_there_is_one(qtbot, answers, window, run):
    answers.set("chat", reply("Hello"))
    page = page_of(window)
    assert not page.left.who.model().item(2).isEnabled()
    (run / "export" / "model-Q8_0.gguf").write_bytes(b"GGUF")
    page.shown()
    page.left.choose("exported")
    ask(page)
    qtbot.waitUntil(lambda: len(answers.asked("chat")) == 2)
    assert answers.asked("chat")[0]["variant"] == "exported"


def test_the_adapter_that_a_run_went_on_from_answers_only_where_there_is_one(qtbot, answers, window, run, bench):
    answers.set("chat", reply("Hello"))
    page = page_of(window)
    panes = (page.left, page.right)

    def offered(pane):
        return [pane.who.itemData(number).key for number in range(pane.who.count())]

    assert [offered(pane) for pane in panes] == [["base", "tuned", "exported"]] * 2
    (run / "start").mkdir()
    (run / "start" / "adapter_model.safetensors").write_bytes(b"x")
    page.shown()
    assert [offered(pane) for pane in panes] == [["base", "start", "tuned", "exported"]] * 2
    assert [pane.answerer.key for pane in panes] == ["base", "tuned"]
    ask(page)
    qtbot.waitUntil(lambda: len(answers.asked("chat")) == 3)
    assert [request["variant"] for request in answers.asked("chat")] == ["base", "start", "tuned"]
    for pane in panes:
        pane.choose("start")
    bench.set_run("")
    assert page.middle.isHidden()
    assert [offered(pane) for pane in panes] == [["base", "tuned", "exported"]] * 2
    assert [pane.answerer.key for pane in panes] == ["base", "tuned"]
    bench.set_run(str(run))
    assert not page.middle.isHidden()
    assert [pane.answerer.key for pane in (page.left, page.middle, page.right)] == ["base", "start", "tuned"]


def test_the_last_of_three_goes_below_where_there_is_no_room_beside(qtbot, window, run):
    page = page_of(window)
    window.resize(744, 900)
    assert page.right.y() == page.left.y()
    (run / "start").mkdir()
    (run / "start" / "adapter_model.safetensors").write_bytes(b"x")
    page.shown()
    qtbot.waitUntil(lambda: page.right.y() > page.left.geometry().bottom() and page.right.x() == page.left.x())
    assert page.middle.y() == page.left.y()
    window.resize(1280, 800)
    qtbot.waitUntil(lambda: page.left.x() < page.middle.x() < page.right.x())
    assert page.left.y() == page.right.y()
    assert abs(page.left.width() - page.right.width()) <= 1


@pytest.mark.full
def test_a_third_model_is_one_that_does_not_answer_yet(window, run):
    (run / "export" / "model-Q8_0.gguf").write_bytes(b"GGUF")
    page = page_of(window)
    page.count.button("3").click()
    assert page.middle.answerer.key == "exported"


@pytest.mark.full
@pytest.mark.parametrize("width", [744, 1000, 1280])
def test_names_of_models_are_cut_with_dots_and_never_in_the_middle_of_a_letter(qtbot, window, run, width):
    window.resize(width, 900)
    page = page_of(window)
    page.count.button("3").click()
    for pane in page.grid.shown:
        qtbot.waitUntil(lambda pane=pane: pane.geometry().right() <= page.grid.width())
        assert pane.who.geometry().right() <= pane.width()
        image = pane.who.grab().toImage()
        pane.who.setItemText(pane.who.currentIndex(), "W" * 60)
        assert pane.who.grab().toImage() != image
    assert page.findChild(QScrollArea).horizontalScrollBar().maximum() == 0


@pytest.mark.full
def test_the_message_box_is_in_view_however_many_models_answer(qtbot, answers, window, run):
    window.resize(1000, 700)
    answers.set("chat", reply("Hello, this is a reply. " * 20))
    page = page_of(window)
    page.count.button("3").click()
    page.grid.show_wanted("The wanted reply.")
    ask(page)
    qtbot.waitUntil(lambda: not page.answering.open)
    assert page.prompt.visibleRegion().boundingRect() == page.prompt.rect()


@pytest.mark.full
def test_three_panes_with_replies_become_two_rows_where_the_window_narrows(qtbot, answers, window, run):
    answers.result("held_out", conversations=ROWS)
    long = {"stopped": False, "first_token_s": 0.027, "waited": "a run is training"}
    answers.set("chat", {"type": "result", "reply": {**reply("")["reply"], **long}})
    window.resize(1280, 800)
    page = page_of(window)
    qtbot.waitUntil(lambda: page.questions.has_rows)
    page.questions.source.button("rows").click()
    page.count.button("3").click()
    page.primary.click()
    qtbot.waitUntil(lambda: all("a run is training" in facts(pane) for pane in page.grid.shown))
    bar = page.findChild(QScrollArea).horizontalScrollBar()
    lines = {}
    for width in (1280, 1000, 744, 1000):
        window.resize(width, 800)
        qtbot.waitUntil(lambda: bar.maximum() == 0)
        qtbot.wait(50)
        assert bar.maximum() == 0
        lines[width] = len({pane.y() for pane in page.grid.shown})
    assert lines == {1280: 1, 1000: 1, 744: 2}
