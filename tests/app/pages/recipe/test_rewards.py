"""The card of rewards on the page Recipe: only what is shown is tried and starts, and each edit can be undone."""

import pytest
from app.facts.reward_facts import sums, trial
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication

from burnish_app.state.objectives import with_objective
from burnish_engine.contract.recipe.recipe import Recipe

pytestmark = pytest.mark.gui


@pytest.fixture
def page(held, held_window):
    """The page with two rewards, a task's and one for a near number."""
    bench = held_window.bench
    recipe = Recipe.model_validate({"data": {"files": ["/data/sums.jsonl"]}})
    bench.set_recipe(with_objective(recipe, "grpo", "prompt_completion", sums().report.task))
    bench.set_dataset(sums())
    held_window.go_to("recipe")
    shown = held_window.page("recipe")
    shown.suggestions.cancel()
    assert shown.rewards.card.isVisible()
    return shown


def type_into(qtbot, edit, text):
    edit.setFocus()
    edit.selectAll()
    qtbot.keyClicks(edit, text)


def rewards(bench):
    return [(one.kind, one.weight) for one in bench.recipe.reward]


def test_nothing_starts_while_a_reward_is_invalid(qtbot, held, page):
    row = page.rewards.card.rows[1]
    assert page.primary.isEnabled()
    type_into(qtbot, row.weight, "x")
    assert not page.primary.isEnabled()
    page.start()
    assert not held.requests("start")
    assert page.bench.plan is None
    type_into(qtbot, row.weight, "0.25")
    assert page.primary.isEnabled()
    assert rewards(page.bench) == [("task", 1.0), ("distance", 0.25)]


def test_typing_a_reward_is_one_change_and_undo_brings_back_what_was_before(qtbot, page):
    bench, row = page.bench, page.rewards.card.rows[1]
    before = rewards(bench)
    type_into(qtbot, row.weight, "0.125")
    assert rewards(bench)[1] == ("distance", 0.125)
    assert len(page.draft.history.changes) == 1
    qtbot.keyClick(row.weight, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert rewards(bench) == before
    type_into(qtbot, row.weight, "no")
    qtbot.keyClick(row.weight, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert page.rewards.card.rows[1].weight.text() == "0.5", "what is invalid goes first"
    assert page.primary.isEnabled()


def test_the_wheel_over_a_reward_scrolls_and_changes_nothing(page):
    kind = page.rewards.card.rows[1].kind
    before = kind.currentIndex()
    turn = QWheelEvent(
        QPointF(5, 5), QPointF(5, 5), QPoint(), QPoint(0, -120), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(kind, turn)
    assert kind.currentIndex() == before
    assert not turn.isAccepted()


@pytest.mark.parametrize("text", ["0.25", "x"], ids=["valid", "invalid"])
def test_a_trial_of_other_rewards_is_not_shown(qtbot, held, page, text):
    card = page.rewards.card
    card.try_on.click()
    asked = held.open("try_rewards")
    type_into(qtbot, card.rows[1].weight, text)
    assert not card.busy.isVisible()
    held.answer("try_rewards", to=asked[0], trial=trial())
    assert not card.shown.tried
    type_into(qtbot, card.rows[1].weight, "0.75")
    card.try_on.click()
    held.answer("try_rewards", trial=trial())
    assert card.shown.tried
    type_into(qtbot, card.rows[1].weight, text)
    assert not card.shown.tried
