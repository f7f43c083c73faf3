"""Text that a person wrote on the page Try it stays, whatever is chosen there. The engine is not started."""

import pytest
from app.pages.try_out.asking import ROWS, ask
from PySide6.QtCore import Qt

from burnish_app.comparison.replies import different_words
from burnish_app.pages.try_out import TryOutPage
from burnish_app.state.questions import held_out_questions
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.try_out import text_boxes
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import ChatMessage, ChatRequest
from burnish_engine.contract.serve.replies import Reply

pytestmark = pytest.mark.gui

QUESTIONS = held_out_questions([[ChatMessage(**turn) for turn in row] for row in ROWS])


@pytest.fixture
def page(qtbot, client, bench, run):
    made = TryOutPage(client, bench)
    qtbot.addWidget(made)
    made.show()
    made.shown()
    made.questions.show_rows(str(run), QUESTIONS)
    return made


@pytest.fixture
def answered(client, monkeypatch):
    """Every model answers at once."""
    send = client.send

    def answer(request, /, **fields):
        name = send(request, **fields)
        if request is ChatRequest:
            waiting.append((name, fields["on_result"]))
        return name

    waiting = []
    monkeypatch.setattr(client, "send", answer)

    def reply(text="Hello"):
        for name, on_result in waiting:
            on_result(Result(id=name, reply=Reply(text=text, stopped=True, tokens=8, seconds=2.0, name="SmolLM2")))
        waiting.clear()

    return reply


def contents(page):
    return [[message.content for message in pane.messages] for pane in page.grid.shown]


def test_a_draft_is_there_again_after_a_look_at_the_held_out_rows(page):
    page.prompt.setPlainText("A long question of mine")
    page.questions.source.button("rows").click()
    assert page.prompt.toPlainText() == "Row 0?"
    page.prompt.setPlainText("Row 0, in my words")
    page.questions.next.click()
    page.questions.previous.click()
    assert page.prompt.toPlainText() == "Row 0, in my words"
    page.questions.source.button("own").click()
    assert page.prompt.toPlainText() == "A long question of mine"


def test_a_draft_outlives_a_changed_row_that_is_sent(page, answered):
    page.prompt.setPlainText("A long question of mine")
    page.questions.source.button("rows").click()
    ask(page, "Row 0, in my words")
    assert page.prompt.toPlainText() == "A long question of mine"
    assert page.questions.source.value == "own"


def test_ticking_blind_leaves_the_conversation_and_replies_that_are_written(page, answered):
    ask(page)
    page.left.stream("Half a ")
    page.blind.click()
    assert page.answering.open
    answered()
    assert contents(page) == [["Hi", "Hello"]] * 2
    page.blind.click()
    ask(page, "And then?")
    answered("Bye")
    assert contents(page) == [["Hi", "Hello", "And then?", "Bye"]] * 2
    assert page.former.isHidden()


def test_a_blind_vote_and_a_row_make_room_and_what_was_there_before_is_brought_back(page, answered):
    ask(page)
    answered()
    before = [pane.text.toPlainText() for pane in page.grid.shown]
    page.blind.click()
    ask(page, "Who is better?")
    answered("One")
    page.blind.click()
    page.questions.source.button("rows").click()
    page.primary.click()  # nobody voted
    answered("Wanted 0.")
    assert contents(page) == [["Row 0?", "Wanted 0."]] * 2
    page.former.click()
    assert contents(page) == [["Who is better?", "One"]] * 2
    assert not page.vote.isVisible()
    assert {pane.answerer.key for pane in page.grid.shown} == {"base", "tuned"}
    page.former.click()
    assert [pane.text.toPlainText() for pane in page.grid.shown] == before
    page.questions.source.button("own").click()
    ask(page, "And then?")
    assert contents(page) == [["Hi", "Hello", "And then?"]] * 2


