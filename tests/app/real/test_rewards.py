"""The whole way of a run that learns from rewards, over the real engine: offered, edited, tried, trained, seen."""

import json

import pytest

pytestmark = [pytest.mark.gui, pytest.mark.slow, pytest.mark.measured]
STEPS = 3


@pytest.mark.full
def test_rewards_are_offered_edited_tried_and_learned_from(studio, tiny):
    window = studio.open()
    bench = window.bench
    bench.set_model_path(str(tiny / "model"))
    bench.set_data_files([str(sums(tiny))])
    it_is_offered(studio, window)
    page = studio.visit(window, "recipe")
    studio.wait(lambda: bench.suggestion is not None and bench.plan is not None)
    it_is_edited(studio, page, bench)
    it_is_tried(studio, page)
    it_is_learned_from(studio, window, page)


def sums(folder):
    """A file of prompts whose replies are numbers."""
    file = folder / "sums.jsonl"
    rows = [{"prompt": f"What is {n} + {n + 1}?", "completion": str(2 * n + 1)} for n in range(240)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def it_is_offered(studio, window):
    page = studio.visit(window, "data")
    studio.wait(lambda: "grpo" in page.objective.buttons)
    assert window.bench.recipe.preference.objective == "sft"
    studio.press(page.objective.buttons["grpo"])
    studio.wait(lambda: window.bench.dataset is not None and not page._inspection.busy)
    assert [reward.kind for reward in window.bench.recipe.reward] == ["task", "distance"]


def it_is_edited(studio, page, bench):
    """Random weights write no numbers, but vowels now and then."""
    for row in page.rewards.card.rows[1:]:
        studio.press(row.remove)
    row = page.rewards.card.rows[0]
    row.kind.choose("format")
    row.kind.activated.emit(row.kind.currentIndex())
    assert page.rewards.card.rows[0].setting.text() == ""
    assert bench.recipe.reward[0].kind == "task", "a pattern is missing, so nothing was written"
    row.setting.setText("[aeiou]")
    row.setting.textEdited.emit("[aeiou]")
    assert [(one.kind, one.pattern) for one in bench.recipe.reward] == [("format", "[aeiou]")]
    page.form.row("train.max_steps").editor.setText(str(STEPS))
    page.form.row("train.max_steps").editor.edited.emit()
    assert bench.recipe.train.max_steps == STEPS


def it_is_tried(studio, page):
    studio.wait(page.rewards.card.try_on.isEnabled)
    studio.press(page.rewards.card.try_on)
    studio.wait(page.rewards.card.verdict.text)
    assert len(page.rewards.card.shown.tried) == 10, page.rewards.card.verdict.text()


def it_is_learned_from(studio, window, page):
    studio.wait(lambda: page.primary.isEnabled() and page.does == "start")
    page.start(anyway=True)
    studio.wait(lambda: window.shown_key == "train")
    train = window.page("train")
    studio.wait(lambda: train.events.ended is not None)
    assert train.events.ended.outcome == "finished", train.events.ended.message
    studio.wait(train.charts.rewards.reward.isVisible)
    given = train.events.rewards.items()
    assert [one.step for one in given] == [1, 2, 3]
    assert not train.judged.isHidden()
    assert train.figures.reward.text == f"{sum(one.reward for one in given) / STEPS:.2f}"
    assert train.events.task is not None
