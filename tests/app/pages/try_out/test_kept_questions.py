"""Questions that need no typing: held-out rows of the run, and prompts that were saved."""

import pytest
from app.pages.try_out.asking import ROWS, page_of, reply

pytestmark = pytest.mark.gui


def test_held_out_rows_are_asked_with_the_wanted_reply_beside(qtbot, answers, window, run):
    answers.result("held_out", conversations=ROWS)
    answers.set("chat", reply("Hello"))
    page = page_of(window)
    qtbot.waitUntil(lambda: page.questions.has_rows_of(str(run)))
    page.questions.source.button("rows").click()
    assert page.prompt.toPlainText() == "Row 0?"
    assert page.grid.wanted.text == "Wanted 0."
    for number in (1, 2):
        page.questions.next.click()
        page.primary.click()
        qtbot.waitUntil(lambda number=number: len(answers.asked("chat")) == 2 * number and not page.answering.open)
        assert answers.asked("chat")[-1]["messages"] == [{"role": "user", "content": f"Row {number}?"}]
        assert page.grid.wanted.text == f"Wanted {number}."
    page.prompt.setPlainText("Something else")
    page.primary.click()
    assert page.grid.wanted.isHidden(), "it is not the reply to that"
    assert page.questions.question is None


def test_a_prompt_is_saved_and_asked_again(qtbot, answers, window, run):
    page = page_of(window)
    page.prompt.setPlainText("Keep me")
    page.questions.save.click()
    page.prompt.clear()
    page.questions.source.button("own").click()
    page.questions.source.button("saved").click()
    assert page.prompt.toPlainText() == "Keep me"
    page.questions.remove.click()
    assert page.questions.question is None


@pytest.mark.full
def test_held_out_rows_are_asked_for_again_after_the_engine_ended(qtbot, answers, window, run):
    answers.set("held_out", {"exit": 1})
    page = page_of(window)
    qtbot.waitUntil(lambda: window.client.generation > 1)
    assert not page.questions.has_rows_of(str(run))
    answers.result("held_out", conversations=[])
    page.shown()
    qtbot.waitUntil(lambda: page.questions.has_rows_of(str(run)))


@pytest.mark.full
def test_held_out_rows_come_once_the_run_has_kept_them(qtbot, answers, window, run):
    """Whoever looks here while the run loads its data meets none, and has them on the next look."""
    answers.failure("held_out", "The run has no readable held_out.json.")
    page = page_of(window)
    qtbot.waitUntil(lambda: page.questions.has_rows_of(str(run)))
    asked = len(answers.asked("held_out"))
    page.runs_changed([])
    assert len(answers.asked("held_out")) == asked, "not with every look at the runs"
    answers.result("held_out", conversations=ROWS)
    window.go_to("train")
    window.go_to("try_out")
    qtbot.waitUntil(lambda: page.questions.has_rows)
    page.questions.source.button("rows").click()
    assert page.grid.wanted.text == "Wanted 0."


def test_a_run_that_was_saved_meanwhile_has_its_held_out_rows(qtbot, answers, window, run):
    weights = run / "adapter" / "adapter_model.safetensors"
    weights.unlink()
    answers.failure("held_out", "The run has no readable held_out.json.")
    page = page_of(window)
    qtbot.waitUntil(lambda: page.questions.has_rows_of(str(run)))
    answers.result("held_out", conversations=ROWS)
    weights.write_bytes(b"x")
    page.runs_changed([])
    qtbot.waitUntil(lambda: page.questions.has_rows)