def test_a_conversation_has_the_colors_of_the_theme_that_it_comes_back_in(qtbot, page, answered, theme):
    ask(page)
    answered()
    page.blind.click()
    ask(page, "Who is better?")

    def color():
        cursor = page.left.text.textCursor()
        cursor.setPosition(2)
        return cursor.charFormat().foreground().color().name()

    before = color()
    theme.set_mode("dark")
    try:
        qtbot.waitUntil(lambda: color() != before)
        dark = color()
        page.former.click()
        assert color() == dark
    finally:
        theme.set_mode("light")
    qtbot.waitUntil(lambda: color() == before)


def test_a_new_conversation_and_another_run_keep_the_one_before(page, answered, bench, run):
    ask(page)
    page.left.stream("Half a ")
    bench.set_run("")
    assert page.former.isHidden(), "it was with another run"
    bench.set_run(str(run))
    page.former.click()
    assert contents(page) == [["Hi", "Half a "], []]
    assert "Hi" in page.right.text.toPlainText()


def test_what_is_written_outlives_the_studio_until_it_is_sent(qtbot, page, client, bench, answered):
    page.prompt.setPlainText("A long question of mine")
    page.sampling.system.setPlainText("You are terse.")
    page.questions.source.button("rows").click()
    assert page.prompt.toPlainText() == "Row 0?"
    bench.save()  # as it does by itself after a moment; then the studio dies
    again = TryOutPage(client, Workbench())
    qtbot.addWidget(again)
    assert again.prompt.toPlainText() == "A long question of mine"
    assert again.sampling.system.toPlainText() == "You are terse."
    page.questions.source.button("own").click()
    page.send()
    bench.save()
    assert Workbench().text("try_out.message") == ""


def test_return_sends_and_with_shift_begins_a_new_line(qtbot, page, client):
    qtbot.keyClicks(page.prompt, "One")
    qtbot.keyClick(page.prompt, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(page.prompt, "Two")
    assert page.prompt.toPlainText() == "One\nTwo"
    qtbot.keyClick(page.prompt, Qt.Key.Key_Return)
    assert contents(page)[0] == ["One\nTwo"]
    page.prompt.setPlainText("Three")
    qtbot.keyClick(page.prompt, Qt.Key.Key_Return)
    assert page.prompt.toPlainText() == "Three", "it does not stop the reply that is being written"
    assert page.answering.open


def test_a_reply_in_markdown_is_shown_as_such_and_copied_as_it_was_written(page, answered):
    ask(page, "How?")
    answered("**First** ask.\nThen:\n\n- wait\n- <b>write</b>\n\n![](file:///etc/passwd)")
    pane = page.grid.shown[0]
    assert "**" not in pane.reply
    assert "<b>write</b>" in pane.reply, "HTML stays text"
    assert "ask.\nThen:" in pane.reply.replace("\u2028", "\n"), "line ends stay"
    assert "**First**" in pane.messages[-1].content
    ask(page, "And now?")
    answered("a * b = c_d  (two  spaces)")
    assert pane.reply == "a * b = c_d  (two  spaces)"


def test_what_replies_do_not_share_is_marked(page, answered):
    ask(page, "How?")
    answered("The same words from both.")
    (first, second), tint = page.grid.shown, text_boxes.TINT_PROPERTY
    assert {name for _, _, name in first.text.pieces(tint)} == {text_boxes.PLAIN}
    for pane, text in ((first, "Ask the depot for a trace."), (second, "Ask the carrier for a trace.")):
        pane.say([ChatMessage(role="user", content="Who?")])
        pane.finish(Reply(text=text, stopped=True, tokens=8, seconds=2.0, name="x"))
    for pane, spans in zip((first, second), different_words([first.reply, second.reply]), strict=True):
        pane.mark(spans)
    for pane, word in ((first, "depot"), (second, "carrier")):
        marked = [(at, length) for at, length, name in pane.text.pieces(tint) if name != text_boxes.PLAIN]
        assert [pane.text.toPlainText()[at : at + length] for at, length in marked] == [word]
