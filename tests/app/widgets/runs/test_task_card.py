"""The card of the task's score: figures before and after, what chance has to say, and replies that are wrong."""

import pytest
from app.facts.run_events import FINISHED, events, scored
from PySide6.QtWidgets import QLabel

from burnish_app.widgets.runs.task_card import ScoreBar, TaskCard, change_text
from burnish_engine.contract.facts.task_score import TaskChange, TaskScore
from burnish_engine.contract.run.fold import RunState, fold_all


@pytest.fixture
def card(qtbot):
    made = TaskCard()
    qtbot.addWidget(made)
    return made


def texts(card):
    return " ".join(label.text() for label in card.findChildren(QLabel) if not label.isHidden())


def test_a_run_that_scores_nothing_has_no_card(card):
    card.draw(fold_all(RunState(), events(3)))
    assert card.isHidden()


def test_before_the_end_there_is_one_bar_and_no_verdict(card):
    card.draw(fold_all(RunState(), scored(events(3))))
    assert not card.isHidden()
    assert len(card.findChildren(ScoreBar)) == 1
    assert card.verdict.isHidden()


def test_after_the_end_it_says_what_changed_and_shows_wrong_replies(qtbot, card):
    card.draw(fold_all(RunState(), scored(events(600, ended=FINISHED))))
    figures = [bar.accessibleDescription() for bar in card.findChildren(ScoreBar)]
    assert [figure.partition(",")[0] for figure in figures] == ["3 of 50", "47 of 50"]
    assert card.verdict.property("look") == "success"
    assert card.wrong.content.isHidden()
    card.wrong.button.click()
    assert not card.wrong.content.isHidden()
    assert "no valid JSON" in texts(card)
    card.wrong.button.click()
    assert card.wrong.content.isHidden()


@pytest.mark.parametrize(
    ("before", "after", "look"),
    [([False] * 9, [True] * 9, "success"), ([True] * 9, [False] * 9, "warning"),
     ([False] * 3, [True] * 3, "muted"), ([True], [True], "muted")],
)  # fmt: skip
def test_only_a_difference_beyond_chance_is_called_one(before, after, look):
    change = TaskChange(before=TaskScore(passed=before), after=TaskScore(passed=after))
    assert change_text(change)[1] == look
