"""The Recipe page over the real engine: presets, edits, search, undo and TOML, each followed by a real plan."""

import json

import pytest
from app.real.studio import read_state
from PySide6.QtCore import Qt

from burnish_app.recipe.presets import PRESETS

pytestmark = [pytest.mark.gui, pytest.mark.slow, pytest.mark.measured]
CTRL = Qt.KeyboardModifier.ControlModifier


@pytest.mark.full
def test_the_recipe_answers_whatever_is_changed(studio, tiny, qtbot):
    window = studio.open()
    bench = window.bench
    bench.set_model_path(str(tiny / "model"))
    bench.set_data_files([str(tiny / "data.jsonl")])
    page = studio.visit(window, "recipe")
    studio.wait(lambda: bench.suggestion is not None and bench.plan is not None and bench.dataset is not None)
    studio.wait(lambda: not page.plans.is_waiting)
    the_presets_are_predicted(studio, page, bench)
    a_change_says_what_it_does(studio, page, bench, qtbot)
    it_is_undone(studio, page, bench, qtbot)
    a_setting_is_found(studio, page, bench, qtbot)
    it_is_edited_as_text(studio, page, bench)
    an_invalid_value_is_not_predicted(studio, page, bench)


def the_presets_are_predicted(studio, page, bench):
    presets = page.settings.presets
    studio.wait(lambda: all(presets._times[preset].text() for preset in PRESETS))
    whole = bench.plan.steps
    studio.press(presets.cards["best"].button)
    studio.wait(lambda: bench.plan is not None and not page.plans.is_waiting)
    assert bench.plan.steps > whole
    studio.press(presets.cards["quick"].button)
    studio.wait(lambda: bench.plan is not None and not page.plans.is_waiting)
    assert bench.plan.steps == bench.recipe.train.max_steps < whole
    assert page.fit.steps.text == str(bench.plan.steps)
    assert "steps" in page.fit.change.text


def a_change_says_what_it_does(studio, page, bench, qtbot):
    before = bench.plan
    box = page.form.row("train.micro_batch_tokens")._editor
    for _ in range(3):
        qtbot.keyClick(box, Qt.Key.Key_Up)
    studio.wait(lambda: bench.plan is not None and not page.plans.is_waiting)
    assert bench.plan.memory_bytes > before.memory_bytes
    assert page.fit.change.what.text().startswith("Micro-batch")
    assert "memory" in page.fit.change.text
    assert len(page.draft.history.changes) == 3, "two presets, and three steps of one number at once"


def it_is_undone(studio, page, bench, qtbot):
    changed = bench.recipe
    qtbot.keyClick(page.form.row("adapter.rank")._editor, Qt.Key.Key_Z, CTRL)
    assert bench.recipe.train.micro_batch_tokens < changed.train.micro_batch_tokens
    studio.wait(lambda: bench.plan is not None and not page.plans.is_waiting)
    qtbot.keyClick(page.form.row("adapter.rank")._editor, Qt.Key.Key_Y, CTRL)
    assert bench.recipe == changed
    studio.wait(lambda: bench.plan is not None and not page.plans.is_waiting)


def a_setting_is_found(studio, page, bench, qtbot):
    qtbot.keyClick(page.form.row("adapter.rank")._editor, Qt.Key.Key_F, CTRL)
    qtbot.keyClicks(page.form.search, "adafactor")
    studio.wait(lambda: page.form._found and "train.optimizer" in page.form._rows)
    page.form.row("train.optimizer")._editor.setCurrentText("Lion")
    assert bench.recipe.train.optimizer == "lion"
    studio.wait(lambda: bench.plan is not None and not page.plans.is_waiting)
    qtbot.keyClick(page.form.search, Qt.Key.Key_Escape)


def it_is_edited_as_text(studio, page, bench):
    studio.press(page.settings.view.button("toml"))
    text = page.toml.text.toPlainText()
    page.toml.text.setPlainText(text.replace(f"max_steps = {bench.recipe.train.max_steps}", "max_steps = 11"))
    studio.wait(lambda: bench.plan is not None and bench.plan.steps == 11)
    studio.press(page.settings.view.button("form"))
    assert page.form.row("train.max_steps").value() == 11


def an_invalid_value_is_not_predicted(studio, page, bench):
    rank = page.form.row("adapter.rank")
    studio.type_into(rank._editor, "999")
    assert bench.plan is None
    assert page.fit.time.text == "–"
    assert not page.primary.isEnabled()
    studio.press(rank._reset)
    studio.wait(lambda: bench.plan is not None)
    assert page.primary.isEnabled()
    assert page.fit.verdict.text().startswith("It fits")


@pytest.mark.full
@pytest.mark.parametrize("shape", ["pairs", pytest.param("labels", marks=pytest.mark.long)])
def test_dropped_preferences_are_suggested_an_objective_that_trains(studio, tiny, tmp_path, shape):
    long = " ".join(["It is lit by a lamp that somebody left on."] * 10)
    rows = [{"prompt": f"Lamp {n}?", "chosen": f"Lit, {n}.", "rejected": f"{n}. {long}"} for n in range(24)]
    if shape == "labels":
        rows = [{"prompt": f"Lamp {n}?", "completion": f"Lit, {n}.", "label": n % 2 > 0} for n in range(24)]
    file = tmp_path / f"{shape}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    window = studio.open()
    bench = window.bench
    bench.set_model_path(str(tiny / "model"))
    studio.drop(window, file)
    studio.wait(lambda: window.shown_key == "data" and window.page("data").status == "done")
    page = studio.visit(window, "recipe")
    studio.wait(lambda: bench.suggestion is not None and bench.plan is not None and not page.suggestions.is_waiting)
    recipe = bench.recipe
    assert recipe.preference.objective == ("kto" if shape == "labels" else "dpo")
    assert recipe.train.learning_rate < 1e-4, "far lower than for replies as they stand"
    if shape == "pairs":
        assert recipe.data.max_length > 200, "the rejected replies are longer than the chosen ones"
        assert recipe.train.micro_batch_tokens >= 2 * recipe.data.max_length
    studio.press(page.primary)
    studio.wait(lambda: window.shown_key == "train" and bench.run)
    studio.wait(lambda: read_state(bench.run).status in ("finished", "failed", "stopped"))
    assert read_state(bench.run).status == "finished", read_state(bench.run)
