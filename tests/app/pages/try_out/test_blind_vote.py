"""A blind vote: nothing says who answers, until the person has chosen."""

import pytest
from app.pages.test_hardware import words
from app.pages.try_out.asking import ROWS, ask, page_of, reply
from PySide6.QtWidgets import QScrollArea

pytestmark = pytest.mark.gui


@pytest.fixture
def voting(qtbot, answers, window, run):
    """The page in a blind vote, both replies there."""
    answers.set("chat", reply("Hello"))
    answers.result("vote", votes={"v": 1, "votes": 3, "wins": {"tuned": 2, "base": 1}, "equal": 0})
    page = page_of(window)
    page.blind.setChecked(True)
    ask(page)
    qtbot.waitUntil(page.vote.isVisible)
    return page


@pytest.mark.full
def test_in_a_blind_vote_nothing_says_who_answers(voting):
    seen = words(voting.grid) + voting.left.text.toPlainText() + voting.right.text.toPlainText()
    assert not any(name in seen for name in ("Base", "Tuned", "SmolLM2", "tokens/s", "Loading"))
    assert voting.left.who.isHidden()
    assert voting.right.who.isHidden()


@pytest.mark.full
def test_nobody_is_asked_again_before_the_vote(voting):
    assert not voting.left.again.isEnabled()
    voting.vote.buttons[0].click()
    assert voting.left.again.isEnabled()


def test_a_vote_reveals_and_is_kept_with_the_run(qtbot, answers, run, voting):
    asked = [request["variant"] for request in answers.asked("chat")]
    voting.vote.buttons[1].click()
    assert [pane.answerer.variant for pane in voting.grid.shown] == asked, "each pane shows who wrote its reply"
    assert voting.left.state.toolTip() == "SmolLM2"
    qtbot.waitUntil(lambda: "tuned 2" in voting.vote.text)
    (vote,) = answers.asked("vote")
    assert (vote["run"], vote["prompt"], vote["best"]) == (str(run), "Hi", asked[1])
    assert sorted(vote["shown"]) == ["base", "tuned"]


@pytest.mark.full
def test_equally_good_is_a_vote_too(qtbot, answers, voting):
    voting.vote.buttons[-1].click()
    qtbot.waitUntil(lambda: len(answers.asked("vote")) == 1)
    assert answers.asked("vote")[0]["best"] == ""


@pytest.mark.full
def test_who_answers_where_is_shuffled(qtbot, answers, window, run):
    answers.set("chat", reply("Hello"))
    page = page_of(window)
    page.blind.setChecked(True)
    orders = set()
    for number in range(1, 40):
        ask(page)
        qtbot.waitUntil(lambda number=number: len(answers.asked("chat")) == 2 * number and not page.answering.open)
        orders.add(tuple(request["variant"] for request in answers.asked("chat")[-2:]))
        if len(orders) == 2:
            return
    raise AssertionError("the same order 39 times")


@pytest.mark.full
def test_a_vote_that_is_not_kept_is_said(qtbot, answers, voting):
    answers.failure("vote", "The votes are damaged.", "Look into the file.", 2)
    voting.vote.buttons[0].click()
    qtbot.waitUntil(lambda: "damaged" in voting.vote.text)


def test_without_every_reply_it_is_said_who_failed_and_not_voted(qtbot, answers, window, run):
    answers.failure("chat", "The model is damaged.", "Fetch it again.", 2)
    page = page_of(window)
    page.blind.setChecked(True)
    ask(page)
    qtbot.waitUntil(page.vote.isVisible)
    assert not any(button.isVisible() for button in page.vote.buttons)
    assert not page.left.who.isHidden()
    assert "damaged" in page.left.state.text()


@pytest.mark.full
def test_another_number_of_models_ends_a_vote_that_waits(voting):
    voting.count.choose("3")
    voting.count.chosen.emit("3")
    assert not voting.vote.isVisible()
    assert not voting.left.who.isHidden()
    assert not voting.left.text.toPlainText()


@pytest.mark.full
def test_one_model_twice_is_no_blind_vote(window, run):
    page = page_of(window)
    assert page.blind.isEnabled()
    page.left.choose("tuned")
    assert not page.blind.isEnabled()


def test_the_vote_is_in_view_in_a_low_window_and_so_is_its_count(qtbot, answers, window, run):
    answers.result("held_out", conversations=ROWS)
    answers.set("chat", reply("Hello"))
    answers.result("vote", votes={"v": 1, "votes": 3, "wins": {"tuned": 2, "base": 1}, "equal": 0})
    window.resize(744, 600)
    page = page_of(window)
    qtbot.waitUntil(lambda: page.questions.has_rows)
    page.questions.source.button("rows").click()
    page.blind.setChecked(True)
    area = page.findChild(QScrollArea)
    page.primary.click()

    def is_in_view():
        return page.vote.isVisible() and page.vote.visibleRegion().boundingRect().height() == page.vote.height()

    qtbot.waitUntil(is_in_view)
    area.verticalScrollBar().setValue(0)  # to read the replies once more
    assert not is_in_view()
    page.vote.buttons[0].click()
    qtbot.waitUntil(lambda: "so far" in page.vote.text and is_in_view())
